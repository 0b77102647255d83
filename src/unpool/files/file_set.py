"""Files that appear together or not at all: complete under temporary names first, then renamed; on a fault put back.

Every command and every record that unpool writes goes through here.

    open a target    .NAME.lock in the same folder keeps other processes from writing it, until the set is left;
                     .unpool-<token>.part there gets the mode of the file that it replaces
    leave the block  flushed and synced to the disk
    leave the set    earlier files kept under .unpool-<token>.kept (a hard link where there are any),
                     all renamed, folders synced; then the kept ones go, or on a fault come back

A file behind a link is replaced there, the link stays. What ends a process at once (a power cut, SIGKILL) can leave a
file of these two names; each target holds all of its old or all of its new content even then, except that without hard
links the old content may stand under the second name only.
"""

import os
import shutil
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from unpool.errors import MissingFileError
from unpool.files.locks import FileLocks
from unpool.files.places import WriteError, named, place_of
from unpool.files.signals import uninterrupted
from unpool.files.staged import Staged, beside, identity, keep, remove, restore, stage, sync, sync_folder, take_mode


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
        self._staged: list[Staged] = []
        self._folders: list[Path] = []
        self._scratch: list[Path] = []
        self._locks = FileLocks()
        self._put_back = weakref.finalize(
            self, _put_back, os.getpid(), self._staged, self._folders, self._scratch, self._locks
        )  # also at the end of the process, for what interrupts the first line of __exit__

    def __enter__(self) -> "FileSet":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with uninterrupted():
            try:
                if kind is None and self._staged:
                    self._appear()
                    self._put_back.detach()
            finally:
                self._put_back()
                self._locks.release()

    def lock(self, targets: Iterable[Path]) -> None:
        """Keep other processes from writing files that will be opened, until the set is left.

        Raises:
            MissingFileError: a folder does not exist.
            WriteError: another process writes one of them.
        """
        self._locks.take(targets)

    @contextmanager
    def hold(self, targets: Iterable[Path]) -> Iterator[None]:
        """Keep other processes from writing files during the block, unless `lock` does so already.

        Raises:
            MissingFileError: a folder does not exist.
            WriteError: another process writes one of them.
        """
        with self._locks.hold(targets):
            yield

    def undo(self) -> None:
        """Leave everything as it was, at once: for a process that ends without leaving the block."""
        self._put_back()

    def make_folder(self, folder: Path) -> None:
        """Make a folder, not its parents, unless it is there; it goes again when no files appear."""
        with uninterrupted(), named(folder):
            if not folder.parent.is_dir():
                raise MissingFileError(f"{folder.parent}: no such folder for the output. Make it first.")
            with suppress(FileExistsError):  # made by another process at the same time
                if not folder.is_dir():
                    folder.mkdir()
                    self._folders.append(folder)
            if not folder.is_dir():
                raise WriteError(f"{folder}: expected a folder for the outputs, got a file. Choose another place.")

    @contextmanager
    def open(self, target: Path) -> Iterator[BinaryIO]:
        """A stream, to be written and read, for the file that will be `target`; closed at the end of the block.

        Raises:
            MissingFileError: its folder does not exist.
            WriteError: it cannot be written there, or another process is writing it.
        """
        one = stage(target)
        self._locks.take([target])
        self._staged.append(one)
        try:
            with named(target), one.temporary.open("x+b") as stream:
                take_mode(one.place, one.temporary)
                yield stream
                stream.flush()
                sync(stream.fileno())
        except BaseException:
            remove(one.temporary)
            self._staged.remove(one)
            raise

    @contextmanager
    def gather(self, folder: Path, last: str) -> Iterator[Path]:
        """A temporary folder for writers that name their files themselves; they go into `folder` when the set appears.

        Args:
            folder: where the files go.
            last: the name of the file that points to the others, which appears after them.
        """
        place_of(folder / last)
        self._locks.take([folder / last])
        scratch = beside(folder / last, "parts")
        with named(folder / last):
            self._scratch.append(scratch)
            scratch.mkdir()
            yield scratch
            for path in sorted(scratch.iterdir(), key=lambda path: (path.name == last, path.name)):
                one = stage(folder / path.name, path)
                self._staged.append(one)
                take_mode(one.place, one.temporary)
                with path.open("r+b") as stream:
                    sync(stream.fileno())

    def _appear(self) -> None:
        there: set[tuple[int, int]] = set()
        for one in self._staged:
            with named(one.target):
                if one.place.exists() and identity(one.place) in there:
                    raise WriteError(f"{one.target}: expected a name of its own, got that of another one. Rename it.")
                keep(one)
                os.replace(one.temporary, one.place)
                one.is_there = True
                there.add(identity(one.place))
        for folder, target in {one.place.parent: one.target for one in self._staged}.items():
            with named(target):
                sync_folder(folder)
        for one in self._staged:
            remove(one.kept)
        _clear(self._scratch)


def _put_back(owner: int, staged: list[Staged], folders: list[Path], scratch: list[Path], locks: FileLocks) -> None:
    """Leave everything as it was; a process that is forked off owns no files."""
    if os.getpid() != owner:
        return
    for one in reversed(staged):
        remove(one.temporary)
        restore(one)
    _clear(scratch)
    locks.release()
    for folder in reversed(folders):
        with suppress(OSError):
            folder.rmdir()


def _clear(scratch: list[Path]) -> None:
    for folder in scratch:
        shutil.rmtree(folder, ignore_errors=True)


def write(target: Path, content: bytes) -> None:
    """Write one file, or leave the earlier one as it was."""
    with FileSet() as files, files.open(target) as stream:
        stream.write(content)
