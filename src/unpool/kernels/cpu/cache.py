"""Machine code on disk, which is believed only where it is what was written.

Numba keeps an index for every function, and a file for every signature. Here each begins with a digest of the rest, and
machine code says for which signature and sources it is. What a full disk, a crash, a failing disk or another process
left is not found then: the kernel is compiled, and the file written anew.
"""

import hashlib
import logging
import os
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps

from unpool.kernels.cpu.host import source_digest

_log = logging.getLogger("unpool")
_DIGEST = hashlib.sha256().digest_size


class _Cache(FunctionCache):
    """Numba's cache of one function, of which no file can make a call fail.

    Before it looks into its files, Numba's own imports the implementations of everything that it can compile, and with
    them SciPy's linear algebra where that is installed: 0.15 to 0.35 s. A function that is not found is compiled, and
    compiling imports them itself.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp(), source_digest()
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function, None if it is not in the cache."""
        rtsys.initialize(target_context)
        try:
            return self._load_overload(sig, target_context)
        except Exception:
            _log.debug("kernels: %s is compiled, as the cache cannot give it.", self._name, exc_info=True)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled function, if that is possible."""
        try:
            self._save_overload(sig, data)
        except Exception as cause:
            reason = cause.strerror if isinstance(cause, OSError) else type(cause).__name__
            _say_once(f"{self._cache_path} could not be written ({reason}), so later processes compile again")


class _Files(IndexDataCacheFile):
    """Numba's, but for what is in them and how they are read and written."""

    def save(self, key: Any, data: Any) -> None:
        """Keep what can be pickled under a key."""
        super().save(key, (key, data))

    def load(self, key: Any) -> Any:
        """What is kept under a key, or None."""
        found = super().load(key)
        return found[1] if found is not None and found[0] == key else None

    def _load_index(self) -> dict[Any, str]:
        found = self._read(self._index_path)
        return found[1] if found is not None and found[0] == self._source_stamp else {}

    def _save_index(self, overloads: dict[Any, str]) -> None:
        self._write(self._index_path, (self._source_stamp, overloads))

    def _load_data(self, name: str) -> Any:
        return self._read(self._data_path(name))

    def _save_data(self, name: str, data: Any) -> None:
        self._write(self._data_path(name), data)

    def _read(self, path: str) -> Any:
        """What a file holds; None if there is none, or not what was written by this version of Numba."""
        try:
            content = Path(path).read_bytes()
        except OSError:
            return None
        digest, pickled = content[:_DIGEST], content[_DIGEST:]
        return pickle.loads(pickled) if digest == self._digest(pickled) else None

    def _write(self, path: str, content: Any) -> None:
        """Replace a file at once, whoever reads or writes it."""
        pickled = dumps(content)
        part = Path(f"{path}.tmp.{uuid4().hex[:16]}")
        try:
            part.write_bytes(self._digest(pickled) + pickled)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)

    def _digest(self, pickled: bytes) -> bytes:
        return hashlib.sha256(self._version.encode() + pickled).digest()


def cache_of(function: Callable[..., Any]) -> FunctionCache | None:
    """Where compiled code of a function is kept; None where nothing can be.

    Numba chooses the folder.
    """
    if not source_digest():
        _say_once("nothing tells old kernels from new ones, as no sources are found, so every process compiles")
        return None
    try:
        return _Cache(function)
    except (OSError, RuntimeError) as cause:
        if isinstance(cause, RuntimeError) and "no locator available" not in str(cause):
            raise
    _say_once("no folder for it can be written, so every process compiles anew")
    return None


@cache
def _say_once(problem: str) -> None:
    _log.warning("kernels: Numba's cache: %s. Set NUMBA_CACHE_DIR to a folder with room that can be written.", problem)
