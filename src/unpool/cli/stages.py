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
    stream, is_done = sys.stderr, Event()  # code inside may redirect sys.stderr
    is_terminal = stream.isatty()
    stage, start = "", time.monotonic()
    tick = seconds or (TERMINAL_SECONDS if is_terminal else FILE_SECONDS)

    def show() -> None:
        while not is_done.wait(tick):
            line = display_line(f"{stage}, {time.monotonic() - start:.0f} s")
            stream.write(f"{_CLEAR}{line}" if is_terminal else f"{line}\n")
            stream.flush()

    def begin(name: str) -> None:
        nonlocal stage, start
        stage, start = name, time.monotonic()

    thread = Thread(target=show, daemon=True)
    thread.start()
    try:
        yield begin
    finally:
        is_done.set()
        thread.join()
        if is_terminal:
            stream.write(_CLEAR)
            stream.flush()
