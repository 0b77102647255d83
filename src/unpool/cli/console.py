"""What the command prints: results on stdout; progress and logs on stderr, colour only on a terminal."""

import json
import logging
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from unpool.cli.exits import print_error
from unpool.cli.inputs import Item
from unpool.cli.model import sizes
from unpool.cli.run import Outcome, Result, Steps
from unpool.cli.streams import Told
from unpool.runtime.streams.progress import Progress as TileProgress

NAMED_AREAS = 6
SECONDS_BETWEEN_LINES = 10


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


@contextmanager
def tile_progress(quiet: bool) -> Iterator[Told]:
    """Tells how far a run over windows is: a bar on a terminal, else a line on stderr now and then."""
    console, last = Console(stderr=True), time.monotonic()
    is_shown = not quiet and console.is_terminal
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not is_shown) as bar:
        task = bar.add_task("", total=None)

        def tell(now: TileProgress) -> None:
            nonlocal last
            bar.update(task, total=now.tiles, completed=now.done, description=pace(now))
            if not quiet and not is_shown and time.monotonic() - last > SECONDS_BETWEEN_LINES:
                last = time.monotonic()
                print(f"{now.done} of {now.tiles} tiles: {pace(now)}", file=sys.stderr)  # noqa: T201 - one line

        yield tell


def pace(now: TileProgress) -> str:
    """How fast a run over windows is.

    >>> pace(TileProgress(tiles=100, resumed=20, done=60, seconds=20.0, peak=2**30))
    '2.00 tiles/s, 0:00:20 left, 1.00 GiB at most'
    """
    left = "?" if now.left is None else str(timedelta(seconds=round(now.left)))
    return f"{now.rate:.2f} tiles/s, {left} left, {now.peak / 2**30:.2f} GiB at most"


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
    tiles = "" if result.progress is None else f"; {_tiles(result.progress)}"
    return f"{result.path}: {held}{areas}{tiles} ({result.seconds:.3f} s)"


def _tiles(done: TileProgress) -> str:
    before = f", {done.resumed} of them before" if done.resumed else ""
    return f"{done.tiles} tiles{before}, {done.peak / 2**30:.2f} GiB at most"


def _areas(areas: Mapping[str, float]) -> str:
    largest = sorted(areas.items(), key=lambda pair: -pair[1])
    named = ", ".join(f"{name} {share:.1%}".replace("%", " %") for name, share in largest[:NAMED_AREAS])
    rest = len(largest) - NAMED_AREAS
    return f"{named} and {rest} more classes" if rest > 0 else named
