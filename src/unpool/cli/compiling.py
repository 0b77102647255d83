"""Says on a terminal that kernels are being compiled, for the first call takes seconds and later ones do not."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TextIO

from unpool.warmup import compiling_seconds

PATIENCE = 1.0
"""Seconds of compiling of which nothing is said."""

TICK = 0.25


@contextmanager
def compiling_told(stream: TextIO = sys.stderr, seconds: Callable[[], float] = compiling_seconds) -> Iterator[None]:
    """Keep one line on a terminal up to date while kernels are compiled for longer than `PATIENCE`.

    Args:
        stream: where the line goes; nothing is said where it is no terminal.
        seconds: how long kernels have been compiled for.
    """
    if not stream.isatty():
        yield
        return
    before, done = seconds(), Event()
    teller = Thread(target=_tell, args=(stream, lambda: seconds() - before, done), daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def _tell(stream: TextIO, seconds: Callable[[], float], done: Event) -> None:
    said = 0.0
    while True:
        is_done, spent = done.wait(TICK), seconds()
        if spent > max(PATIENCE, said):
            said = spent
            stream.write(f"\rcompiling once, {spent:.0f} s")
            stream.flush()
        if is_done:
            stream.write("; later runs find it in the cache\n" if said else "")
            stream.flush()
            return
