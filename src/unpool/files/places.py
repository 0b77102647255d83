"""Where a file goes, whether it may go there, and what is said when it cannot."""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from unpool.errors import FileError, MissingFileError, UnpoolError


class WriteError(FileError):
    """A file cannot be written; every earlier file is as it was."""


def place_of(target: Path) -> Path:
    """Where a file goes, behind links; nothing is written.

    Raises:
        MissingFileError: its folder does not exist.
        WriteError: something else than a file is there, or the file is write-protected.
    """
    place = Path(os.path.realpath(target))
    with named(target):
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


def behind_link(target: Path) -> Path:
    """The path itself, or where it leads if it is a link.

    >>> behind_link(Path("masks/y.npy")).as_posix()
    'masks/y.npy'
    """
    return Path(os.path.realpath(target)) if target.is_symlink() else target


def is_same(one: Path, other: Path) -> bool:
    """Whether two paths, however they are spelled, are one file; a hard link is the same file."""
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return os.path.abspath(one) == os.path.abspath(other)


def is_any(one: Path, others: Iterable[Path]) -> bool:
    """Whether a path is one of these files."""
    return any(is_same(one, other) for other in others)


def overlapping(places: Iterable[Path], sources: Iterable[Path]) -> Path | None:
    """The first place, behind all links, that is a source, lies in one, or contains one; None if they are apart.

    >>> overlapping([Path("b.zarr"), Path("a.zarr/0/c.npy")], [Path("a.zarr")]).name
    'c.npy'
    """
    inner = {Path(os.path.realpath(source)) for source in sources}
    outer = {parent for source in inner for parent in source.parents}
    numbers = {_number(source) for source in inner} - {None}
    known: dict[Path, bool] = {}
    for place in places:
        found = Path(os.path.realpath(place))
        for path in (found, *found.parents):
            if path not in known:
                known[path] = path in inner or _number(path) in numbers
        if found in outer or any(known[path] for path in (found, *found.parents)):
            return place
    return None


def _number(path: Path) -> tuple[int, int] | None:
    """What all names of one file or folder have in common, if it exists."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


@contextmanager
def named(target: Path) -> Iterator[None]:
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
