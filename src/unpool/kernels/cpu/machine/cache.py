"""Machine code and results of measurements on disk, checked before they are used, and the log of what is compiled.

There is an index for every function, and a file for every signature. Each begins with a digest of the rest; machine
code also states its signature and the digest of all sources. A file that a full disk, a crash or another process left
damaged counts as missing: the kernel is compiled, and the file is written again.
"""

import hashlib
import logging
import os
import pickle
import time
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path
from threading import get_ident
from types import FunctionType
from typing import Any
from uuid import uuid4

from llvmlite import binding
from numba import __version__

from unpool.kernels.cpu.machine.host import available_cores, source_digest
from unpool.kernels.cpu.machine.numba_internals import FunctionCache, to_pickle

_log = logging.getLogger("unpool")
_DIGEST = hashlib.sha256().digest_size

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
        super().__init__(function, lambda *location: _Files(*location, source_digest()))
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


class _Files:
    """The files of one function: an index of keys, and a file for each; those of another stamp are not found."""

    def __init__(self, folder: str, base: str, *stamp: Any) -> None:
        self._folder, self._base, self._stamp = Path(folder), f"{base}.checked", stamp

    def load(self, key: Any) -> Any:
        name = self._index().get(key)
        content = self._read(name) if name else None
        return content[1] if content is not None and content[0] == key else None

    def save(self, key: Any, data: Any) -> None:
        names = self._index()
        if key not in names:
            free = (f"{self._base}.{number}.nbc" for number in count(1))
            names[key] = next(name for name in free if name not in names.values())
            self._write(f"{self._base}.nbi", (self._stamp, names))
        self._write(names[key], (key, data))

    def flush(self) -> None:
        self._write(f"{self._base}.nbi", (self._stamp, {}))

    def _index(self) -> dict[Any, str]:
        content = self._read(f"{self._base}.nbi")
        return content[1] if content is not None and content[0] == self._stamp else {}

    def _read(self, name: str) -> Any:
        """The content of a file; None if it is missing, damaged, or written with another version of Numba."""
        try:
            content = (self._folder / name).read_bytes()
        except OSError:
            return None
        digest, rest = content[:_DIGEST], content[_DIGEST:]
        return pickle.loads(rest) if digest == _digest(rest) else None

    def _write(self, name: str, content: Any) -> None:
        """Replace a file atomically."""
        rest = to_pickle(content)
        path = self._folder / name
        part = path.with_name(f"{name}.tmp.{uuid4().hex[:16]}")
        try:
            part.write_bytes(_digest(rest) + rest)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(__version__.encode() + content).digest()


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


def find_result(key: str) -> Any:
    """The result of a measurement under a key, by these kernels on such a machine; None where none is stored."""
    files = _result_files()
    try:
        return None if files is None else files.load(_machine_key(key))
    except Exception:  # as a missing file
        return None


def store_result(key: str, result: Any) -> None:
    """Store a result that can be pickled, if that is possible, for later processes on this machine."""
    files = _result_files()
    try:
        if files is not None:
            files.save(_machine_key(key), result)
    except OSError:
        return


@cache
def _result_files() -> Any:
    folder = _where_possible(lambda: _Cache(find_result).cache_path)
    return None if folder is None else _Files(folder, "results", source_digest())


def _machine_key(key: str) -> str:  # hashed, because the name of a processor may have any length
    features = binding.get_host_cpu_features().flatten()
    settings = (os.environ.get("NUMBA_CPU_NAME"), os.environ.get("NUMBA_CPU_FEATURES"))
    machine = (binding.get_host_cpu_name(), features, *settings, available_cores())
    return hashlib.sha256(repr((machine, key)).encode()).hexdigest()
