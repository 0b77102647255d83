"""Files that outlive a process: machine code, measurements, choices, and notes that libraries were verified.

    NUMBA_CACHE_DIR/unpool-{package}/ or __pycache__/ or the user's cache
      {kind}-{digest of the version}/
        {digest of version and key}      sha256 of the rest, sha256 of version and key, pickle of key and object

Each object has a file of its own, which is replaced atomically. There is no index: a file holds the digests that prove
it valid. The version states everything but the key that an object depends on. A file is unpickled only if both digests
fit and if nobody but this user and root could have written it; otherwise it counts as missing.
"""

import hashlib
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_DIGEST_BYTES = hashlib.sha256().digest_size
_KEPT_VERSIONS = 3  # of each kind


class CheckedFiles:
    """Objects on disk by key, of one kind and version."""

    def __init__(
        self,
        kind: str,
        *version: object,
        folders: Sequence[Path] | None = None,
        dumps: Callable[[Any], bytes] = pickle.dumps,
    ) -> None:
        """`repr` tells versions apart; `folders` are read in turn, by default those of `cache_folders`."""
        self.kind, self._version, self._dumps = kind, repr((kind, version)), dumps
        self.folders = cache_folders() if folders is None else folders
        self._name = f"{kind}-{_name(_sha256(self._version.encode()))}"

    def load(self, key: object) -> Any:
        """The object that was saved under a key, whose `repr` and value count; None if there is none."""
        identity = self._identity(key)
        for folder in self.folders:
            content = _read(folder / self._name, _name(identity))
            digest, rest = content[:_DIGEST_BYTES], memoryview(content)[_DIGEST_BYTES:]
            if digest != _sha256(rest) or rest[:_DIGEST_BYTES] != identity:
                continue
            with suppress(Exception):  # its classes are missing in this process
                saved_key, data = pickle.loads(rest[_DIGEST_BYTES:])
                if saved_key == key:
                    return data
        return None

    def save(self, key: object, data: object) -> None:
        """Save an object under a key, in the first folder that can be written; OSError if none can."""
        identity = self._identity(key)
        rest = identity + self._dumps((key, data))
        path = self._writable_folder() / _name(identity)
        part = path.with_name(f"{path.name}.{os.urandom(8).hex()}")
        try:
            with open(part, "xb", opener=_open_for_owner) as file:
                file.write(_sha256(rest) + rest)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)

    def _identity(self, key: object) -> bytes:
        return _sha256(f"{self._version} {key!r}".encode())

    def _writable_folder(self) -> Path:
        for parent in self.folders:
            folder = parent / self._name
            with suppress(OSError):
                if not folder.exists():
                    folder.mkdir(0o755, parents=True, exist_ok=True)
                    self._remove_old_versions(parent)
                if _is_trusted(folder, folder.stat()) and os.access(folder, os.W_OK):
                    return folder
        raise OSError(0, "no folder for it can be written")

    def _remove_old_versions(self, parent: Path) -> None:
        """Keep the latest other version, because two versions may take turns."""
        import shutil

        with suppress(OSError):  # another process removes them, too
            others = [each for each in parent.glob(f"{self.kind}-*") if each.name != self._name]
            others.sort(key=lambda each: each.stat().st_mtime)
            for each in others[: 1 - _KEPT_VERSIONS]:
                shutil.rmtree(each, ignore_errors=True)


def _name(digest: bytes) -> str:
    return digest[:16].hex()


def _sha256(content: bytes | memoryview) -> bytes:
    return hashlib.sha256(content).digest()


def _open_for_owner(path: str, flags: int) -> int:
    """Open a file that others may read but not write, whatever the umask."""
    return os.open(path, flags, 0o644)


def _read(folder: Path, name: str) -> bytes:
    """The bytes of a file; no bytes if it is missing, or if another user could have written it."""
    try:
        with open(folder / name, "rb", buffering=0) as file:
            if _is_trusted(folder, folder.stat()) and _is_trusted(folder, os.fstat(file.fileno())):
                return file.readall()
    except OSError:
        pass
    return b""


def _is_trusted(folder: Path, status: os.stat_result) -> bool:
    """True if only this user or root can write to a folder, or to a file in it; a warning for each folder if not.

    A group that has the name of the owner and no other members is the owner: many systems let it write. Folders above
    do not count, as a file that is moved keeps its owner. Windows keeps the folders of users apart by itself.
    """
    problem = ""
    if hasattr(os, "geteuid"):
        if status.st_uid not in (os.geteuid(), 0):
            problem = f"belongs to another user ({status.st_uid})"
        elif status.st_mode & 0o002 or (status.st_mode & 0o020 and not _is_private(status.st_gid, status.st_uid)):
            problem = "can be written by other users"
    if problem:
        _warn_once(folder, problem)
    return not problem


@cache
def _is_private(group: int, owner: int) -> bool:
    """True if a group has no member but its owner, by the convention of systems that make a group for every user."""
    import grp
    import pwd

    try:
        name, members = pwd.getpwuid(owner).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    return members.gr_name == name and set(members.gr_mem) <= {name}


@cache
def _warn_once(folder: Path, problem: str) -> None:
    import logging  # most processes log nothing

    logging.getLogger("unpool").warning(
        "kernels: %s, or a file in it, %s, so it is not read. Delete it, or set NUMBA_CACHE_DIR to a folder that only "
        "you can write.",
        *(folder, problem),
    )


def cache_folders() -> list[Path]:
    """Folders for what outlives a process, in the order in which they are tried; they may not exist yet.

    NUMBA_CACHE_DIR, or `__pycache__` beside this file; then the cache of the user.
    """
    here = Path(__file__).parent
    package = hashlib.sha256(str(here).encode()).hexdigest()[:16]
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    folders = [Path(chosen, f"unpool-{package}") if chosen else here / "__pycache__"]
    with suppress(RuntimeError):  # a user without a home
        folders.append(_user_cache() / "unpool" / package)
    return folders


def _user_cache() -> Path:
    """The folder for caches of the user."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@cache
def source_digest(*suffixes: str, package: str = "unpool.kernels.cpu") -> str:
    """A digest of the sources of a package, in a folder or an archive, or of their bytecode if there are no sources.

    Machine code depends on it, because Numba detects changes only in the file of a kernel, not in functions that it
    calls. It is empty where a loader shows no files, as in a frozen application: nothing may be stored then. `suffixes`
    are those of the files that count, by default `.py` and `.pyc`.
    """
    try:
        return digest_files(_folder_of(package), *suffixes or (".py", ".pyc"))
    except Exception:  # a loader may lack any of these functions
        return ""


def _folder_of(package: str) -> "Traversable":
    folder = Path(next(iter(import_module(package).__path__)))
    if folder.is_dir():
        return folder
    from importlib import resources  # takes longer to import than the files to read

    return resources.files(package)


def digest_files(folder: "Traversable", *suffixes: str) -> str:
    """A digest of the files of a folder with these suffixes, and of their names; empty if there are none."""
    files = dict(_files(folder, "", suffixes))
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(name.encode() + b"\0" + files[name].read_bytes())
    return digest.hexdigest() if files else ""


def _files(folder: "Traversable", where: str, suffixes: tuple[str, ...]) -> "Iterator[tuple[str, Traversable]]":
    for each in folder.iterdir():
        if each.is_dir() and each.name != "__pycache__":
            yield from _files(each, f"{where}{each.name}/", suffixes)
        elif each.name.endswith(suffixes):
            yield where + each.name, each


def source_stamp(*folders: str) -> str:
    """A digest of names, sizes and times of the sources in folders; empty where they are no files, as in an archive.

    It tells old sources from new ones in a fifth of the time that `source_digest` takes. A process looks at each folder
    once.
    """
    with suppress(OSError):
        found = sorted(chain.from_iterable(map(_stamps, folders)))
        return hashlib.sha256(repr(found).encode()).hexdigest() if found else ""
    return ""


@cache
def _stamps(folder: str) -> list[tuple[str, int, int]]:
    """The path, size and time of each source in a folder and in those below."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((".py", ".pyc", ".json")):
                status = entry.stat()
                found.append((entry.path, status.st_size, status.st_mtime_ns))
            elif entry.is_dir() and entry.name != "__pycache__":
                found += _stamps(entry.path)
    return found
