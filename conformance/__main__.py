"""`python -m conformance`: runs the models in all runtimes and writes the report.

Exit codes: 0 done; 1 unpool differs from the contract; 2 wrong arguments, or a runtime that cannot be started.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from conformance import ROOT
from conformance.classify import MEANING, Outcome
from conformance.questions import Question, questions
from conformance.record import record, written
from conformance.render import pages
from conformance.run import FINE, Report, ask, say
from conformance.runtimes import BY_NAME, RUNTIMES, Runtime
from conformance.worker import WorkerError
from unpool.files import write

JSON = ROOT / "conformance" / "results.json"
MARKDOWN = ROOT / "docs" / "differences"


NAMES = ", ".join(f"{name} (shape inference of onnx)" if name == "inference" else name for name in BY_NAME)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        "python -m conformance",
        description="Run models in several runtimes, and compare the outputs with the contract.",
    )
    parser.add_argument("--quick", action="store_true", help="only the newest opset of every case; writes no files")
    parser.add_argument("--runtimes", nargs="+", choices=list(BY_NAME), metavar="NAME", help=NAMES)
    parser.add_argument(
        "--runtime",
        type=Path,
        metavar="FILE",
        help="a file.py with the functions version() and answer(model, feeds); asks only this runtime and --runtimes",
    )
    parser.add_argument("--rules", nargs="+", default=[], metavar="RULE", help="such as 3.2, of docs/semantics.md")
    parser.add_argument("--json", type=Path, metavar="PATH", help=f"default of a whole run: {JSON.relative_to(ROOT)}")
    parser.add_argument(
        "--markdown",
        type=Path,
        metavar="FOLDER",
        help=f"folder for an index and a page per operator; default of a whole run: {MARKDOWN.relative_to(ROOT)}",
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask, write, and say whether unpool keeps the contract."""
    given = parsed(arguments)
    asked = questions(given.quick, given.rules)
    if not asked:
        say(f"conformance: expected rules that have cases, got {' '.join(given.rules)}. See docs/semantics.md.")
        return 2
    say(f"{len(asked)} questions")
    try:
        reports = [ask(runtime, asked) for runtime in chosen_runtimes(given.runtimes, given.runtime)]
    except WorkerError as error:
        say(f"conformance: {error}")
        return 2
    whole = not (given.quick or given.rules or given.runtimes or given.runtime)
    results = record(asked, reports)
    files = {}
    if json := given.json or (JSON if whole else None):
        files[json] = written(results)
    if folder := given.markdown or (MARKDOWN if whole else None):
        files |= {folder / name: text for name, text in pages(results).items()}
    for path, text in files.items():
        path.parent.mkdir(exist_ok=True)
        write(path, text.encode())
        say(f"wrote {path}")
    if not whole and given.markdown is None:
        for line in differences(asked, reports):
            say(line)
    wrong = [name for report in reports for name in wrong_names(report, [question.name for question in asked])]
    for name in wrong:
        say(f"unpool differs from the contract: {name}")
    return 1 if wrong else 0


def chosen_runtimes(names: Sequence[str] | None, file: Path | None) -> list[Runtime]:
    """The runtimes of the command line, by default all that are listed; a WorkerError for a file that is none."""
    wanted = names or (() if file else BY_NAME)
    chosen = [runtime for runtime in RUNTIMES if runtime.name in wanted]
    if file is not None:
        if file.suffix != ".py" or not file.is_file():
            raise WorkerError(f"--runtime: expected a Python file that exists, got {file}.")
        chosen.append(Runtime(file.stem, file.stem, str(file.resolve()), f"`{file.name}`"))
    return chosen


def differences(asked: Sequence[Question], reports: Sequence[Report]) -> Iterator[str]:
    """A line for each answer that differs, and one for each kind of difference, which says what it is."""
    kinds = set()
    for report in reports:
        for question, judged in zip(asked, report.judged, strict=True):
            if judged.outcome not in FINE:
                kinds.add(judged.outcome)
                yield f"{report.runtime.title}: {judged.outcome}: {question.name}"
    for outcome in Outcome:
        if outcome in kinds:
            yield f"{outcome}: {MEANING[outcome]}"
    if kinds:
        yield "the contract: docs/semantics.md, by its rules; --markdown FOLDER writes each model, with both answers"


def wrong_names(report: Report, names: Sequence[str]) -> list[str]:
    """Questions where unpool differs; other runtimes may."""
    if report.runtime.name != "unpool":
        return []
    return [name for name, judged in zip(names, report.judged, strict=True) if judged.outcome not in FINE]


if __name__ == "__main__":
    sys.exit(main())
