"""The earlier run into the same place: an interrupted one that can be resumed, or one whose outputs are complete."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unpool.errors import UnpoolError
from unpool.files import resolve_link
from unpool.runtime.streams.journal import Journal, Settings
from unpool.runtime.streams.record import complete_settings

ENDING = ".part"
JOURNAL = "journal"

OPTIONS = {
    "tile": "--tile",
    "max_memory": "--max-memory",
    "argmax": "--argmax",
    "softmax": "--softmax",
    "threshold": "--threshold",
    "layout": "--layout",
    "blend roi_size": "--tile",
    "blend mode": "--blend",
    "blend overlap": "--overlap",
}
"""Settings that are options of the command, by the words that they have in a journal."""


@dataclass(frozen=True)
class Earlier:
    """A run into the same place: its settings, and whether it is complete."""

    settings: Settings
    is_complete: bool


def folder_of(targets: Mapping[str, Path]) -> Path:
    """The folder of outputs until they are complete, named after the first of them, behind links."""
    first = resolve_link(next(iter(targets.values())))
    return first.with_name(first.name + ENDING)


def earlier_run(targets: Mapping[str, Path], *, resume: bool) -> Earlier | None:
    """The earlier run into outputs; None where there is none, or one that is complete and not to be resumed.

    Raises:
        UnpoolError: it was interrupted, and `resume` is False.
        FileError: its journal cannot be read.
    """
    folder = folder_of(targets)
    if not os.path.lexists(folder / JOURNAL):
        settings = complete_settings(targets) if resume else None
        return None if settings is None else Earlier(settings, True)
    if not resume:
        raise UnpoolError(f"{folder} is left from an interrupted run. Add --resume, or delete it to start over.")
    journal = Journal(folder / JOURNAL)
    journal.close()
    return Earlier(journal.settings, False)


def require_same(earlier: Earlier, settings: Settings, targets: Mapping[str, Path]) -> None:
    """Refuse settings that are not those of an earlier run.

    Raises:
        UnpoolError: one of them differs; the message names it.
    """
    old, new = _flat(earlier.settings), _flat(settings)
    first = "blend mode" if ("blend mode" in old) != ("blend mode" in new) else None
    differing = [
        name for name in dict.fromkeys([*new, *old]) if (name in old, old.get(name)) != (name in new, new.get(name))
    ]
    if not differing:
        return
    name = first or differing[0]
    run = "the earlier run" if earlier.is_complete else "the interrupted run"
    way = "leave out --resume" if earlier.is_complete else f"delete {folder_of(targets)} to start over"
    raise UnpoolError(
        f"{next(iter(targets.values()))}: {run} {_difference(name, old.get(name), new.get(name))}, or {way}."
    )


def _difference(name: str, old: Any, new: Any) -> str:
    """In which setting an earlier run differs, and the way to give it the same.

    >>> _difference("tile", [1024, 1024], [512, 512])
    'used --tile 1024x1024. Use that'
    >>> _difference("inputs x", "f3", "a0")
    "read another input 'x'. Give that one"
    """
    if name in OPTIONS:
        return f"used {_option(OPTIONS[name], old)}. Use that"
    if name.startswith("inputs "):
        return f"read another input {name.removeprefix('inputs ')!r}. Give that one"
    if name == "model":
        return "used another model. Use that one"
    return f"had {name} {old}, this one has {new}. Use that"


def _option(word: str, value: Any) -> str:
    """An option of the command, as it is written there.

    >>> _option("--tile", [16, 20]), _option("--argmax", False), _option("--max-memory", None)
    ('--tile 16x20', 'no --argmax', 'no --max-memory')
    """
    if value is None or value is False:
        return f"no {word}"
    if value is True:
        return word
    if isinstance(value, list):
        return f"{word} {'x'.join(map(str, value))}"
    return f"{word} {value.lower() if word == '--layout' and isinstance(value, str) else value}"


def _flat(settings: Settings, before: str = "") -> dict[str, Any]:
    """Settings of settings by their names, joined."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= _flat(value, f"{before}{name} ") if isinstance(value, Mapping) else {f"{before}{name}": value}
    return found
