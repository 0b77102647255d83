"""The work of `unpool report`: a feed for the model, the page, and a few lines about it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpool.cli.bench import effort_of
from unpool.cli.destination import refuse_stdout
from unpool.cli.exits import UsageError
from unpool.cli.feeds import one_feed
from unpool.cli.model import SessionOptions, open_session, slots
from unpool.errors import MissingFileError
from unpool.files import is_same

if TYPE_CHECKING:
    from unpool.runtime.report.report import Report, ReportOptions

PAGES = (".html", ".htm")


def check_place(output: Path, model: Path) -> None:
    """Refuse a place for the page before any work is done.

    Raises:
        UsageError: it is standard output, a folder, the model, or has another suffix.
        MissingFileError: its folder does not exist.
    """
    refuse_stdout(output)
    if output.is_dir() or output.suffix.lower() not in PAGES:
        raise UsageError(f"-o {output}: expected a file for a page such as report.html. Name another.")
    if is_same(output, model):
        raise UsageError(f"-o {output}: is the model that is read. Choose another place.")
    if not output.parent.is_dir():
        raise MissingFileError(f"{output.parent}: no such folder for the output. Make it first.")


def report_file(
    path: Path, inputs: Sequence[str], sizes: Mapping[str, int], options: SessionOptions, work: "ReportOptions"
) -> "Report":
    """The library's `report` of a model, on files or, without any, on random numbers."""
    from unpool.runtime.report.report import report

    feed = one_feed(inputs, slots(open_session(path, options))) if inputs else None
    words: dict[str, Any] = {"compat": str(options.compat), "index_space": str(options.index_space)}
    return report(path, feed, sizes=sizes, **words, exact=options.exact, threads=options.threads, options=work)


def report_options(iterations: int, *, accuracy: bool) -> "ReportOptions":
    """The options of a report; no iterations are no times."""
    from unpool.runtime.report.report import ReportOptions

    return ReportOptions(effort_of(2, iterations) if iterations else None, accuracy)


def lines(done: "Report", output: Path) -> list[str]:
    """A few lines about the report, and where it is."""
    return [*done.lines, f"{output}: written"]
