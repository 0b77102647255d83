"""One decorator for all kernels: compiled serial, without the interpreter lock, and cached where that is possible."""

from collections.abc import Callable
from typing import Any

from numba import njit
from numba.extending import register_jitable

from unpool.kernels.cpu.machine import numba_seam
from unpool.kernels.cpu.machine.cache import cache_of, cached_by_numba
from unpool.kernels.cpu.machine.entry import entrance
from unpool.kernels.cpu.vector.by_type import PART

inlined = register_jitable(**PART)
"""Decorates what becomes part of the kernels that call it, and has no place in the cache of its own.

What calls functions of other files needs this: in the cache it would not notice that they changed.
"""


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """As `numba.njit`; what takes `first` and `stop` can share its jobs (`entry.py`).

    Args:
        options: of `njit`, beside those that all kernels share.
    """
    shared = {"nogil": True, "error_model": "numpy", **options}

    def decorate(function: Callable[..., Any]) -> Any:
        if numba_seam.is_plain():
            return cached_by_numba(function, shared) or njit(**shared)(function)
        kernel = njit(pipeline_class=numba_seam.compiler(entrance), **shared)(function)
        kept = cache_of(function)
        if kept is not None:
            numba_seam.keep_in(kept, kernel)
        return kernel

    return decorate
