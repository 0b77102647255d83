"""Which tiles of a run are finished, in a file that is right after any end: each line is added behind its tile's data.

    {"unpool journal": 2, "digest": "...", "settings": {...}}     the model, the inputs, the tiles, and their digest
    {"tile": 0, "content": "..."}                                 finished, and a digest of what was written

A line that was cut short by the end of the process does not count. Any other content than this is refused.
"""

import json
import math
import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from unpool.errors import FileError
from unpool.files import sync, sync_folder, write_errors
from unpool.images.checks import parse_json, read_regular

Settings: TypeAlias = Mapping[str, Any]

VERSION = 2
HEAD = "unpool journal"
LARGEST = 1 << 30
"""Bytes of a journal at most; a line has about 70."""

DEEPEST = 8
"""Settings in settings at most."""


class Journal:
    """The finished tiles of a run.

    Args:
        path: of the file, which `begin` has made.

    Raises:
        FileError: it is no journal, or that of another version.
        WriteError: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            content = read_regular(path, LARGEST)
            self.settings, self.finished = parse_journal(content)
        except (ValueError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise FileError(
                f"{path}: is not a journal that this version reads ({reason}). Delete {path.parent} to start over."
            ) from error
        with write_errors(path):
            self._file: BinaryIO = path.open("r+b")
        self._file.seek(content.rfind(b"\n") + 1)
        self._file.truncate()

    def add(self, tile: int, content: str) -> None:
        """Note that a tile is on the disk."""
        self._file.write(_line({"tile": tile, "content": content}))
        self._file.flush()
        sync(self._file.fileno())
        self.finished[tile] = content

    def is_in_place(self) -> bool:
        """Whether the path still names the file that is written: another run may have deleted it and begun anew."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), os.lstat(self._path))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def parse_journal(content: bytes) -> tuple[Settings, dict[int, str]]:
    """The settings of a run, and the digest of each tile that is finished; of a tile that was run again, the last one.

    Raises:
        ValueError: it is anything else than a journal.
    """
    head, *lines = content.split(b"\n")[:-1] or [b""]
    found = parse_json(head)
    if not isinstance(found, dict) or found.get(HEAD) != VERSION:
        raise ValueError(f"its first line is not that of version {VERSION}")
    settings = require_settings(found)
    finished: dict[int, str] = {}
    for number, line in enumerate(lines, start=2):
        entry = parse_json(line)
        tile, digest = (entry.get("tile"), entry.get("content")) if isinstance(entry, dict) else (None, None)
        if type(tile) is not int or not isinstance(digest, str):
            raise ValueError(f"line {number} is not about a tile")
        finished[tile] = digest
    return settings, finished


def require_settings(found: Mapping[str, Any]) -> Settings:
    """The settings in the first line of a journal, or in a record.

    Raises:
        ValueError: they are not settings, or not those that were written.
    """
    settings = found.get("settings")
    if not isinstance(settings, dict) or not _is_plain(settings, DEEPEST):
        raise ValueError("it has no settings")
    if found.get("digest") != settings_digest(settings):
        raise ValueError("its settings have another digest")
    return settings


def settings_digest(settings: Settings) -> str:
    """Equal for equal settings."""
    return blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16).hexdigest()


def begin(path: Path, settings: Settings) -> None:
    """Make the journal of a run that has finished nothing; it is there when all of it is."""
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as file:
        file.write(_line({HEAD: VERSION, "digest": settings_digest(settings), "settings": settings}))
        file.flush()
        sync(file.fileno())
    os.replace(fresh, path)
    sync_folder(path.parent)


def _is_plain(value: object, depth: int) -> bool:
    """Whether a value is of JSON's types, finite, and not nested deeper than this."""
    if isinstance(value, dict):
        return depth > 0 and all(isinstance(name, str) and _is_plain(one, depth - 1) for name, one in value.items())
    if isinstance(value, list):
        return depth > 0 and all(_is_plain(one, depth - 1) for one in value)
    return value is None or isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value))


def _line(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content).encode() + b"\n"
