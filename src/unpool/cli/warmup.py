"""The work of `unpool warmup`: compile the common kernels, so that no first call waits."""

import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from unpool.cli.console import say
from unpool.warmup import steps


def warm_up(types: Sequence[str], quiet: bool) -> None:
    """Compile, or load from the cache, what calls of these types need; a bar on stderr shows how far it is."""
    calls = list(steps(types))
    begin = time.perf_counter()
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("", total=len(calls))
        for name, call in calls:
            bar.update(task, description=name)
            call()
            bar.advance(task)
    say(f"{len(calls)} calls are ready for {', '.join(types)} ({time.perf_counter() - begin:.1f} s)", quiet)
