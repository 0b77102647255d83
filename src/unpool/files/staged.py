"""One file on its way: its names until then, what it takes over, and how it comes back."""

import errno
import logging
import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from unpool.files.places import place_of

NO_SYNC = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)  # file systems without it, some of them over a network
ATTEMPTS = 2

_log = logging.getLogger("unpool.files")


@dataclass
class Staged:
    """A file on its way: what the caller called it, where it really goes, and what is in its place until then."""

    target: Path
    place: Path
    temporary: Path
    kept: Path
    is_there: bool = False


def stage(target: Path, temporary: Path | None = None) -> Staged:
    """A file on its way to `target`; `temporary`: where it is now, if it is there already."""
    place = place_of(target)
    return Staged(target, place, temporary or beside(place, "part"), beside(place, "kept"))


def beside(place: Path, ending: str) -> Path:
    """A name that nobody else has, in the folder of a place; it does not grow with the name of the place."""
    return place.with_name(f".unpool-{secrets.token_hex(8)}.{ending}")


def identity(path: Path) -> tuple[int, int]:
    """What two names of one file have in common: file systems may take two names for one."""
    status = path.stat()
    return status.st_dev, status.st_ino


def take_mode(place: Path, path: Path) -> None:
    """Give a new file or folder owner and mode of the one that it replaces, as far as the system lets us.

    Args:
        place: what is replaced, if it exists.
        path: what replaces it.
    """
    with suppress(FileNotFoundError):
        old, new = place.stat(), path.stat()
        with suppress(PermissionError, NotImplementedError):
            if hasattr(os, "chown") and (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
                os.chown(path, old.st_uid, old.st_gid)
            if stat.S_IMODE(old.st_mode) != stat.S_IMODE(new.st_mode):
                os.chmod(path, stat.S_IMODE(old.st_mode))


def keep(one: Staged) -> None:
    """Give the earlier file a second name; where there are no hard links, another name."""
    if not one.place.exists():
        return
    place_of(one.target)
    try:
        os.link(one.place, one.kept)
    except (OSError, NotImplementedError):
        os.replace(one.place, one.kept)


def restore(one: Staged) -> None:
    """Put the earlier file back, or take the new one away where there was none."""
    try:
        if one.kept.exists():
            os.replace(one.kept, one.place)
            remove(one.kept)  # a second name of the same file is not renamed away
        elif one.is_there:
            one.place.unlink(missing_ok=True)
    except OSError as error:
        _log.warning("%s: could not be put back (%s); its earlier content is in %s", one.target, error, one.kept)


def remove(path: Path) -> None:
    """Remove a temporary file; one that stays is named in the log."""
    reason: OSError | None = None
    for _ in range(ATTEMPTS):
        try:
            path.unlink()
        except OSError as error:
            reason = error
        if not os.path.lexists(path):
            return
    _log.warning("%s: is of no use any more and could not be removed (%s). Remove it.", path, reason)


def sync_folder(folder: Path) -> None:
    """Make the new names last; not every system can open a folder."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def sync(descriptor: int) -> None:
    """Wait until the content is on the disk."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise
