"""One decorator for all kernels: compiled serial, without the interpreter lock, and cached where that is possible."""

from collections.abc import Callable
from typing import Any

from numba import njit
from numba.extending import register_jitable

from unpool.kernels.cpu.machine import numba_internals
from unpool.kernels.cpu.machine.cache import cache_of
from unpool.kernels.cpu.machine.cfunc import make_entry_point
from unpool.kernels.cpu.vector.specialize import JIT_OPTIONS

jit_inline = register_jitable(**JIT_OPTIONS)
"""Decorates functions that become part of the kernels that call them, and are not cached on their own."""


def jit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """As `numba.njit`; a kernel that takes `first` and `stop` can share its jobs among threads (`cfunc.py`).

    Args:
        options: of `njit`, in addition to those that all kernels share.
    """
    options = {"nogil": True, "error_model": "numpy", **options}

    def decorate(function: Callable[..., Any]) -> Any:
        kernel = njit(pipeline_class=numba_internals.compiler(make_entry_point), **options)(function)
        cache = cache_of(function)
        if cache is not None:
            numba_internals.set_cache(kernel, cache)
        return kernel

    return decorate
