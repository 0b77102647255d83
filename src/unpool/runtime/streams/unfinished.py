"""Outputs on their way: `NAME.part` beside them holds their data and the journal until the last part is finished.

    begin      NAME.part/OUTPUT of zeros for each, then NAME.part/journal
    part       its data, synced; then its line in the journal, synced
    end        NAME.part/OUTPUT -> OUTPUT for each, the record of what they were made of, then NAME.part goes

NAME is the first output. So an output of its name is complete, and whatever ends the process leaves a state to go on
from. A part is a tile, or a band of blended windows.
"""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np

from unpool.errors import FileError
from unpool.files import named, place_of, sync_folder
from unpool.runtime.streams.arrangement import Array, Slices
from unpool.runtime.streams.earlier import JOURNAL, folder_of, require_equal
from unpool.runtime.streams.identity import array_identity
from unpool.runtime.streams.journal import Journal, Settings, begin
from unpool.runtime.streams.opening import Format, format_of
from unpool.runtime.streams.record import write_record
from unpool.runtime.streams.sink import Sink, Written


class Unfinished:
    """Outputs to which parts are added; use it as a context manager. What fails before its first part leaves nothing.

    Args:
        targets: by output, the file, or the folder of a Zarr array.
        settings: what is run; those of an earlier run have to be equal.
        written: by output, what goes into it.
        count: of the parts.

    Raises:
        UnpoolError: the earlier run had other settings; the message names one.
        FileError: data of the earlier run are gone.
        WriteError, UnsupportedError, ShapeError: an output cannot be written.
    """

    def __init__(
        self, targets: Mapping[str, Path], settings: Settings, written: Mapping[str, Written], count: int
    ) -> None:
        self._targets, self._folder, self._count = targets, folder_of(targets), count
        self._data = {name: self._folder / target.name for name, target in targets.items()}
        self._first = next(iter(targets.values()))
        forms = {name: format_of(target) for name, target in targets.items()}
        for target in targets.values():
            _require_place(target)
        with named(self._first):
            if not (self._folder / JOURNAL).exists():
                self._start(settings, written, forms)
            self._journal = Journal(self._folder / JOURNAL)
            try:
                require_equal(self._journal.settings, settings, self._first, f"remove {self._folder}")
                self._is_moved = self._are_moved()
                self._sinks: dict[str, Sink] = {}
                if not self._is_moved:
                    self._sinks = {name: form.open(self._data[name], written[name]) for name, form in forms.items()}
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

    def finished(self, windows: Callable[[int], Mapping[str, Slices]]) -> set[int]:
        """The parts that an earlier run has finished and whose content is still what it wrote.

        Args:
            windows: by part, those of the outputs.
        """
        noted = {part: content for part, content in self._journal.finished.items() if 0 <= part < self._count}
        if self._is_moved:
            return set(noted)
        return {part for part, content in noted.items() if self._content(windows(part)) == content}

    def add(self, part: int, windows: Mapping[str, Slices], arrays: Mapping[str, Array]) -> None:
        """Write what a part gives: the data first, then the line that says so."""
        contents = []
        for name, window in windows.items():
            with named(self._targets[name]):
                plain = np.ascontiguousarray(arrays[name])
                self._sinks[name].write(window, plain)
                contents.append(array_identity(plain))
        with named(self._first):
            self._journal.add(part, " ".join(contents))

    def finish(self) -> None:
        """Let the outputs appear under their names."""
        for name, target in self._targets.items():
            with named(target):
                if self._data[name].exists():
                    if target.is_dir():
                        os.replace(target, self._folder / f"old {target.name}")
                    os.replace(self._data[name], target)
        with named(self._first):
            sync_folder(self._first.parent)
            write_record(self._targets, self._journal.settings)
            shutil.rmtree(self._folder)

    def _content(self, windows: Mapping[str, Slices]) -> str:
        return " ".join(array_identity(self._sinks[name].read(window)) for name, window in windows.items())

    def _are_moved(self) -> bool:
        """Whether outputs appeared under their names already, which begins when all parts are finished.

        Raises:
            FileError: data are neither here nor there.
        """
        gone = [name for name, place in self._data.items() if not place.exists()]
        is_complete = len(self._journal.finished) >= self._count
        if gone and not (is_complete and all(self._targets[name].exists() for name in gone)):
            raise FileError(
                f"{self._data[gone[0]]}: expected the data of an unfinished run, got none. "
                f"Remove {self._folder} to begin anew."
            )
        return bool(gone)

    def _start(self, settings: Settings, written: Mapping[str, Written], forms: Mapping[str, Format]) -> None:
        """Make the data and the journal; without its journal, a folder of this name holds nothing of worth."""
        if self._folder.exists():
            shutil.rmtree(self._folder)
        self._folder.mkdir()
        try:
            for name, form in forms.items():
                form.create(self._data[name], written[name])
            sync_folder(self._folder)
            begin(self._folder / JOURNAL, settings)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        sync_folder(self._folder.parent)


def require_targets(targets: Sequence[Path]) -> None:
    """Refuse outputs that are not files of one folder, each with a name of its own."""
    folders, names = ({target.parent.absolute() for target in targets}, {target.name for target in targets})
    if len(folders) > 1 or len(names) < len(targets):
        raise FileError(
            f"outputs: expected names of their own in one folder, got {', '.join(map(str, targets))}. "
            "Put all of them into one folder."
        )


def _require_place(target: Path) -> None:
    """Refuse to replace a folder that is no Zarr array."""
    if not target.is_dir():
        place_of(target)
    elif not any((target / name).exists() for name in ("zarr.json", ".zarray")):
        raise FileError(
            f"{target}: expected a place for the output, got a folder of other files. Choose another place."
        )
