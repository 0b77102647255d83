"""The state of a run on disk: the journal of an unfinished one, the marker of a complete one, and the way to resume.

`NAME.part/journal` has one line per finished part, appended after the data of that part are on disk:

    {"unpool journal": 2, "digest": "...", "settings": {...}}     the model, the inputs, the tiles, and their digest
    {"tile": 0, "content": "..."}                                 finished, and the fingerprint of its data

An incomplete last line is ignored. Any other content is refused. `.NAME.done` next to complete outputs holds the same
settings, with the size and the modification time of each output; it is ignored once an output has changed.
"""

import json
import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from unpool.errors import FileError, UnpoolError
from unpool.files import replace, resolve_link, sync, sync_folder, write, write_errors
from unpool.images.checks import parse_json, read_regular
from unpool.images.source import fingerprint_folder

Settings: TypeAlias = Mapping[str, Any]

VERSION = 2
JOURNAL_KEY = "unpool journal"
MARKER_KEY = "unpool record"
JOURNAL = "journal"
PARTIAL_SUFFIX = ".part"

MAX_JOURNAL_BYTES = 1 << 30  # a line has about 70 bytes
MAX_MARKER_BYTES = 1 << 26
MAX_DEPTH = 8  # nesting of settings
MAX_DENOMINATOR = 65535  # of a fraction in a message, such as 1/255
OPTIONS = {name: f"--{name}" for name in ("tile", "argmax", "softmax", "threshold", "layout")} | {
    "blend roi_size": "--tile",
    "blend mode": "--blend",
    "blend overlap": "--overlap",
}
"""Options of the command by the names that they have in the settings."""

_log = logging.getLogger("unpool.streams")


@dataclass(frozen=True)
class Checkpoint:
    """The settings of an earlier run into the same outputs; `is_complete` where it has written all of them."""

    settings: Settings
    is_complete: bool


def partial_folder(targets: Mapping[str, Path]) -> Path:
    """The folder of the outputs until they are complete, named after the first of them, with links resolved."""
    first = resolve_link(next(iter(targets.values())))
    return first.with_name(first.name + PARTIAL_SUFFIX)


def done_marker(target: Path) -> Path:
    """The path of the marker next to a complete output, with links resolved."""
    file = resolve_link(target)
    return file.with_name(f".{file.name}.done")


def find_checkpoint(targets: Mapping[str, Path], *, resume: bool) -> Checkpoint | None:
    """The earlier run into the same outputs; None without one, or where a complete one is not to be resumed."""
    folder = partial_folder(targets)
    if not os.path.lexists(folder / JOURNAL):
        settings = read_done_marker(targets) if resume else None
        return None if settings is None else Checkpoint(settings, True)
    if not resume:
        raise UnpoolError(f"{folder} is left from an interrupted run. Add --resume, or delete it to start over.")
    journal = Journal(folder / JOURNAL)
    journal.close()
    return Checkpoint(journal.settings, False)


def require_same_settings(checkpoint: Checkpoint, settings: Settings, target: object, data: object) -> None:
    """Refuse to resume an earlier run into `target` with other settings; the message names the first one.

    `data` is the place of an unfinished run, to be deleted for another one.
    """
    old, new = _flatten(checkpoint.settings), _flatten(settings)
    differing = [
        name for name in dict.fromkeys([*new, *old]) if (name in old, old.get(name)) != (name in new, new.get(name))
    ]
    if not differing:
        return
    name = "blend mode" if ("blend mode" in old) != ("blend mode" in new) else differing[0]
    run = "the earlier run" if checkpoint.is_complete else "the interrupted run"
    advice = "leave out --resume" if checkpoint.is_complete else f"delete {data} to start over"
    difference = _describe_difference(name, old.get(name), new.get(name))
    raise UnpoolError(f"{target}: {run} {difference}, or {advice}.")


class Journal:
    """The finished parts of a run, and their fingerprints, in a file that `create_journal` has written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            content = read_regular(path, MAX_JOURNAL_BYTES)
            self.settings, self.finished = parse_journal(content)
        except (ValueError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            text = f"{path}: is not a journal that this version reads ({reason})."
            raise FileError(f"{text} Delete {path.parent} to start over.") from error
        with write_errors(path):
            self._file: BinaryIO = path.open("r+b")
        self._file.seek(content.rfind(b"\n") + 1)
        self._file.truncate()

    def add(self, part: int, fingerprint: str) -> None:
        """Append the line of a part whose data are on disk."""
        self._file.write(json.dumps({"tile": part, "content": fingerprint}).encode() + b"\n")
        self._file.flush()
        sync(self._file.fileno())
        self.finished[part] = fingerprint

    def is_in_place(self) -> bool:
        """True if the path still names this file, which may have been deleted, and another run begun there."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), os.lstat(self._path))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def create_journal(path: Path, settings: Settings) -> None:
    """Write the journal of a run without finished parts; it appears complete or not at all."""
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as file:
        file.write(_head_line(JOURNAL_KEY, settings))
        file.flush()
        sync(file.fileno())
    replace(fresh, path)
    sync_folder(path.parent)


def parse_journal(content: bytes) -> tuple[Settings, dict[int, str]]:
    """The settings of a run, and the last fingerprint of each finished part; a ValueError for any other content."""
    head, *lines = content.split(b"\n")[:-1] or [b""]
    fields = parse_json(head)
    if not isinstance(fields, dict) or fields.get(JOURNAL_KEY) != VERSION:
        raise ValueError(f"its first line is not that of version {VERSION}")
    settings = _valid_settings(fields)
    finished: dict[int, str] = {}
    for number, line in enumerate(lines, start=2):
        entry = parse_json(line)
        part, fingerprint = (entry.get("tile"), entry.get("content")) if isinstance(entry, dict) else (None, None)
        if type(part) is not int or not isinstance(fingerprint, str):
            raise ValueError(f"line {number} is not about a tile")
        finished[part] = fingerprint
    return settings, finished


def write_done_marker(targets: Mapping[str, Path], settings: Settings) -> None:
    """Mark outputs as complete, next to the first of them."""
    stamps = {name: _stamp(path) for name, path in targets.items()}
    write(done_marker(next(iter(targets.values()))), _head_line(MARKER_KEY, settings, outputs=stamps))


def read_done_marker(targets: Mapping[str, Path]) -> Settings | None:
    """The settings of outputs that are complete and unchanged, else None."""
    path = done_marker(next(iter(targets.values())))
    if not os.path.lexists(path):
        return None
    try:
        fields = parse_json(read_regular(path, MAX_MARKER_BYTES))
        stamps = fields.get("outputs") if isinstance(fields, dict) else None
        if not isinstance(stamps, dict) or fields.get(MARKER_KEY) != VERSION:
            raise ValueError(f"it is not of version {VERSION}")
        settings = _valid_settings(fields)
        is_unchanged = stamps == {name: _stamp(output) for name, output in targets.items()}
    except (OSError, ValueError) as error:
        _log.info("%s: is not a record of a run (%s); the output is computed again", path, error)
        return None
    return settings if is_unchanged else None


def settings_digest(settings: Settings) -> str:
    """A digest that is equal for equal settings."""
    return blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16).hexdigest()


def _valid_settings(fields: Mapping[str, Any]) -> Settings:
    """The settings of a journal or a marker; a ValueError where they are not those that were written."""
    settings = fields.get("settings")
    if not isinstance(settings, dict) or not _is_plain(settings, MAX_DEPTH):
        raise ValueError("it has no settings")
    if fields.get("digest") != settings_digest(settings):
        raise ValueError("its settings have another digest")
    return settings


def _is_plain(value: object, depth: int) -> bool:
    """True for a value of JSON that is finite, and nested `depth` times at most."""
    if isinstance(value, dict | list):
        items = value.values() if isinstance(value, dict) else value
        return depth > 0 and all(_is_plain(item, depth - 1) for item in items)
    return not isinstance(value, float) or math.isfinite(value)


def _describe_difference(name: str, old: Any, new: Any) -> str:
    """A clause about a setting that an earlier run had, and the way to use the same.

    >>> _describe_difference("tile", [1024, 1024], [512, 512]), _describe_difference("argmax", False, True)
    ('used --tile 1024x1024. Use that', 'used no --argmax. Leave it out')
    >>> _describe_difference("options x scale", 1 / 255, 0.5), _describe_difference("shapes", [[9, 8]], [[3, 2]])
    ('used --scale 1/255. Use that', 'read another --level. Use that')
    >>> _describe_difference("inputs x", "f3", "a0")
    "read another input 'x'. Give that one"
    """
    is_pixels = name.startswith("options ")
    if name in OPTIONS or is_pixels:
        option = f"--{name.split()[-1]}" if is_pixels else OPTIONS[name]
        if old is None or old is False:
            return f"used no {option}. Leave it out"
        texts = [_typed(value) for value in (old if isinstance(old, list) else [old])]
        text = ("," if is_pixels else "x").join(texts)
        return f"used {option if old is True else f'{option} {text}'}. Use that"
    if name == "shapes":  # of equal inputs
        return "read another --level. Use that"
    if name.startswith("inputs "):
        return f"read another input {name.removeprefix('inputs ')!r}. Give that one"
    if name == "model":
        return "used another model. Use that one"
    return f"had {name} {old}, this one has {new}. Use that"


def _typed(value: Any) -> str:
    """A value of an option as people type it: numbers as short decimals or fractions, words in small letters."""
    if not isinstance(value, float) or float(short := f"{value:g}") == value:
        return short if isinstance(value, float) else str(value).lower()
    fraction = Fraction(value).limit_denominator(MAX_DENOMINATOR)
    return str(fraction) if float(fraction) == value else repr(value)


def _flatten(settings: Settings, prefix: str = "") -> dict[str, Any]:
    """Nested settings by their names, joined with a space."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= _flatten(value, f"{prefix}{name} ") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def _stamp(path: Path) -> str:
    if path.is_dir():
        return fingerprint_folder(path)
    status = os.stat(path)
    return f"{status.st_size} {status.st_mtime_ns}"


def _head_line(key: str, settings: Settings, **words: Any) -> bytes:
    content = {key: VERSION, "digest": settings_digest(settings), "settings": settings, **words}
    return json.dumps(content).encode() + b"\n"
