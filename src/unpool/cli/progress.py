"""Progress and results of `unpool run`: bars or lines on stderr while it lasts, then one line per written file."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich import progress as rich_progress
from rich.console import Console

from unpool.cli.console import say, say_json
from unpool.cli.errors import print_error
from unpool.cli.inputs import Failure, Item
from unpool.cli.outputs import STDOUT
from unpool.display import display_line, format_shape
from unpool.runtime.streams.runner import Progress, ProgressCallback

SECONDS_BETWEEN_LINES = 10
NAMED_AREAS = 6
EXTENTS = {1: "length", 2: "area", 3: "volume"}  # of class numbers, by spatial rank


@dataclass(frozen=True)
class ProgressDisplay:
    """Display of progress: `items` wraps the iteration over items, `on_progress` gets the progress of their tiles."""

    items: Callable[[Sequence[Item]], Iterable[Item]] = iter
    on_progress: ProgressCallback = lambda _: None


def progress(quiet: bool) -> ProgressDisplay:
    """Bars on a terminal, one for several items and one for the tiles of each; otherwise a line every ten seconds."""
    console = Console(stderr=True)
    if quiet:
        return ProgressDisplay()
    if not console.is_terminal:
        return ProgressDisplay(on_progress=_print_now_and_then())
    bar = rich_progress.Progress(
        rich_progress.TextColumn("{task.description}", markup=False),
        rich_progress.BarColumn(),
        rich_progress.TextColumn("{task.fields[count]}"),
        rich_progress.TimeElapsedColumn(),
        rich_progress.TimeRemainingColumn(),
        console=console,
        transient=True,
    )

    def items(sequence: Sequence[Item]) -> Iterator[Item]:
        total = len(sequence) if len(sequence) > 1 else None
        with bar:
            task = bar.add_task("", total=total, count="")
            for number, item in enumerate(sequence):
                count = "" if total is None else f"{number}/{total}"
                bar.update(task, description=display_line(item.stem), count=count, refresh=True)
                yield item
                bar.advance(task)
            bar.remove_task(task)

    def on_progress(now: Progress) -> None:
        task = next((task.id for task in bar.tasks if task.fields.get("is_tiles")), None)
        if task is None:
            task = bar.add_task("tiles", total=None, count="", is_tiles=True)
        bar.update(task, total=now.tiles, completed=now.done, count=f"{now.done}/{now.tiles}, {pace(now)}")

    return ProgressDisplay(items, on_progress)


def _print_now_and_then() -> ProgressCallback:
    last = time.monotonic()

    def on_progress(now: Progress) -> None:
        nonlocal last
        if time.monotonic() - last > SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            print(f"{now.done} of {now.tiles} tiles: {pace(now)}", file=sys.stderr)  # noqa: T201 - one line

    return on_progress


def pace(now: Progress) -> str:
    """Speed, remaining time and memory of a tiled run.

    >>> pace(Progress(tiles=100, resumed=20, done=60, seconds=20.0, peak=2**30))
    '2.00 tiles/s, 0:00:20 left, peak memory 1.00 GiB'
    """
    left = "?" if now.left is None else str(timedelta(seconds=round(now.left)))
    return f"{now.rate:.2f} tiles/s, {left} left, peak memory {now.peak / 2**30:.2f} GiB"


@dataclass(frozen=True)
class Result:
    """One written file."""

    source: str  # the input that it is named after
    path: Path
    arrays: Mapping[str, tuple[tuple[int, ...], str]]  # shape and type of each array in it
    seconds: float  # that the model ran
    areas: Mapping[str, float] = field(default_factory=dict)  # share of the area by class
    notes: Sequence[str] = ()  # assumptions about the pixels that went in
    members: Mapping[str, str] = field(default_factory=dict)  # output -> another name that it has in the file
    progress: Progress | None = None  # of the tiles, if there are any

    def as_json(self) -> dict[str, Any]:
        """The record as JSON types."""
        arrays = {name: {"shape": list(shape), "type": kind} for name, (shape, kind) in self.arrays.items()}
        plain = {"input": self.source, "output": str(self.path), "arrays": arrays, "seconds": round(self.seconds, 6)}
        tiles = {} if self.progress is None else asdict(self.progress)
        more = {"areas": dict(self.areas), "notes": list(self.notes), "members": dict(self.members), "tiles": tiles}
        return plain | {name: value for name, value in more.items() if value}


@dataclass(frozen=True)
class Outcome:
    """Results, and inputs that were skipped."""

    results: list[Result]
    failed: list[Failure]


def print_outcome(outcome: Outcome, model: Path, as_json: bool, quiet: bool) -> None:
    """One line per written file, or one JSON document; assumptions and skipped inputs on stderr."""
    for line in notes(outcome.results):
        print(f"warning: {display_line(line)}", file=sys.stderr)  # noqa: T201 - plain text, one line
    if as_json:
        failed = {"failed": [asdict(failure) for failure in outcome.failed]} if outcome.failed else {}
        say_json({"model": str(model), "results": [result.as_json() for result in outcome.results], **failed})
    else:
        for result in outcome.results:
            say(describe(result), quiet, to_stderr=str(result.path) == STDOUT)
    for failure in outcome.failed:
        print_error(str(failure))
    if outcome.failed:
        count = len(outcome.results) + len(outcome.failed)
        print_error(f"{len(outcome.failed)} of {count} inputs left out, {len(outcome.results)} results written")


def notes(results: Iterable[Result]) -> list[str]:
    """Assumptions about pixels, each once for all its files.

    >>> result = Result("a.png", Path("m.png"), {}, 0.0, notes=("65535 is taken as white",))
    >>> notes([result, result])
    ['a.png and 1 more: 65535 is taken as white']
    """
    sources: dict[str, list[str]] = {}
    for result in results:
        for note in result.notes:
            sources.setdefault(note, []).append(result.source)
        for name, member in result.members.items():
            sources.setdefault(f"{name!r} is {member!r} in the file", []).append(str(result.path))
    return [f"{first}{f' and {len(more)} more' if more else ''}: {note}" for note, (first, *more) in sources.items()]


def describe(result: Result) -> str:
    """One line about a written file.

    >>> tiles = Progress(tiles=144, resumed=22, done=144, seconds=9.0, peak=290_000_000)
    >>> describe(Result("a.npy", Path("m.npy"), {"y": ((4, 5), "u1")}, 0.25, {"sky": 1.0}, progress=tiles))
    'm.npy: 4x5 u1; sky 100.0 % of the length; 144 tiles (22 from the interrupted run), peak memory 0.27 GiB (0.250 s)'
    """
    arrays = result.arrays
    contents = ", ".join(
        f"{name if len(arrays) > 1 else ''} {format_shape(shape)} {kind}".strip()
        for name, (shape, kind) in arrays.items()
    )
    areas = tiles = ""
    if result.areas:
        largest = sorted(result.areas.items(), key=lambda pair: -pair[1])
        named = ", ".join(f"{name} {share:.1%}".replace("%", " %") for name, share in largest[:NAMED_AREAS])
        rest = len(largest) - NAMED_AREAS
        extent = EXTENTS.get(max(len(shape) for shape, _ in arrays.values()) - 1, "area")
        areas = f"; {named}{f' and {rest} more classes' if rest > 0 else ''} of the {extent}"
    if (done := result.progress) is not None:
        resumed = f" ({done.resumed} from the interrupted run)" if done.resumed else ""
        count = f"{done.tiles} tile{'' if done.tiles == 1 else 's'}{resumed}, peak memory {done.peak / 2**30:.2f} GiB"
        tiles = f"; {'was already complete, nothing was computed' if done.was_complete else count}"
    place = "standard output" if str(result.path) == STDOUT else result.path
    return f"{place}: {contents}{areas}{tiles} ({result.seconds:.3f} s)"
