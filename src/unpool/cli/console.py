"""What the command prints: results on stdout; progress and logs on stderr, colour only on a terminal."""

import json
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich import progress as rich_progress
from rich.console import Console

from unpool.cli.destination import STDOUT
from unpool.cli.exits import print_error
from unpool.cli.inputs import Item
from unpool.cli.model import sizes
from unpool.cli.run import Outcome, Progress, Result
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


def say(line: str, quiet: bool = False, is_aside: bool = False) -> None:
    """One line on stdout, never wrapped; on stderr where it is an aside, since stdout has the result itself."""
    if not quiet:
        Console(soft_wrap=True, highlight=False, markup=False, stderr=is_aside).print(line)


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


def progress(quiet: bool) -> Progress:
    """Bars on stderr, where that is a terminal: one for the items, one for the tiles of an item.

    A single item has no steps that can be counted; its bar only moves, beside the time that it takes. Where stderr is
    no terminal, a run over windows has a line now and then.
    """
    console = Console(stderr=True)
    if quiet:
        return Progress()
    if not console.is_terminal:
        return Progress(told=_now_and_then())
    bar = rich_progress.Progress(
        rich_progress.TextColumn("{task.description}", markup=False),
        rich_progress.BarColumn(),
        rich_progress.TextColumn("{task.fields[count]}"),
        rich_progress.TimeElapsedColumn(),
        rich_progress.TimeRemainingColumn(),
        console=console,
        transient=True,
    )

    def items(given: Sequence[Item]) -> Iterator[Item]:
        with bar:
            yield from _counted(bar, given, len(given) if len(given) > 1 else None, lambda item: item.stem)

    def tiles(given: Iterable[Any]) -> Iterator[Any]:
        yield from _counted(bar, given, len(given) if isinstance(given, Sized) else None, lambda _: "tiles")

    def told(now: TileProgress) -> None:
        task = next((one.id for one in bar.tasks if one.fields.get("is_told")), None)
        if task is None:
            task = bar.add_task("tiles", total=None, count="", is_told=True)
        bar.update(task, total=now.tiles, completed=now.done, count=pace(now))

    return Progress(items, tiles, told)


def _counted(
    bar: rich_progress.Progress, given: Iterable[Any], total: int | None, name: Callable[[Any], str]
) -> Iterator[Any]:
    """Go through what is given, and show how much of it is done."""
    task = bar.add_task("", total=total, count="")
    for number, one in enumerate(given):
        bar.update(task, description=name(one), count="" if total is None else f"{number}/{total}", refresh=True)
        yield one
        bar.advance(task)
    bar.remove_task(task)


def _now_and_then() -> Told:
    """Tells in a line on stderr how far a run over windows is, but not too often."""
    last = time.monotonic()

    def tell(now: TileProgress) -> None:
        nonlocal last
        if time.monotonic() - last > SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            print(f"{now.done} of {now.tiles} tiles: {pace(now)}", file=sys.stderr)  # noqa: T201 - one line

    return tell


def pace(now: TileProgress) -> str:
    """How fast a run over windows is.

    >>> pace(TileProgress(tiles=100, resumed=20, done=60, seconds=20.0, peak=2**30))
    '2.00 tiles/s, 0:00:20 left, 1.00 GiB at most'
    """
    left = "?" if now.left is None else str(timedelta(seconds=round(now.left)))
    return f"{now.rate:.2f} tiles/s, {left} left, {now.peak / 2**30:.2f} GiB at most"


def print_outcome(outcome: Outcome, model: Path, as_json: bool, quiet: bool) -> None:
    """One line per written file, or one JSON document; on stderr what was taken for granted, and what was left out."""
    for line in notes(outcome.results):
        print(f"warning: {line}", file=sys.stderr)  # noqa: T201 - plain text, one line
    if as_json:
        failed = {"failed": [asdict(one) for one in outcome.failed]} if outcome.failed else {}
        say_json({"model": str(model), "results": [one.as_json() for one in outcome.results], **failed})
    else:
        for result in outcome.results:
            say(describe(result), quiet, is_aside=str(result.path) == STDOUT)
    for failure in outcome.failed:
        print_error(str(failure))
    if outcome.failed:
        count = len(outcome.results) + len(outcome.failed)
        print_error(f"{len(outcome.failed)} of {count} inputs left out, {len(outcome.results)} results written")


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
    place = "standard output" if str(result.path) == STDOUT else result.path
    return f"{place}: {held}{areas}{tiles} ({result.seconds:.3f} s)"


def _tiles(done: TileProgress) -> str:
    before = f", {done.resumed} of them before" if done.resumed else ""
    return f"{done.tiles} tiles{before}, {done.peak / 2**30:.2f} GiB at most"


def _areas(areas: Mapping[str, float]) -> str:
    largest = sorted(areas.items(), key=lambda pair: -pair[1])
    named = ", ".join(f"{name} {share:.1%}".replace("%", " %") for name, share in largest[:NAMED_AREAS])
    rest = len(largest) - NAMED_AREAS
    return f"{named} and {rest} more classes" if rest > 0 else named
