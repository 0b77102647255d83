"""One decorator for all kernels: compiled serial, without the interpreter lock, and cached where that is possible."""

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache
from numba.core.runtime.nrt import rtsys
from numba.extending import register_jitable

from unpool.kernels.cpu.entry import Compiler
from unpool.kernels.cpu.host import source_digest

_log = logging.getLogger("unpool")

inlined = register_jitable(error_model="numpy")
"""Decorates what becomes part of the kernels that call it, and has no place in the cache of its own.

What calls functions of other files needs this: in the cache it would not notice that they changed.
"""


class _Cache(FunctionCache):
    """Numba's cache of one function, which loads machine code without what only compiling needs.

    Before it looks into its files, Numba's own imports the implementations of everything that it can compile, and with
    them SciPy's linear algebra where that is installed: 0.15 to 0.35 s. A function that is not found is compiled, and
    compiling imports them itself.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function, None if it is not in the cache."""
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        """Numba's, and how kernels are entered, which is part of their machine code."""
        return (*super()._index_key(sig, codegen), source_digest())


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """As `numba.njit`; what takes `first` and `stop` can share its jobs (`entry.py`).

    Numba chooses the folder of its cache, and where none can be written there is no cache.

    Args:
        options: of `njit`, beside those that all kernels share.
    """
    shared = {"nogil": True, "error_model": "numpy", "pipeline_class": Compiler, **options}

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = njit(**shared)(function)
        try:
            dispatcher._cache = _Cache(function)
        except RuntimeError as cause:
            if "no locator available" not in str(cause):
                raise
            _say_once()
        return dispatcher

    return decorate


@cache
def _say_once() -> None:
    _log.warning(
        "kernels: no folder for Numba's cache can be written, so every process compiles anew. "
        "Set NUMBA_CACHE_DIR to a folder that can."
    )
