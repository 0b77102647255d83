"""Files that appear together or not at all: complete under temporary names first, then renamed; on a fault put back.

Every command and every record that unpool writes goes through here.

    open a target    .unpool-<token>.part in the same folder, with the mode of the file that it replaces
    leave the block  flushed and synced to the disk
    leave the set    earlier files kept under .unpool-<token>.kept (a hard link where there are any),
                     all renamed, folders synced; then the kept ones go, or on a fault come back

A file behind a link is replaced there, the link stays. What ends a process at once (a power cut, SIGKILL) can leave a
file of these two names; each target holds all of its old or all of its new content even then, except that without hard
links the old content may stand under the second name only.
"""

import errno
import logging
import os
import secrets
import signal
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import BinaryIO

from unpool.errors import FileError, MissingFileError, UnpoolError

NO_SYNC = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)  # file systems without it, some of them over a network
ATTEMPTS = 2

_log = logging.getLogger("unpool.files")


class WriteError(FileError):
    """A file cannot be written; every earlier file is as it was."""


@dataclass
class _Staged:
    """A file on its way: what the caller called it, where it really goes, and what is in its place until then."""

    target: Path
    place: Path
    temporary: Path
    kept: Path
    is_there: bool = False


class FileSet:
    """Files of one command; use it as a context manager, leaving it without an exception makes them appear.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with FileSet() as files, files.open(Path(folder) / "a.txt") as stream:
    ...         _ = stream.write(b"complete")
    ...     [(path.name, path.read_bytes()) for path in Path(folder).iterdir()]
    [('a.txt', b'complete')]
    """

    def __init__(self) -> None:
        self._staged: list[_Staged] = []
        self._folders: list[Path] = []

    def __enter__(self) -> "FileSet":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _later():
            if kind is not None or not self._staged:
                self._put_back()
                return
            try:
                self._appear()
            except BaseException:
                self._put_back()
                raise

    def make_folder(self, folder: Path) -> None:
        """Make a folder, not its parents, unless it is there; it goes again when no files appear."""
        with _later(), _named(folder):
            if not folder.parent.is_dir():
                raise MissingFileError(f"{folder.parent}: no such folder for the output. Make it first.")
            if not folder.is_dir():
                folder.mkdir()
                self._folders.append(folder)

    @contextmanager
    def open(self, target: Path) -> Iterator[BinaryIO]:
        """A stream, to be written and read, for the file that will be `target`; closed at the end of the block.

        Raises:
            MissingFileError: its folder does not exist.
            WriteError: it cannot be written there.
        """
        place = place_of(target)
        token = secrets.token_hex(8)
        one = _Staged(target, place, _beside(place, token, "part"), _beside(place, token, "kept"))
        self._staged.append(one)
        try:
            with _named(target), one.temporary.open("x+b") as stream:
                _take_mode(one)
                yield stream
                stream.flush()
                _sync(stream.fileno())
        except BaseException:
            _remove(one.temporary)
            self._staged.remove(one)
            raise

    def _appear(self) -> None:
        for one in self._staged:
            with _named(one.target):
                self._refuse_same_name(one)
                _keep(one)
                os.replace(one.temporary, one.place)
                one.is_there = True
        for folder, target in {one.place.parent: one.target for one in self._staged}.items():
            with _named(target):
                _sync_folder(folder)
        for one in self._staged:
            _remove(one.kept)

    def _refuse_same_name(self, one: _Staged) -> None:
        """File systems may take two names for one: then the second file would replace the first."""
        for other in self._staged:
            if other.is_there and one.place.exists() and os.path.samefile(one.place, other.place):
                raise WriteError(f"{one.target}: expected a name of its own, got that of {other.target}. Rename one.")

    def _put_back(self) -> None:
        for one in reversed(self._staged):
            _remove(one.temporary)
            _restore(one)
        for folder in reversed(self._folders):
            with suppress(OSError):
                folder.rmdir()


def write(target: Path, content: bytes) -> None:
    """Write one file, or leave the earlier one as it was."""
    with FileSet() as files, files.open(target) as stream:
        stream.write(content)


def place_of(target: Path) -> Path:
    """Where a file goes, behind links; nothing is written.

    Raises:
        MissingFileError: its folder does not exist.
        WriteError: something else than a file is there, or the file is write-protected.
    """
    place = Path(os.path.realpath(target))
    with _named(target):
        try:
            mode = place.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            if not place.parent.is_dir():
                raise MissingFileError(f"{target.parent}: no such folder for the output. Make it first.") from None
            if not os.access(place.parent, os.W_OK):
                raise WriteError(
                    f"{target}: cannot be written (its folder is write-protected). Choose another place."
                ) from None
            return place
    if stat.S_ISDIR(mode):
        raise WriteError(f"{target}: expected a place for a file, got a folder. Move it, or choose another place.")
    if not stat.S_ISREG(mode):
        raise WriteError(f"{target}: expected a place for a file, got a device or pipe. Choose another place.")
    if not os.access(place, os.W_OK):
        raise WriteError(f"{target}: cannot be written (the file is write-protected). Choose another place.")
    return place


def is_same(one: Path, other: Path) -> bool:
    """Whether two paths, however they are spelled, are one file; a hard link is the same file."""
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return os.path.abspath(one) == os.path.abspath(other)


def is_any(one: Path, others: Iterable[Path]) -> bool:
    """Whether a path is one of these files."""
    return any(is_same(one, other) for other in others)


def _beside(place: Path, token: str, ending: str) -> Path:
    return place.with_name(f".unpool-{token}.{ending}")


def _take_mode(one: _Staged) -> None:
    """Give the new file owner and mode of the one that it replaces, as far as the system lets us."""
    with suppress(FileNotFoundError):
        old, new = one.place.stat(), one.temporary.stat()
        with suppress(PermissionError, NotImplementedError):
            if hasattr(os, "chown") and (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
                os.chown(one.temporary, old.st_uid, old.st_gid)
            if stat.S_IMODE(old.st_mode) != stat.S_IMODE(new.st_mode):
                os.chmod(one.temporary, stat.S_IMODE(old.st_mode))


def _keep(one: _Staged) -> None:
    """Give the earlier file a second name; where there are no hard links, another name."""
    if not one.place.exists():
        return
    place_of(one.target)
    try:
        os.link(one.place, one.kept)
    except (OSError, NotImplementedError):
        os.replace(one.place, one.kept)


def _restore(one: _Staged) -> None:
    try:
        if one.kept.exists():
            os.replace(one.kept, one.place)
            _remove(one.kept)  # a second name of the same file is not renamed away
        elif one.is_there:
            one.place.unlink(missing_ok=True)
    except OSError as error:
        _log.warning("%s: could not be put back (%s); its earlier content is in %s", one.target, error, one.kept)


def _remove(path: Path) -> None:
    reason: OSError | None = None
    for _ in range(ATTEMPTS):
        try:
            path.unlink()
        except OSError as error:
            reason = error
        if not os.path.lexists(path):
            return
    _log.warning("%s: is of no use any more and could not be removed (%s). Remove it.", path, reason)


def _sync_folder(folder: Path) -> None:
    """Make the new names last; not every system can open a folder."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return
    try:
        _sync(descriptor)
    finally:
        os.close(descriptor)


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise


@contextmanager
def _named(target: Path) -> Iterator[None]:
    """Errors of the system as ours, with the place that the caller knows."""
    try:
        yield
    except UnpoolError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise WriteError(
            f"{target}: cannot be written ({reason}); earlier files are as they were. "
            "Make room or allow it, or choose another place."
        ) from error


@contextmanager
def _later() -> Iterator[None]:
    """Put Ctrl-C and the wish to end off until the block is over; only the main thread ever gets them."""
    signals = [one for one in (signal.SIGINT, signal.SIGTERM) if callable(signal.getsignal(one))]
    if threading.current_thread() is not threading.main_thread() or not signals:
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    earlier = {one: signal.signal(one, lambda number, frame: came.append((number, frame))) for one in signals}
    try:
        yield
    finally:
        for one, handler in earlier.items():
            signal.signal(one, handler)
    for number, frame in came:
        handler = earlier[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)
