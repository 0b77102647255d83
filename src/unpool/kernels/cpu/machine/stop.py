"""Asks whether a long call shall go on: between its rounds, in the caller's thread.

Whoever may want to stop sets a function for as long as a call takes; it raises what shall end the call.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ask: ContextVar[Callable[[], None] | None] = ContextVar("ask", default=None)


@contextmanager
def asking(ask: Callable[[], None]) -> Iterator[None]:
    """Have long calls inside ask this function, of this thread alone."""
    token = _ask.set(ask)
    try:
        yield
    finally:
        _ask.reset(token)


def go_on() -> None:
    """Ask, if there is somebody to ask."""
    ask = _ask.get()
    if ask is not None:
        ask()
