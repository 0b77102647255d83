"""Machine code on disk, checked before it is used, and the log of what is compiled.

There is an index for every function, and a file for every signature (`checked_files.py`). Machine code also states its
signature and the digest of all sources. A damaged file counts as missing: the kernel is compiled, and the file is
written again.
"""

import logging
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from threading import get_ident
from types import FunctionType
from typing import Any

from numba import __version__

from unpool.kernels.cpu.machine.checked_files import CheckedFiles, source_digest
from unpool.kernels.cpu.machine.numba_internals import FunctionCache, to_pickle

_log = logging.getLogger("unpool")

_running: dict[int, tuple[str, float]] = {}  # by thread, its outermost kernel and when it began; no lock, for forks
_spent: list[float] = []


def note_start(kernel: str) -> None:
    """Note that this thread begins to compile a kernel, or a function that belongs to the kernel it compiles."""
    _running.setdefault(get_ident(), (kernel, time.perf_counter()))


def note_end(kernel: str) -> None:
    """Note, and log, that this thread has compiled a kernel."""
    outermost, start = _running.get(get_ident(), ("", 0.0))
    if outermost == kernel:
        del _running[get_ident()]
        _spent.append(time.perf_counter() - start)
        _log.info("kernels: %s is compiled once, %.1f s.", kernel, _spent[-1])


def compile_seconds() -> float:
    """Seconds for which threads of this process have compiled kernels, those included that still do."""
    now = time.perf_counter()
    return sum(_spent) + sum(now - start for _, start in list(_running.values()))


class _Cache(FunctionCache):
    """The cache of one function; none of its files can make a call fail."""

    def __init__(self, function: Callable[..., Any]) -> None:
        def make_files(*location: Any) -> CheckedFiles:
            return CheckedFiles(*location, source_digest(), version=__version__, dumps=to_pickle)

        super().__init__(function, make_files)
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
            _warn_once(f"{self.cache_path} could not be written ({reason}), so later processes compile again")


def cache_of(function: Callable[..., Any]) -> Any:
    """The cache of a function, in a folder that Numba chooses; None where nothing can be written."""
    return _where_possible(lambda: _Cache(function))


def folder_for(source: Path) -> Path | None:
    """The folder for the machine code of a source file; None where nothing can be written."""
    function = FunctionType((lambda: None).__code__.replace(co_filename=str(source)), {})
    folder = _where_possible(lambda: FunctionCache(function, lambda *_: None).cache_path)
    return None if folder is None else Path(folder)


def _where_possible(make: Callable[[], Any]) -> Any:
    """The result of a function that needs a folder for machine code; None, and a warning, where there is none."""
    if not source_digest():
        _warn_once("nothing tells old kernels from new ones, as no sources are found, so every process compiles")
        return None
    try:
        return make()
    except (OSError, RuntimeError):
        _log.debug("kernels: Numba's cache cannot be used.", exc_info=True)
        _warn_once("no folder for it can be written, so every process compiles")
        return None


@cache
def _warn_once(problem: str) -> None:
    _log.warning("kernels: Numba's cache: %s. Set NUMBA_CACHE_DIR to a folder with room that can be written.", problem)
