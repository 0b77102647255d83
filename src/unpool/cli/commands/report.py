"""`unpool report`: one page about a model."""

import math
from pathlib import Path
from typing import Annotated

import typer

from unpool.cli.errors import UsageError, guard
from unpool.cli.options import (
    Compat,
    CompatWord,
    Exact,
    Flag,
    IndexSpace,
    IndexWord,
    ModelPath,
    Quiet,
    RunInputs,
    Size,
    Threads,
    parse_sizes,
)

PAGES = (".html", ".htm")


def report(
    model: ModelPath,
    output: Annotated[Path, typer.Option("-o", "--output", help="HTML file to write.", show_default=False)],
    inputs: RunInputs = None,
    size: Size = None,
    iterations: Annotated[int, typer.Option(min=0, help="Runs that are timed; 0 for no times.")] = 10,
    accuracy: Annotated[bool, Flag(help="Evaluate every step once more in float64.")] = True,
    threads: Threads = None,
    compat: CompatWord = Compat.SPEC,
    index_space: IndexWord = IndexSpace.AUTO,
    exact: Exact = False,
    quiet: Quiet = False,
) -> None:
    """Write one page about a model: plan, times, accuracy, findings, memory, feature maps and window arithmetic.

    Example: unpool report segnet.onnx -i photo.png -o report.html
    """
    with guard():
        from unpool.cli import console
        from unpool.cli.feed import one_feed
        from unpool.cli.model import SessionOptions, open_session, slots
        from unpool.runtime.measure.timing import Effort
        from unpool.runtime.report.report import ReportOptions
        from unpool.runtime.report.report import report as report_model

        check_page(output, model)
        options, sizes = SessionOptions(compat, index_space, exact, threads), parse_sizes(size or ())
        feed = one_feed(inputs, slots(open_session(model, options))) if inputs else None
        effort = Effort(2, iterations, seconds=0, limit=math.inf) if iterations else None
        done = report_model(
            model, feed, sizes=sizes, **options.semantics, threads=threads, options=ReportOptions(effort, accuracy)
        )
        done.save(output)
        for line in (*done.lines, f"{output}: written"):
            console.say(line, quiet)


def check_page(output: Path, model: Path) -> None:
    """Check the file of the page, before any work is done.

    Raises:
        UsageError: it is standard output, a folder, the model, or has another suffix.
        MissingFileError: its folder does not exist.
    """
    from unpool.cli.outputs import refuse_stdout
    from unpool.errors import MissingFileError
    from unpool.files import is_same

    refuse_stdout(output)
    if output.is_dir() or output.suffix.lower() not in PAGES:
        raise UsageError(f"-o {output}: expected a file for a page such as report.html.")
    if is_same(output, model):
        raise UsageError(f"-o {output}: is the model that is read. Choose another file.")
    if not output.parent.is_dir():
        raise MissingFileError(f"{output.parent}: no such folder for the output. Make it first.")
