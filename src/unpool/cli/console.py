"""What the command prints: results on stdout; progress and logs on stderr, colour only on a terminal."""

import json
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from unpool.cli.exits import print_error
from unpool.cli.inputs import Item
from unpool.cli.model import sizes
from unpool.cli.run import Outcome, Result, Steps

NAMED_AREAS = 6


def set_up_log(verbose: bool) -> None:
    """Send warnings of unpool to stderr, and INFO records when `verbose`, one line each."""
    logging.addLevelName(logging.INFO, "info")
    logging.addLevelName(logging.WARNING, "warning")
    logger = logging.getLogger("unpool")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    logger.handlers = [handler]
    logger.setLevel(logging.INFO if verbose else logging.WARNING)


def say(line: str, quiet: bool = False) -> None:
    """One line on stdout, never wrapped."""
    if not quiet:
        Console(soft_wrap=True, highlight=False, markup=False).print(line)


def say_json(value: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(value, indent=2))  # noqa: T201 - plain text for other programs


def say_report(lines: Iterable[str], document: Any, as_json: bool, quiet: bool = False) -> None:
    """Lines for people, or one JSON document of the same."""
    if as_json:
        say_json(document)
        return
    for line in lines:
        say(line, quiet)


def progress(quiet: bool) -> Steps:
    """A way through the items that draws a bar on stderr when there are several and stderr is a terminal."""

    def walk(items: Sequence[Item]) -> Iterator[Item]:
        console = Console(stderr=True)
        shown = not quiet and console.is_terminal and len(items) > 1
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True, disable=not shown) as bar:
            task = bar.add_task("", total=len(items))
            for item in items:
                bar.update(task, description=item.stem)
                yield item
                bar.advance(task)

    return walk


def print_outcome(outcome: Outcome, model: Path, as_json: bool, quiet: bool) -> None:
    """One line per written file, or one JSON document; on stderr what was taken for granted, and what failed."""
    for line in notes(outcome.results):
        print(f"warning: {line}", file=sys.stderr)  # noqa: T201 - plain text, one line
    if as_json:
        failed = {"failed": [asdict(one) for one in outcome.failed]} if outcome.failed else {}
        say_json({"model": str(model), "results": [one.as_json() for one in outcome.results], **failed})
    else:
        for result in outcome.results:
            say(describe(result), quiet)
    for failure in outcome.failed:
        print_error(str(failure))


def notes(results: Iterable[Result]) -> list[str]:
    """What was taken for granted, each once for all files that it is about.

    >>> one = Result("a.png", Path("m.png"), {}, 0.0, notes=("65535 is taken as white",))
    >>> notes([one, one])
    ['a.png and 1 more: 65535 is taken as white']
    """
    sources: dict[str, list[str]] = {}
    for result in results:
        renamed = [f"{name!r} is {member!r} in the file" for name, member in result.members.items()]
        for note in (*result.notes, *renamed):
            sources.setdefault(note, []).append(str(result.path) if note in renamed else result.source)
    return [f"{first}{f' and {len(more)} more' if more else ''}: {note}" for note, (first, *more) in sources.items()]


def describe(result: Result) -> str:
    """One line about a written file.

    >>> describe(Result("a.png", Path("m.png"), {"y": ((1, 3, 4), "uint8")}, 0.25, {"sky": 1.0}))
    'm.png: 1x3x4 uint8; sky 100.0 % of the area (0.250 s)'
    """
    arrays = result.arrays
    held = ", ".join(
        f"{name if len(arrays) > 1 else ''} {sizes(shape)} {kind}".strip() for name, (shape, kind) in arrays.items()
    )
    areas = f"; {_areas(result.areas)} of the area" if result.areas else ""
    return f"{result.path}: {held}{areas} ({result.seconds:.3f} s)"


def _areas(areas: Mapping[str, float]) -> str:
    largest = sorted(areas.items(), key=lambda pair: -pair[1])
    named = ", ".join(f"{name} {share:.1%}".replace("%", " %") for name, share in largest[:NAMED_AREAS])
    rest = len(largest) - NAMED_AREAS
    return f"{named} and {rest} more classes" if rest > 0 else named
