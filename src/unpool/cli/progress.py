"""Progress of `unpool run` on stderr: bars on a terminal, else a line every ten seconds."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from rich import progress as rich_progress
from rich.console import Console

from unpool.cli.inputs import Item
from unpool.cli.run import ProgressDisplay
from unpool.display import display_line
from unpool.runtime.streams.runner import Progress, ProgressCallback

SECONDS_BETWEEN_LINES = 10


def progress(quiet: bool) -> ProgressDisplay:
    """Bars on stderr, where that is a terminal: one for the items, one for the tiles of an item.

    A single item has no steps that can be counted; its bar only moves, next to the elapsed time. Where stderr is
    no terminal, a run over windows has a line now and then.
    """
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

    def items(given: Sequence[Item]) -> Iterator[Item]:
        with bar:
            yield from _counted(bar, given, len(given) if len(given) > 1 else None, lambda item: item.stem)

    def on_progress(now: Progress) -> None:
        task = next((one.id for one in bar.tasks if one.fields.get("is_tiles")), None)
        if task is None:
            task = bar.add_task("tiles", total=None, count="", is_tiles=True)
        bar.update(task, total=now.tiles, completed=now.done, count=f"{now.done}/{now.tiles}, {pace(now)}")

    return ProgressDisplay(items, on_progress)


def _counted(
    bar: rich_progress.Progress, given: Iterable[Any], total: int | None, name: Callable[[Any], str]
) -> Iterator[Any]:
    """Go through what is given, and show how much of it is done."""
    task = bar.add_task("", total=total, count="")
    for number, one in enumerate(given):
        count = "" if total is None else f"{number}/{total}"
        bar.update(task, description=display_line(name(one)), count=count, refresh=True)
        yield one
        bar.advance(task)
    bar.remove_task(task)


def _print_now_and_then() -> ProgressCallback:
    """A callback that prints the progress of a run over windows on stderr, every ten seconds at most."""
    last = time.monotonic()

    def tell(now: Progress) -> None:
        nonlocal last
        if time.monotonic() - last > SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            print(f"{now.done} of {now.tiles} tiles: {pace(now)}", file=sys.stderr)  # noqa: T201 - one line

    return tell


def pace(now: Progress) -> str:
    """Speed, remaining time and memory of a tiled run.

    >>> pace(Progress(tiles=100, resumed=20, done=60, seconds=20.0, peak=2**30))
    '2.00 tiles/s, 0:00:20 left, peak memory 1.00 GiB'
    """
    left = "?" if now.left is None else str(timedelta(seconds=round(now.left)))
    return f"{now.rate:.2f} tiles/s, {left} left, peak memory {now.peak / 2**30:.2f} GiB"
