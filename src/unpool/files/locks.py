"""Locks of outputs: one process at a time writes a file, and an error names that process to others.

    take      open .NAME.lock next to the file, lock it, and compare its inode with the path's; if they differ, repeat
    hold      the lock file names the process
    release   unlink the path, then unlock: a process that had opened the old file finds that the path is another file

The system unlocks the files of a process that ends in any way: a lock file that is left blocks no later process.
"""

import errno
import importlib
import logging
import os
import platform
import re
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from unpool.errors import MissingFileError
from unpool.files.targets import IS_WINDOWS, WriteError, defer_signals, refuse_reserved, remove, write_errors

MAX_LOCKS = 128  # locks of one holder: each takes a file descriptor, of which processes often have 1,024
MAX_NAME_BYTES = 255  # bytes of a file name in common file systems
ATTEMPTS = 1000
HOLDER_ATTEMPTS = 20  # hundredths of a second to wait for the name of the process that has a lock
REGION = 1 << 30  # the byte that is locked on Windows, where a locked byte cannot be read by others
UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
NOT_A_FILE = {errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EMLINK}
"""Errors of opening a folder, a link or a socket as a file."""

HOLDER = re.compile(rb"unpool (\d{1,20}) (\S{0,255})\n")
LOCK_CONTENT = re.compile(rb"\0*|unpool (\d{0,20}|\d{1,20} \S{0,255}\n?)")
"""Content of a lock file; after a full disk or a power cut it may be incomplete, or zeros."""

MAX_LOCK_BYTES = 512

_log = logging.getLogger("unpool.files")
_warned_devices: set[int] = set()


class FileLocks:
    """Locks of files that this process writes, until they are released."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._held: dict[Path, int] = {}

    def take(self, targets: Iterable[Path], limit: int = MAX_LOCKS) -> list[Path]:
        """Lock files, which need not exist, up to `limit` locks in all, or none on an error: the new lock files."""
        paths = {lock_of(target): target for target in targets}
        fresh: list[Path] = []
        with defer_signals():
            try:
                for path in sorted(paths.keys() - self._held.keys())[: max(0, limit - len(self._held))]:
                    with write_errors(paths[path]):
                        self._held[path] = _take(path, paths[path])
                    fresh.append(path)
            except BaseException:
                self.release(fresh)
                raise
        return fresh

    @contextmanager
    def hold(self, targets: Iterable[Path]) -> Iterator[None]:
        """Lock files until the end of the block, without a limit of their number, unless this holder has them."""
        files = list(targets)
        fresh = self.take(files, len(self._held) + len(files))
        try:
            yield
        finally:
            self.release(fresh)

    def release(self, paths: Iterable[Path] | None = None) -> None:
        """Unlock files by their lock files, by default all, and remove the lock files."""
        with defer_signals():
            for path in list(self._held if paths is None else paths):
                if path in self._held:
                    _release(path, self._held.pop(path), is_owner=os.getpid() == self._owner)


@contextmanager
def lock(targets: Iterable[Path]) -> Iterator[None]:
    """Hold the locks of files that this process writes; a WriteError names another process that writes one of them."""
    locks = FileLocks()
    try:
        locks.take(targets)
        yield
    finally:
        locks.release()


def lock_of(target: Path) -> Path:
    """The lock file of a file: in its folder, and for a link in the folder of the link's target."""
    refuse_reserved(target)
    place = Path(os.path.realpath(target))
    name = f".{place.name}.lock"
    if len(os.fsencode(name)) > MAX_NAME_BYTES:
        name = f".unpool-{blake2b(os.fsencode(place.name), digest_size=16).hexdigest()}.lock"
    return place.with_name(name)


def try_lock(descriptor: int) -> bool:
    """Lock an open file until it is unlocked or closed; False if another process has it, an OSError without locks."""
    try:
        fcntl: Any = importlib.import_module("fcntl")
    except ImportError:
        try:
            _lock_region(descriptor, "LK_NBLCK")
        except PermissionError:
            return False
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(descriptor: int) -> None:
    """Unlock an open file, also for forked processes that still have it open."""
    try:
        fcntl: Any = importlib.import_module("fcntl")
    except ImportError:
        _lock_region(descriptor, "LK_UNLCK")
    else:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _lock_region(descriptor: int, mode: str) -> None:
    msvcrt: Any = importlib.import_module("msvcrt")
    os.lseek(descriptor, REGION, os.SEEK_SET)
    msvcrt.locking(descriptor, getattr(msvcrt, mode), 1)


def _take(path: Path, target: Path) -> int:
    for _ in range(ATTEMPTS):
        descriptor = _open(path, target)
        try:
            if not _try_lock(descriptor, path):
                raise WriteError(
                    f"{target}: {_holder(descriptor)} is writing it. Wait for it to end, or choose another output."
                )
            if _has_path(descriptor, path):
                _write_holder(descriptor, path)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise WriteError(f"{target}: other processes keep replacing {path}. Wait for them to end.")


def _open(path: Path, target: Path) -> int:
    if not path.parent.is_dir():
        raise MissingFileError(f"{target.parent}: no such folder for the output. Create it first.")
    flags = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o666)
    except PermissionError as error:
        if not path.is_file():
            if path.is_dir():  # the error of Windows for a folder
                raise _foreign(path) from error
            raise
        with write_errors(path):
            return os.open(path, os.O_RDONLY | flags)  # created by another user: it can be locked, but not written
    except OSError as error:
        if error.errno in NOT_A_FILE:
            raise _foreign(path) from error
        raise


def _try_lock(descriptor: int, path: Path) -> bool:
    """Lock a file; warn once if the file system has no locks."""
    try:
        return try_lock(descriptor)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        device = os.fstat(descriptor).st_dev
        if device not in _warned_devices:
            _warned_devices.add(device)
            text = "%s: this file system has no locks (%s). Two processes that write one output are not kept apart."
            _log.warning(text, path.parent, error.strerror)
        return True


def _has_path(descriptor: int, path: Path) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)


def _write_holder(descriptor: int, path: Path) -> None:
    """Write this process into its lock file; any other file of this name is refused."""
    status = os.fstat(descriptor)
    is_small = stat.S_ISREG(status.st_mode) and status.st_size < MAX_LOCK_BYTES
    if not is_small or not LOCK_CONTENT.fullmatch(_read(descriptor)):
        raise _foreign(path)
    with suppress(OSError):  # a full disk, or a file of another user: the lock holds nevertheless
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, f"unpool {os.getpid()} {_host()}\n".encode())


def _foreign(path: Path) -> WriteError:
    return WriteError(f"{path}: is not a lock file of unpool. Move it, or choose another output.")


def _host() -> str:
    return "-".join(platform.node()[:60].split())


def _read(descriptor: int) -> bytes:
    try:
        os.lseek(descriptor, 0, os.SEEK_SET)
        return os.read(descriptor, MAX_LOCK_BYTES)
    except OSError:
        return b""


def _holder(descriptor: int) -> str:
    """The process that has locked a file, read from the file; it may take a moment to write it."""
    for _ in range(HOLDER_ATTEMPTS):
        holder = HOLDER.fullmatch(_read(descriptor))
        if holder is not None:
            process, host = holder[1].decode(), holder[2].decode(errors="replace")
            return f"process {process}{f' on {host}' if host != _host() else ''}"
        time.sleep(0.01)
    return "another process"


def _release(path: Path, descriptor: int, *, is_owner: bool) -> None:
    """Unlink the lock file and unlock it; a process that was forked only closes its copy."""
    if not is_owner:
        os.close(descriptor)
        return
    if IS_WINDOWS:  # an open file cannot be unlinked, by this process or a waiting one
        unlock(descriptor)
        os.close(descriptor)
        with suppress(OSError):
            path.unlink()
        return
    if _has_path(descriptor, path):
        remove(path)
    with suppress(OSError):
        unlock(descriptor)
    os.close(descriptor)
