"""Cancels long calls: between rounds they call a function, in the caller's thread, which raises to end the call."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_check: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)


@contextmanager
def cancellation_scope(check: Callable[[], None]) -> Iterator[None]:
    """Let long calls of this thread, inside the context, call a function that raises to cancel them."""
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


def check_cancelled() -> None:
    """Call the function of the scope, if there is one."""
    check = _check.get()
    if check is not None:
        check()
