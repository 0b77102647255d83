"""Machine code on disk, and the log of what is compiled.

There is a file for every function and signature (`checked_files.py`). One that is damaged, of other sources or another
processor counts as missing: the kernel is compiled, and the file is written again.
"""

import logging
import time
from collections.abc import Callable
from functools import cache
from threading import get_ident
from typing import Any

from unpool.kernels.cpu.machine.checked_files import CheckedFiles, source_digest
from unpool.kernels.cpu.machine.numba_internals import VERSION, FunctionCache, to_pickle

_log = logging.getLogger("unpool")

_running: dict[int, tuple[str, float]] = {}  # by thread, its outermost kernel and when it began; no lock, for forks
_spent: list[float] = []


def note_start(kernel: str) -> None:
    """Note that this thread begins to compile a kernel, or a function that the kernel calls."""
    _running.setdefault(get_ident(), (kernel, time.perf_counter()))


def note_end(kernel: str) -> None:
    """Note, and log, that this thread has compiled a kernel."""
    outermost, start = _running.get(get_ident(), ("", 0.0))
    if outermost == kernel:
        del _running[get_ident()]
        _spent.append(time.perf_counter() - start)
        _log.info("kernels: %s is compiled once, %.1f s.", kernel, _spent[-1])


def compile_seconds() -> float:
    """Seconds that threads of this process have spent compiling kernels so far."""
    now = time.perf_counter()
    return sum(_spent) + sum(now - start for _, start in list(_running.values()))


class _Cache(FunctionCache):
    """The cache of one function; none of its files can make a call fail."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function, _files())
        self._name = f"{function.__module__}.{function.__qualname__}"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            function = self.load(sig, target_context)
        except Exception:
            _log.debug("kernels: %s is compiled, as the cache cannot give it.", self._name, exc_info=True)
            function = None
        if function is None:
            note_start(self._name)
        return function

    def save_overload(self, sig: Any, data: Any) -> None:
        note_end(self._name)
        try:
            self.save(sig, data)
        except Exception as cause:
            reason = cause.strerror if isinstance(cause, OSError) else type(cause).__name__
            _warn_once(f"nothing could be stored ({reason}), so every process compiles")


def _files() -> CheckedFiles:
    return CheckedFiles("kernels", source_digest(), *VERSION, dumps=to_pickle)


def cache_of(function: Callable[..., Any]) -> Any:
    """The cache of a function; None, and a warning, where nothing may be stored."""
    if source_digest():
        return _Cache(function)
    _warn_once("nothing tells old kernels from new ones, as no sources are found, so every process compiles")
    return None


@cache
def _warn_once(problem: str) -> None:
    _log.warning("kernels: the cache: %s. Set NUMBA_CACHE_DIR to a folder with room that can be written.", problem)
