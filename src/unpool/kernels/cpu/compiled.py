"""One decorator for all kernels: compiled serial, without the interpreter lock, and cached where that is possible."""

from collections.abc import Callable
from typing import Any

from numba import njit
from numba.extending import register_jitable

from unpool.kernels.cpu.cache import cache_of
from unpool.kernels.cpu.entry import Compiler

inlined = register_jitable(error_model="numpy")
"""Decorates what becomes part of the kernels that call it, and has no place in the cache of its own.

What calls functions of other files needs this: in the cache it would not notice that they changed.
"""


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """As `numba.njit`; what takes `first` and `stop` can share its jobs (`entry.py`).

    Args:
        options: of `njit`, beside those that all kernels share.
    """
    shared = {"nogil": True, "error_model": "numpy", "pipeline_class": Compiler, **options}

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = njit(**shared)(function)
        kept = cache_of(function)
        if kept is not None:
            dispatcher._cache = kept
        return dispatcher

    return decorate
