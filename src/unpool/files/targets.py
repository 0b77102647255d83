"""Targets of files: where they go and whether they may go there, deferred signals, and operations on the disk."""

import errno
import logging
import os
import re
import secrets
import signal
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from unpool.errors import FileError, MissingFileError, UnpoolError

_NO_SYNC = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)  # of file systems without fsync, such as network file systems
IS_WINDOWS = os.name == "nt"
PAUSES = (0.01, 0.03, 0.1, 0.3, 0.6) if IS_WINDOWS else ()  # seconds between attempts to rename
DEVICES = re.compile(r"con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³]", re.IGNORECASE)
FORBIDDEN = re.compile(r'[\0-\x1f<>:"/\\|?*]|[. ]$')
"""Characters that names cannot contain on Windows, and those that it cuts off at their end."""

ADVICE = {
    errno.ENOSPC: "Free disk space", errno.EDQUOT: "Free disk space", errno.EACCES: "Change the permissions",
    errno.EPERM: "Change the permissions",
}  # fmt: skip
"""What helps beside another path, by the error of the system."""

_log = logging.getLogger("unpool.files")


class WriteError(FileError):
    """A file cannot be written; earlier files keep their content."""


@contextmanager
def write_errors(target: Path) -> Iterator[None]:
    """Turn errors of the system into WriteErrors with the path that the caller gave."""
    try:
        yield
    except UnpoolError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        text = f"{target}: cannot be written ({reason}); earlier files are as they were."
        advice = f"{ADVICE[error.errno]}, or choose" if error.errno in ADVICE else "Choose"
        raise WriteError(f"{text} {advice} another path.") from error


@contextmanager
def defer_signals() -> Iterator[None]:
    """Defer the signals that end a process to the end of the block, in the main thread: no other one receives them."""
    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    handlers = {number: handler for number in numbers if callable(handler := signal.getsignal(number))}
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    deferred: list[tuple[int, FrameType | None]] = []
    try:
        for number in handlers:
            signal.signal(number, lambda number, frame: deferred.append((number, frame)))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for number, frame in deferred:
        handlers[signal.Signals(number)](number, frame)


def resolve_target(target: Path) -> Path:
    """The path of a file with links resolved. A WriteError if it is not a file or is write-protected."""
    refuse_reserved(target)
    place = Path(os.path.realpath(target))
    with write_errors(target):
        try:
            mode = place.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            if not place.parent.is_dir():
                raise MissingFileError(f"{target.parent}: no such folder for the output. Create it first.") from None
            if not os.access(place.parent, os.W_OK):
                reason = "its folder is write-protected"
                raise WriteError(f"{target}: cannot be written ({reason}). Choose another path.") from None
            return place
    if stat.S_ISDIR(mode):
        raise WriteError(f"{target}: expected a path for a file, got a folder. Move it, or choose another path.")
    if not stat.S_ISREG(mode):
        raise WriteError(f"{target}: expected a path for a file, got a device or pipe. Choose another path.")
    if not os.access(place, os.W_OK):
        raise WriteError(f"{target}: cannot be written (the file is write-protected). Choose another path.")
    return place


def refuse_reserved(target: Path) -> None:
    """Refuse a name that Windows reserves, on Windows."""
    if IS_WINDOWS and is_reserved(target.name):
        raise WriteError(f"{target}: Windows reserves the name {target.name!r}. Choose another name.")


def is_reserved(name: str) -> bool:
    """True for a file name that Windows takes for a device, whatever its suffix, or cannot store as it is.

    >>> [name for name in ("aux.tif", "a:b.npy", "y.", "y.npy", "auxiliary.npy") if is_reserved(name)]
    ['aux.tif', 'a:b.npy', 'y.']
    """
    stem = name.partition(".")[0].strip()
    return DEVICES.fullmatch(stem) is not None or FORBIDDEN.search(name) is not None


def resolve_link(target: Path) -> Path:
    """The end of a link; any other path is returned as it is, even if a folder of it is a link."""
    return Path(os.path.realpath(target)) if target.is_symlink() else target


def is_same(path: Path, other: Path) -> bool:
    """True if two paths are one file, in any spelling; a hard link is the same file."""
    try:
        return os.path.samefile(path, other)
    except OSError:
        return os.path.realpath(path) == os.path.realpath(other)
    except ValueError:  # of a name with a null character
        return path == other


def is_any(path: Path, others: Iterable[Path]) -> bool:
    """True if a path is one of some files."""
    return any(is_same(path, other) for other in others)


def find_overlap(places: Iterable[Path], sources: Iterable[Path]) -> Path | None:
    """The first place that is a source, lies in one, or contains one, with links resolved; None without overlap."""
    inner = {Path(os.path.realpath(source)) for source in sources}
    outer = {parent for source in inner for parent in source.parents}
    ids = {_file_id_or_none(source) for source in inner} - {None}
    known: dict[Path, bool] = {}
    for place in places:
        target = Path(os.path.realpath(place))
        for path in (target, *target.parents):
            if path not in known:
                known[path] = path in inner or _file_id_or_none(path) in ids
        if target in outer or any(known[path] for path in (target, *target.parents)):
            return place
    return None


def file_id(path: Path) -> tuple[int, int]:
    """Device and inode of a file, which all its names have in common."""
    status = path.stat()
    return status.st_dev, status.st_ino


def _file_id_or_none(path: Path) -> tuple[int, int] | None:
    try:
        return file_id(path)
    except OSError:
        return None


def temporary_path(place: Path, ending: str) -> Path:
    """A unique path in the folder of a place, whose length does not depend on the name of the place."""
    return place.with_name(f".unpool-{secrets.token_hex(8)}.{ending}")


def copy_mode(place: Path, path: Path) -> None:
    """Give a new file or folder the owner and mode of the one at `place`, if that exists and the system permits it."""
    with suppress(FileNotFoundError):
        old, new = place.stat(), path.stat()
        with suppress(PermissionError, NotImplementedError):
            if hasattr(os, "chown") and (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
                os.chown(path, old.st_uid, old.st_gid)
            if stat.S_IMODE(old.st_mode) != stat.S_IMODE(new.st_mode):
                os.chmod(path, stat.S_IMODE(old.st_mode))


def replace(path: Path, place: Path) -> None:
    """Rename a file or folder, and replace a file at `place`.

    Windows refuses that while a program has one of the two open, as a virus scanner has for a moment: it is repeated
    for a second.
    """
    for pause in PAUSES:
        try:
            os.replace(path, place)
            return
        except PermissionError:
            time.sleep(pause)
    os.replace(path, place)


def remove(path: Path) -> None:
    """Remove a temporary file; the log names one that cannot be removed."""
    reason: OSError | None = None
    for _ in range(2):
        try:
            path.unlink()
        except OSError as error:
            reason = error
        if not os.path.lexists(path):
            return
    _log.warning("%s: is no longer needed and could not be removed (%s). Remove it.", path, reason)


def sync_folder(folder: Path) -> None:
    """Make new names durable; Windows cannot open a folder."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Wait until the content of a file is on the disk; Windows needs it open for writing."""
    with path.open("r+b") as file:
        sync(file.fileno())


def sync(descriptor: int) -> None:
    """Wait until the content is on the disk."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
