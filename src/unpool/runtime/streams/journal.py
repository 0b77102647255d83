"""Which tiles of a run are finished, in a file that is right after any end: each line is added behind its tile's data.

    {"settings": {...}}                 what was run: the model, the inputs, the tiles
    {"tile": 0, "content": "..."}       finished, and a digest of what was written

A line that was cut short by the end of the process does not count.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from unpool.errors import FileError
from unpool.files import sync, sync_folder

Settings: TypeAlias = Mapping[str, Any]


class Journal:
    """The finished tiles; one process at a time has it open.

    Args:
        path: of the file, which `begin` has made.

    Raises:
        FileError: another process has it open, or it is no journal.
    """

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("r+b")
        _lock(self._file, path)
        lines = self._file.read().split(b"\n")
        self._file.seek(sum(len(line) + 1 for line in lines[:-1]))
        self._file.truncate()
        try:
            head, *rest = map(json.loads, lines[:-1])
            self.settings: Settings = head["settings"]
            self.finished: dict[int, str] = {int(line["tile"]): str(line["content"]) for line in rest}
            if not is_settings(self.settings):
                raise TypeError("no settings")
        except (ValueError, KeyError, TypeError) as error:
            self.close()
            raise FileError(
                f"{path}: expected the journal of a run, could not read it. Remove {path.parent} to begin anew."
            ) from error

    def add(self, tile: int, content: str) -> None:
        """Note that a tile is on the disk."""
        self._file.write(_line({"tile": tile, "content": content}))
        self._file.flush()
        sync(self._file.fileno())
        self.finished[tile] = content

    def close(self) -> None:
        """Let others open it, also while a process that was forked meanwhile still has the file."""
        _unlock(self._file)
        self._file.close()


def is_settings(found: object) -> bool:
    """Whether what was read can be the settings of a run."""
    return isinstance(found, dict) and all(isinstance(name, str) for name in found)


def begin(path: Path, settings: Settings) -> None:
    """Make the journal of a run that has finished nothing; it is there when all of it is."""
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as file:
        file.write(_line({"settings": settings}))
        file.flush()
        sync(file.fileno())
    os.replace(fresh, path)
    sync_folder(path.parent)


def _line(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content).encode() + b"\n"


def _lock(file: BinaryIO, path: Path) -> None:
    """Keep other processes away until the file is closed; where the system has no such locks, nothing."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise FileError(
            f"{path.parent}: expected a run that has ended, another process goes on with it. Wait."
        ) from error


def _unlock(file: BinaryIO) -> None:
    """Give the lock back; a copy of the file in another process would keep it beyond the end of this one."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        return
    if not file.closed:
        fcntl.flock(file, fcntl.LOCK_UN)
