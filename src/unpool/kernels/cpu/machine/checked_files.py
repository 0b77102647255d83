"""Files on disk that are checked before they are used, their folder, and the digest of the kernels' sources.

An index names a file for every key. Each file begins with a digest of the rest. A file that a full disk, a crash or
another process left damaged counts as missing.
"""

import hashlib
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_DIGEST_BYTES = hashlib.sha256().digest_size


class CheckedFiles:
    """A file for every key in a folder, and an index of them; files of another stamp are not found."""

    def __init__(
        self, folder: str, base: str, *stamp: Any, version: str = "", dumps: Callable[[Any], bytes] = pickle.dumps
    ) -> None:
        """`base` begins all names; files of another `version` of the writer are not read, whatever they hold."""
        self._folder, self._base, self._stamp = Path(folder), f"{base}.checked", stamp
        self._version, self._dumps = version, dumps

    def load(self, key: Any) -> Any:
        """What was saved under a key; None if it is not there."""
        name = self._index().get(key)
        content = self._read(name) if name else None
        return content[1] if content is not None and content[0] == key else None

    def save(self, key: Any, data: Any) -> None:
        """Save data under a key."""
        names = self._index()
        if key not in names:
            free = (f"{self._base}.{number}.nbc" for number in count(1))
            names[key] = next(name for name in free if name not in names.values())
            self._write(f"{self._base}.nbi", (self._stamp, names))
        self._write(names[key], (key, data))

    def flush(self) -> None:
        """Empty the index."""
        self._write(f"{self._base}.nbi", (self._stamp, {}))

    def _index(self) -> dict[Any, str]:
        content = self._read(f"{self._base}.nbi")
        return content[1] if content is not None and content[0] == self._stamp else {}

    def _read(self, name: str) -> Any:
        """The content of a file; None if it is missing, damaged, or of another version."""
        try:
            content = (self._folder / name).read_bytes()
        except OSError:
            return None
        digest, rest = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        return pickle.loads(rest) if digest == self._digest(rest) else None

    def _write(self, name: str, content: Any) -> None:
        """Replace a file atomically."""
        rest = self._dumps(content)
        path = self._folder / name
        part = path.with_name(f"{name}.tmp.{uuid4().hex[:16]}")
        try:
            part.write_bytes(self._digest(rest) + rest)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)

    def _digest(self, content: bytes) -> bytes:
        return hashlib.sha256(self._version.encode() + content).digest()


def cache_folder(beside: Path) -> Path | None:
    """A folder for files about one that is installed; None where none can be written.

    The first writable one is taken: NUMBA_CACHE_DIR, or `__pycache__` beside the file; then the cache of the user.
    """
    place = hashlib.sha256(str(beside.parent).encode()).hexdigest()[:16]
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    folders = [Path(chosen, f"unpool-{place}")] if chosen else [beside.parent / "__pycache__"]
    with suppress(RuntimeError):  # a user without a home
        folders.append(_user_cache() / "unpool" / place)
    for folder in folders:
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    return None


def _user_cache() -> Path:
    """The folder for caches of the user."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@cache
def source_digest(*suffixes: str) -> str:
    """A digest of the sources of the kernels, in a folder or an archive, or of their bytecode if there are no sources.

    The cache compares it, because Numba detects changes only in the file of a kernel, not in functions that it calls.
    It is empty where a loader shows no files, as in a frozen application: nothing may be cached then. `suffixes` are
    those of the files that count, by default `.py` and `.pyc`.
    """
    from importlib import resources

    try:
        files = dict(_sources(resources.files("unpool.kernels.cpu"), "", suffixes or (".py", ".pyc")))
    except Exception:  # a loader may lack any part of this
        return ""
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(name.encode() + b"\0" + files[name].read_bytes())
    return digest.hexdigest() if files else ""


def _sources(folder: "Traversable", where: str, suffixes: tuple[str, ...]) -> "Iterator[tuple[str, Traversable]]":
    for each in folder.iterdir():
        if each.is_dir() and each.name != "__pycache__":
            yield from _sources(each, f"{where}{each.name}/", suffixes)
        elif each.name.endswith(suffixes):
            yield where + each.name, each
