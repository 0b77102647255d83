"""An output on its way: `NAME.part` beside it holds the data and the journal until the last tile is finished.

    begin      NAME.part/data.SUFFIX of zeros, then NAME.part/journal
    tile       its data, synced; then its line in the journal, synced
    end        data.SUFFIX -> NAME, then NAME.part goes

So an output of that name is complete, and whatever ends the process leaves a state to go on from.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from unpool.errors import FileError, UnpoolError
from unpool.files import named, place_of, sync_folder
from unpool.runtime.streams.arrangement import Array, Slices
from unpool.runtime.streams.identity import array_identity
from unpool.runtime.streams.journal import Journal, Settings, begin
from unpool.runtime.streams.opening import format_of
from unpool.runtime.streams.sink import Sink, Written

ENDING = ".part"
JOURNAL = "journal"


def earlier_settings(target: Path) -> Settings | None:
    """What an unfinished run into a target was told; None where there is none.

    Raises:
        FileError: another process goes on with it.
    """
    place = folder_of(target) / JOURNAL
    if not place.exists():
        return None
    journal = Journal(place)
    journal.close()
    return journal.settings


class Unfinished:
    """An output to which tiles are added; use it as a context manager. What fails before its first tile leaves nothing.

    Args:
        target: the file, or the folder of a Zarr array.
        settings: what is run; those of an earlier run have to be equal.
        written: what goes into it.

    Raises:
        UnpoolError: the earlier run had other settings; the message names one.
        WriteError, UnsupportedError: it cannot be written.
    """

    def __init__(self, target: Path, settings: Settings, written: Written) -> None:
        self.target, self._folder = target, folder_of(target)
        self._data = self._folder / f"data{''.join(target.suffixes[-1:])}"
        form = format_of(target)
        _require_place(target)
        with named(target):
            if not (self._folder / JOURNAL).exists():
                self._start(settings, written, form.create)
            self._journal = Journal(self._folder / JOURNAL)
            try:
                _require_equal(self._journal.settings, settings, target)
                is_moved = not self._data.exists()
                self._sink: Sink | None = None if is_moved else form.open(self._data, written)
            except BaseException:
                self._journal.close()
                raise

    def __enter__(self) -> "Unfinished":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._journal.close()
        if error is not None and not self._journal.finished:
            shutil.rmtree(self._folder, ignore_errors=True)

    def finished(self, window: Callable[[int], Slices]) -> set[int]:
        """The tiles that an earlier run has finished and whose content is still what it wrote.

        Args:
            window: of the output, by tile.
        """
        noted, sink = self._journal.finished, self._sink
        if sink is None:
            return set(noted)
        return {tile for tile, content in noted.items() if array_identity(sink.read(window(tile))) == content}

    def add(self, tile: int, window: Slices, array: Array) -> None:
        """Write what a tile gives: the data first, then the line that says so."""
        if self._sink is None:
            raise FileError(f"{self.target}: expected the data of an unfinished run, got none. Remove {self._folder}.")
        with named(self.target):
            plain = np.ascontiguousarray(array)
            self._sink.write(window, plain)
            self._journal.add(tile, array_identity(plain))

    def finish(self) -> None:
        """Let the output appear under its name."""
        with named(self.target):
            if self._sink is not None:
                old = self._folder / "old"
                if self.target.is_dir():
                    os.replace(self.target, old)
                os.replace(self._data, self.target)
                sync_folder(self.target.parent)
            shutil.rmtree(self._folder)

    def _start(self, settings: Settings, written: Written, create: Callable[[Path, Written], None]) -> None:
        """Make the data and the journal; without its journal, a folder of this name holds nothing of worth."""
        if self._folder.exists():
            shutil.rmtree(self._folder)
        self._folder.mkdir()
        try:
            create(self._data, written)
        except BaseException:
            shutil.rmtree(self._folder)
            raise
        sync_folder(self._folder)
        begin(self._folder / JOURNAL, settings)
        sync_folder(self._folder.parent)


def folder_of(target: Path) -> Path:
    """What holds an output until it is complete."""
    return target.with_name(target.name + ENDING)


def _require_place(target: Path) -> None:
    """Refuse to replace a folder that is no Zarr array."""
    if not target.is_dir():
        place_of(target)
    elif not any((target / name).exists() for name in ("zarr.json", ".zarray")):
        raise FileError(
            f"{target}: expected a place for the output, got a folder of other files. Choose another place."
        )


def _require_equal(earlier: Settings, settings: Settings, target: Path) -> None:
    for name, value in _flat(settings).items():
        old = _flat(earlier).get(name)
        if old != value:
            raise UnpoolError(
                f"{target}: expected to go on with {name} {old}, as the earlier run had it, got {value}. "
                f"Give the same, or remove {folder_of(target)} to begin anew."
            )


def _flat(settings: Settings, before: str = "") -> dict[str, Any]:
    """Settings of settings by their names, joined."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= _flat(value, f"{before}{name} ") if isinstance(value, Mapping) else {f"{before}{name}": value}
    return found
