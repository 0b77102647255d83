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


def is_same(one: Path, other: Path) -> bool:
    """Whether two paths, however they are spelled, are one file; a hard link is the same file."""
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return os.path.abspath(one) == os.path.abspath(other)


def is_any(one: Path, others: Iterable[Path]) -> bool:
    """Whether a path is one of these files."""
    return any(is_same(one, other) for other in others)


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
