"""Compiling, without two habits of Python that take up to a fifth of its time.

Compiling calls functions in functions, and makes objects, by the million.

- Python keeps the frames of calls in pieces of 16 KiB, and returns a piece to the system as soon as nothing is in it.
  Where a loop calls a function that happens to begin a piece, every turn asks the system for memory that has to be
  zeroed: compiling took up to 12 % longer, by how deep the caller's calls were. One function that needs a large frame
  gets a piece of its own, which has room for all frames behind it.
- Every so many new objects Python looks for cycles of dead ones. What a compiler makes stays alive until it is done:
  8 % of the time were spent on finding nothing.
"""

import gc
from collections.abc import Callable
from types import FunctionType
from typing import Any

ROOM = 1 << 16
"""Words of the large frame: it takes just more than half a MiB, so it is given one, and leaves the rest to others."""


def _call(function, *args):
    return function(*args)


_call_with_room: Callable[..., Any] = FunctionType(_call.__code__.replace(co_stacksize=ROOM), globals())


def undisturbed(function: Callable[..., Any], *args: Any) -> Any:
    """What a function gives that compiles; one at a time, and while nobody forks, for a child would collect nothing."""
    collects = gc.isenabled()
    try:
        gc.disable()
        return _call_with_room(function, *args)
    finally:
        if collects:
            gc.enable()
