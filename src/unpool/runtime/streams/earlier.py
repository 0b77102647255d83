"""What an earlier run into the same place has left: an unfinished run to go on with, or complete outputs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unpool.errors import UnpoolError
from unpool.runtime.streams.journal import Journal, Settings
from unpool.runtime.streams.record import complete_settings

ENDING = ".part"
JOURNAL = "journal"


@dataclass(frozen=True)
class Earlier:
    """A run into the same place: what it was told, and whether it is complete."""

    settings: Settings
    is_complete: bool


def folder_of(targets: Mapping[str, Path]) -> Path:
    """What holds outputs until they are complete, named after the first of them."""
    first = next(iter(targets.values()))
    return first.with_name(first.name + ENDING)


def earlier_run(targets: Mapping[str, Path], *, resume: bool) -> Earlier | None:
    """The earlier run into outputs; None where there is none, or one that is complete and not to be gone on with.

    Raises:
        UnpoolError: it is unfinished, and `resume` is False.
        FileError: another process goes on with it, or its journal cannot be read.
    """
    folder, first = folder_of(targets), next(iter(targets.values()))
    if not (folder / JOURNAL).exists():
        settings = complete_settings(targets) if resume else None
        return None if settings is None else Earlier(settings, True)
    if not resume:
        raise UnpoolError(f"{first}: expected no unfinished run, {folder} is of one. Resume it, or remove that folder.")
    journal = Journal(folder / JOURNAL)
    journal.close()
    return Earlier(journal.settings, False)


def require_same(earlier: Earlier, settings: Settings, targets: Mapping[str, Path]) -> None:
    """Refuse to take complete outputs for those of a run with other settings."""
    first = next(iter(targets.values()))
    require_equal(earlier.settings, settings, first, "run without resuming")


def require_equal(earlier: Settings, settings: Settings, target: Path, otherwise: str) -> None:
    """Refuse settings that are not those of an earlier run.

    Args:
        earlier: of that run.
        settings: of this one.
        target: of both.
        otherwise: what begins anew.

    Raises:
        UnpoolError: one of them differs; the message names it.
    """
    old = _flat(earlier)
    for name, value in _flat(settings).items():
        if old.get(name) != value:
            raise UnpoolError(
                f"{target}: expected to go on with {name} {old.get(name)}, as the earlier run had it, got {value}. "
                f"Give the same, or {otherwise} to begin anew."
            )


def _flat(settings: Settings, before: str = "") -> dict[str, Any]:
    """Settings of settings by their names, joined."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= _flat(value, f"{before}{name} ") if isinstance(value, Mapping) else {f"{before}{name}": value}
    return found
