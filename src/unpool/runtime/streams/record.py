"""What a complete output was made of: `.NAME.done` beside it, so that nobody makes it twice.

The record counts as long as the outputs are those of which it tells: their sizes and the times of their last change.
"""

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from unpool.files import write
from unpool.runtime.streams.identity import folder_identity
from unpool.runtime.streams.journal import Settings, is_settings

_log = logging.getLogger("unpool.streams")


def record_of(target: Path) -> Path:
    """Where the record of an output is.

    >>> record_of(Path("masks/a.zarr")).name
    '.a.zarr.done'
    """
    return target.with_name(f".{target.name}.done")


def write_record(targets: Mapping[str, Path], settings: Settings) -> None:
    """Note that outputs are complete; the record is beside the first of them."""
    stamps = {name: _stamp(path) for name, path in targets.items()}
    content = json.dumps({"settings": settings, "outputs": stamps}).encode() + b"\n"
    write(record_of(next(iter(targets.values()))), content)


def complete_settings(targets: Mapping[str, Path]) -> Settings | None:
    """What outputs were made of, if they are complete and have not been changed; None where that is not known."""
    place = record_of(next(iter(targets.values())))
    if not place.exists():
        return None
    try:
        found = json.loads(place.read_bytes())
        settings, stamps = found["settings"], found["outputs"]
        is_same = is_settings(settings) and stamps == {name: _stamp(path) for name, path in targets.items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.info("%s: is no record of a run (%s); the output is made anew", place, error)
        return None
    return settings if is_same else None


def _stamp(path: Path) -> str:
    if path.is_dir():
        return folder_identity(path)
    status = os.stat(path)
    return f"{status.st_size} {status.st_mtime_ns}"
