"""What a complete output was made of: `.NAME.done` beside it, so that nobody makes it twice.

The record counts as long as the outputs are those of which it tells: their sizes and the times of their last change.
"""

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from unpool.files import resolve_link, write
from unpool.images.checks import parse_json, read_regular
from unpool.images.fingerprint import fingerprint_folder
from unpool.runtime.streams.journal import Settings, require_settings, settings_digest

VERSION = 2
HEAD = "unpool record"
LARGEST = 1 << 26
"""Bytes of a record at most."""

_log = logging.getLogger("unpool.streams")


def record_of(target: Path) -> Path:
    """Where the record of an output is: beside the file, for a link beside the file behind it.

    >>> record_of(Path("masks/a.zarr")).name
    '.a.zarr.done'
    """
    place = resolve_link(target)
    return place.with_name(f".{place.name}.done")


def write_record(targets: Mapping[str, Path], settings: Settings) -> None:
    """Note that outputs are complete; the record is beside the first of them."""
    stamps = {name: _stamp(path) for name, path in targets.items()}
    content = {HEAD: VERSION, "digest": settings_digest(settings), "settings": settings, "outputs": stamps}
    write(record_of(next(iter(targets.values()))), json.dumps(content).encode() + b"\n")


def complete_settings(targets: Mapping[str, Path]) -> Settings | None:
    """What outputs were made of, if they are complete and have not been changed; None where that is not known."""
    place = record_of(next(iter(targets.values())))
    if not os.path.lexists(place):
        return None
    try:
        settings, stamps = parse_record(read_regular(place, LARGEST))
        is_same = stamps == {name: _stamp(path) for name, path in targets.items()}
    except (OSError, ValueError) as error:
        _log.info("%s: is not a record of a run (%s); the output is computed again", place, error)
        return None
    return settings if is_same else None


def parse_record(content: bytes) -> tuple[Settings, dict[str, str]]:
    """The settings of a run, and by output a stamp of its file.

    Raises:
        ValueError: it is anything else than a record.
    """
    found = parse_json(content)
    if not isinstance(found, dict) or found.get(HEAD) != VERSION or not isinstance(found.get("outputs"), dict):
        raise ValueError(f"it is not of version {VERSION}")
    return require_settings(found), found["outputs"]


def _stamp(path: Path) -> str:
    if path.is_dir():
        return fingerprint_folder(path)
    status = os.stat(path)
    return f"{status.st_size} {status.st_mtime_ns}"
