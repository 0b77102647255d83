"""Stages of a command that takes minutes, on stderr: what it does, and for how many seconds."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from unpool.display import display_line

TERMINAL_SECONDS, FILE_SECONDS = 0.25, 10.0
"""Between two updates of the line on a terminal, and between two lines elsewhere."""

_CLEAR = "\r\x1b[K"


@contextmanager
def stages(quiet: bool, seconds: float | None = None) -> Iterator[Callable[[str], None]]:
    """A function that names the stage which begins; it is shown every `seconds`, with its time.

    A terminal has one line for all stages, which disappears at the end; another stream has a line every ten seconds.
    """
    if quiet:
        yield lambda _: None
        return
    stream = sys.stderr  # code inside may redirect sys.stderr
    is_terminal = stream.isatty()
    stage, start = "", time.monotonic()

    def show() -> None:
        line = display_line(f"{stage}, {time.monotonic() - start:.0f} s")
        stream.write(f"{_CLEAR}{line}" if is_terminal else f"{line}\n")
        stream.flush()

    def begin(name: str) -> None:
        nonlocal stage, start
        stage, start = name, time.monotonic()

    try:
        with repeated(show, seconds or (TERMINAL_SECONDS if is_terminal else FILE_SECONDS)):
            yield begin
    finally:
        if is_terminal:
            stream.write(_CLEAR)
            stream.flush()


@contextmanager
def repeated(call: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call a function at this interval in seconds, in a thread, until the block ends."""
    is_done = Event()

    def repeat() -> None:
        while not is_done.wait(seconds):
            call()

    thread = Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()
