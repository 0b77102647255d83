"""Machine code on disk, which is believed only where it is what was written.

There is an index for every function, and a file for every signature. Each begins with a digest of the rest, and machine
code says for which signature and sources it is. What a full disk, a crash, a failing disk or another process left is
not found then: the kernel is compiled, and the file written anew. The plain mode of `numba_seam.py` leaves all this to
Numba, whose own files have no digest.
"""

import hashlib
import logging
import os
import pickle
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar
from uuid import uuid4

from numba import __version__, njit

from unpool.kernels.cpu.machine import clock
from unpool.kernels.cpu.machine.host import source_digest
from unpool.kernels.cpu.machine.numba_seam import FunctionCache, pickled

_log = logging.getLogger("unpool")
_DIGEST = hashlib.sha256().digest_size
_T = TypeVar("_T")


class _Cache(FunctionCache):
    """The cache of one function, of which no file can make a call fail."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function, lambda *about: _Files(*about, source_digest()))
        self._name = f"{function.__module__}.{function.__qualname__}"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function, None if it is not in the cache."""
        try:
            found = self.load(sig, target_context)
        except Exception:
            _log.debug("kernels: %s is compiled, as the cache cannot give it.", self._name, exc_info=True)
            found = None
        if found is None:
            clock.began(self._name)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled function, if that is possible."""
        clock.ended(self._name)
        try:
            self.save(sig, data)
        except Exception as cause:
            reason = cause.strerror if isinstance(cause, OSError) else type(cause).__name__
            _say_once(f"{self.cache_path} could not be written ({reason}), so later processes compile again")


class _Files:
    """The files of one function: an index of keys, and what is kept under each.

    Numba's own files of it, which the plain mode may leave in the same folder, have other names.
    """

    def __init__(self, folder: str, base: str, *stamp: Any) -> None:
        """In a folder, with names that begin alike; what was written with another stamp is not found."""
        self._folder, self._base, self._stamp = Path(folder), f"{base}.checked", stamp

    def load(self, key: Any) -> Any:
        """What is kept under a key, or None."""
        name = self._index().get(key)
        found = self._read(name) if name else None
        return found[1] if found is not None and found[0] == key else None

    def save(self, key: Any, data: Any) -> None:
        """Keep what can be pickled under a key."""
        names = self._index()
        if key not in names:
            free = (f"{self._base}.{number}.nbc" for number in count(1))
            names[key] = next(name for name in free if name not in names.values())
            self._write(f"{self._base}.nbi", (self._stamp, names))
        self._write(names[key], (key, data))

    def flush(self) -> None:
        """Forget all keys."""
        self._write(f"{self._base}.nbi", (self._stamp, {}))

    def _index(self) -> dict[Any, str]:
        found = self._read(f"{self._base}.nbi")
        return found[1] if found is not None and found[0] == self._stamp else {}

    def _read(self, name: str) -> Any:
        """What a file holds; None if there is none, or not what was written with this version of Numba."""
        try:
            content = (self._folder / name).read_bytes()
        except OSError:
            return None
        digest, rest = content[:_DIGEST], content[_DIGEST:]
        return pickle.loads(rest) if digest == _digest(rest) else None

    def _write(self, name: str, content: Any) -> None:
        """Replace a file at once, whoever reads or writes it."""
        rest = pickled(content)
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
    """Where compiled code of a function is kept; None where nothing can be.

    Numba chooses the folder.
    """
    return _where_possible(lambda: _Cache(function))


def files_beside(function: Callable[..., Any], name: str) -> Any:
    """Files of another kind where compiled code of a function would be kept; None where nothing can be.

    Args:
        function: any of the file that asks.
        name: of the files.
    """
    folder = _where_possible(lambda: _Cache(function).cache_path)
    return None if folder is None else _Files(folder, name, source_digest())


def folder_for(source: Path) -> Path | None:
    """The folder in which compiled code of the functions of a file is kept; None where nothing can be."""
    function = FunctionType((lambda: None).__code__.replace(co_filename=str(source)), {})
    found = _where_possible(lambda: FunctionCache(function, lambda *_: None).cache_path)
    return None if found is None else Path(found)


def cached_by_numba(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """A kernel with Numba's own cache, by its public interface; None where nothing can be kept."""
    return _where_possible(lambda: njit(cache=True, **options)(function))


def _where_possible(make: Callable[[], _T]) -> _T | None:
    """What needs a folder for machine code; None, and a line in the log, where there is none."""
    if not source_digest():
        _say_once("nothing tells old kernels from new ones, as no sources are found, so every process compiles")
        return None
    try:
        return make()
    except (OSError, RuntimeError):
        _log.debug("kernels: Numba's cache cannot be used.", exc_info=True)
        _say_once("no folder for it can be written, so every process compiles anew")
        return None


@cache
def _say_once(problem: str) -> None:
    _log.warning("kernels: Numba's cache: %s. Set NUMBA_CACHE_DIR to a folder with room that can be written.", problem)
