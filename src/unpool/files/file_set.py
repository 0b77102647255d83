"""Files that appear together or not at all: written under temporary names, then renamed; rolled back on a fault.

    open a target    .NAME.lock in the same folder keeps other processes from writing it, until the set is closed;
                     .unpool-<token>.part there gets the mode of the file that it replaces
    close a target   flushed and synced to the disk
    close the set    earlier files backed up as .unpool-<token>.kept (a hard link if possible), all targets renamed,
                     folders synced; then the backups are removed, or restored on a fault

The target of a link is replaced there, and the link stays. After a power cut or SIGKILL a file with one of these two
names can be left; even then each target has all of its old or all of its new content, except that without hard links
the old content may only have the backup's name.
"""

import logging
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from unpool.errors import MissingFileError
from unpool.files.locks import FileLocks
from unpool.files.targets import (
    IS_WINDOWS,
    WriteError,
    copy_mode,
    defer_signals,
    file_id,
    is_same,
    remove,
    replace,
    resolve_target,
    sync,
    sync_folder,
    temporary_path,
    write_errors,
)

_log = logging.getLogger("unpool.files")


class FileSet:
    """The files of one command, as a context manager: they appear when it ends without an exception.

    `locks` are released when the set is closed. A process that ends inside of the block calls `roll_back`.
    """

    def __init__(self) -> None:
        self._staged: list[StagedFile] = []
        self._folders: list[Path] = []
        self.locks = FileLocks()  # keep other processes from writing files that will be opened
        self.roll_back = weakref.finalize(
            self, _roll_back, os.getpid(), self._staged, self._folders, self.locks
        )  # also at the end of the process, in case the first line of __exit__ is interrupted

    def __enter__(self) -> "FileSet":
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        with defer_signals():
            try:
                if kind is None and self._staged:
                    self._commit()
                    self.roll_back.detach()
            finally:
                self.roll_back()
                self.locks.release()

    def make_folder(self, folder: Path) -> None:
        """Make a folder, not its parents, unless it exists; it is removed if no files appear."""
        with defer_signals(), write_errors(folder):
            if not folder.parent.is_dir():
                raise MissingFileError(f"{folder.parent}: no such folder for the output. Create it first.")
            with suppress(FileExistsError):  # made by another process at the same time
                if not folder.is_dir():
                    folder.mkdir()
                    self._folders.append(folder)
            if not folder.is_dir():
                raise WriteError(f"{folder}: expected a folder for the outputs, got a file. Choose another path.")

    @contextmanager
    def open(self, target: Path) -> Iterator[BinaryIO]:
        """A stream to write and read the future content of `target`; closed at the end of the block."""
        place = resolve_target(target)
        staged = StagedFile(target, place, temporary_path(place, "part"), temporary_path(place, "kept"))
        self.locks.take([target])
        self._staged.append(staged)
        try:
            with write_errors(target), staged.temporary.open("x+b") as stream:
                copy_mode(staged.place, staged.temporary)
                yield stream
                stream.flush()
                sync(stream.fileno())
        except BaseException:
            remove(staged.temporary)
            self._staged.remove(staged)
            raise

    def _commit(self) -> None:
        written: set[tuple[int, int]] = set()
        for staged in self._staged:
            with write_errors(staged.target):
                if staged.place.exists() and file_id(staged.place) in written:
                    raise WriteError(f"{staged.target}: is the same file as another output. Rename one of them.")
                _back_up(staged)
                replace(staged.temporary, staged.place)
                staged.is_placed = True
                written.add(file_id(staged.place))
        for folder, target in {staged.place.parent: staged.target for staged in self._staged}.items():
            with write_errors(target):
                sync_folder(folder)
        for staged in self._staged:
            remove(staged.backup)


@dataclass
class StagedFile:
    """A file that will appear: the caller's path, the path with links resolved, and the two temporary names."""

    target: Path
    place: Path
    temporary: Path
    backup: Path
    is_placed: bool = False


def _back_up(staged: StagedFile) -> None:
    """Link the earlier file as its backup; rename it on file systems without hard links."""
    if not staged.place.exists():
        return
    resolve_target(staged.target)
    if IS_WINDOWS:
        replace(staged.place, staged.place)  # an error while a program has it open, before there is a backup
    try:
        os.link(staged.place, staged.backup)
    except (OSError, NotImplementedError):
        replace(staged.place, staged.backup)


def _restore(staged: StagedFile) -> None:
    """Rename the backup to the target, or remove the target if there was no earlier file."""
    try:
        if staged.backup.exists():
            if not is_same(staged.backup, staged.place):
                replace(staged.backup, staged.place)
            remove(staged.backup)  # a hard link to the same file
        elif staged.is_placed:
            staged.place.unlink(missing_ok=True)
    except OSError as error:
        text = "%s: could not be restored (%s); its earlier content is in %s"
        _log.warning(text, staged.target, error, staged.backup)


def _roll_back(owner: int, staged: list[StagedFile], folders: list[Path], locks: FileLocks) -> None:
    """Remove temporary files, and restore all targets and folders; not in a forked process, which owns no files."""
    if os.getpid() != owner:
        return
    for each in reversed(staged):
        remove(each.temporary)
        _restore(each)
    locks.release()
    for folder in reversed(folders):
        with suppress(OSError):
            folder.rmdir()


def write(target: Path, content: bytes) -> None:
    """Write one file; on a fault the earlier one keeps its content."""
    with FileSet() as files, files.open(target) as stream:
        stream.write(content)
