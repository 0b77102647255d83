"""Outputs until they are complete: `NAME.part` next to them holds their data and the journal of the run.

    begin      NAME.part, its mark, NAME.part/OUTPUT of zeros for each, then NAME.part/journal
    part       its data, synced; then its line in the journal, synced
    end        NAME.part/OUTPUT -> OUTPUT for each, the done marker, then NAME.part is removed

NAME is the first output, with links resolved. So a file under the name of an output is complete, and a run can be
resumed wherever the process ended. A part is a tile, or a band of blended windows. The caller holds the locks of the
outputs.
"""

import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from unpool.errors import FileError
from unpool.files import (
    WriteError,
    copy_mode,
    find_overlap,
    replace,
    resolve_link,
    resolve_target,
    sync_folder,
    write_errors,
)
from unpool.images.axes import Array, Slices
from unpool.images.formats import suffix_of, window_format
from unpool.images.sink import OutputSpec, Sink
from unpool.images.source import fingerprint_array
from unpool.images.zarr import is_zarr_array, other_member
from unpool.runtime.streams import checkpoint

COUNTED = 1 << 18  # elements whose classes are counted at a time
MARK = ".unpool"  # the first file in NAME.part: only a folder with this file, or an empty one, is removed

_log = logging.getLogger("unpool.streams")


class PartialOutput:
    """Outputs to which parts are added, as a context manager; a run that fails before its first part leaves no files.

    It refuses the data of an interrupted run that had other settings, or that are missing or not those of a run.
    """

    def __init__(
        self, targets: Mapping[str, Path], settings: checkpoint.Settings, specs: Mapping[str, OutputSpec], count: int
    ) -> None:
        self._targets, self._folder, self._count = targets, checkpoint.partial_folder(targets), count
        self._files = {name: resolve_link(target) for name, target in targets.items()}
        self._data = {name: self._folder / file.name for name, file in self._files.items()}
        self._first = next(iter(targets.values()))
        self._lock, self._is_closed, self._is_finishing = threading.Lock(), False, False
        require_replaceable(targets)
        with write_errors(self._first):
            if self._folder.is_symlink() or not os.path.lexists(self._folder / checkpoint.JOURNAL):
                self._create(settings, specs)
            self._journal = checkpoint.Journal(self._folder / checkpoint.JOURNAL)
            try:
                old = checkpoint.Checkpoint(self._journal.settings, False)
                checkpoint.require_same_settings(old, settings, self._first, self._folder)
                self._moved = self._find_moved()
                self._sinks = {name: self._open(name, specs[name]) for name in targets}
            except BaseException:
                self._journal.close()
                raise

    def __enter__(self) -> "PartialOutput":
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        with self._lock:
            self._is_closed = True
        is_useless = error is not None and not self._journal.finished and not self._is_finishing
        is_removed = is_useless and self._journal.is_in_place()
        self._journal.close()  # Windows cannot delete an open file
        if is_removed:
            with suppress(OSError):
                _remove(self._folder)

    def finished_parts(self, windows: Callable[[int], Mapping[str, Slices]]) -> set[int]:
        """The parts of an interrupted run whose data are intact, by the windows of a part in the outputs."""
        journal = {part: content for part, content in self._journal.finished.items() if 0 <= part < self._count}
        finished = {part for part, content in journal.items() if self._content(windows(part)) == content}
        if self._moved and len(finished) < self._count:
            raise FileError(self._missing_data(self._moved[0]))
        if len(finished) < len(journal):
            _log.info("%s: %d tiles are damaged and computed again", self._folder, len(journal) - len(finished))
        with write_errors(self._first):
            for name, sink in self._sinks.items():
                if name not in self._moved:
                    sink.keep(part[name] for part in map(windows, sorted(finished)) if name in part)
        return finished

    def add(self, part: int, windows: Mapping[str, Slices], arrays: Mapping[str, Array]) -> None:
        """Write a part: its data, then its line in the journal."""
        with self._lock:
            if self._is_closed:
                raise WriteError(f"{self._first}: the run is over, so no more is written. Start another run.")
            self._require_folder()
            contents = []
            for name, window in windows.items():
                with write_errors(self._targets[name]):
                    array = np.ascontiguousarray(arrays[name])
                    self._sinks[name].write(window, array)
                    contents.append(fingerprint_array(array))
            with write_errors(self._first):
                self._journal.add(part, " ".join(contents))

    def count_classes(self, name: str, classes: int, windows: Iterable[Slices]) -> tuple[int, ...]:
        """The number of elements of each class in the windows of an output."""
        counts = np.zeros(classes, np.int64)
        with write_errors(self._targets[name]):
            for window in windows:
                numbers = self._sinks[name].read(window).reshape(-1)
                for start in range(0, numbers.size, COUNTED):  # bincount takes 8 bytes per element
                    counts += np.bincount(numbers[start : start + COUNTED], minlength=classes)
        return tuple(map(int, counts))

    def finish(self) -> None:
        """Move the outputs to their names, with the modes of the files that they replace."""
        require_replaceable(self._targets)
        self._require_folder()
        self._is_finishing = True
        for name, file in self._files.items():
            if name not in self._moved:
                with write_errors(self._targets[name]):
                    copy_mode(file, self._data[name])
                    _replace(file, self._data[name], self._folder / f"old {file.name}")
        with write_errors(self._first):
            sync_folder(self._folder.parent)
            checkpoint.write_done_marker(self._files, self._journal.settings)
            self._journal.close()  # Windows cannot delete an open file
            _remove(self._folder)

    def _require_folder(self) -> None:
        """Refuse to write into a folder that another process made after this run's folder was deleted."""
        if not self._journal.is_in_place():
            raise WriteError(f"{self._folder}: was deleted or replaced during the run. Start it again.")

    def _content(self, windows: Mapping[str, Slices]) -> str | None:
        """The fingerprint of a part in the files; None where they cannot be read."""
        try:
            return " ".join(fingerprint_array(self._sinks[name].read(window)) for name, window in windows.items())
        except OSError as error:
            _log.info("%s: %s", self._folder, error)
            return None

    def _find_moved(self) -> list[str]:
        """The outputs that an interrupted run has moved to their names after its last part."""
        moved = [name for name, data in self._data.items() if not os.path.lexists(data)]
        is_complete = len(self._journal.finished) >= self._count
        missing = [name for name in moved if not (is_complete and self._files[name].exists())]
        if missing:
            raise FileError(self._missing_data(missing[0]))
        return moved

    def _missing_data(self, name: str) -> str:
        return f"{self._data[name]}: the data of the interrupted run are gone. Delete {self._folder} to start over."

    def _open(self, name: str, spec: OutputSpec) -> Sink:
        """The data of an output, to be written and read; only to be read where it has been moved."""
        is_moved = name in self._moved
        try:
            return window_format(self._targets[name]).open((self._files if is_moved else self._data)[name], spec)
        except OSError as error:
            if is_moved:
                raise FileError(self._missing_data(name)) from error
            raise

    def _create(self, settings: checkpoint.Settings, specs: Mapping[str, OutputSpec]) -> None:
        """Create the data and the journal; an earlier folder without a journal holds nothing to keep."""
        _remove_stale(self._folder)
        self._folder.mkdir()
        try:
            (self._folder / MARK).touch()
            sync_folder(self._folder)
            for name, data in self._data.items():
                window_format(self._targets[name]).create(data, specs[name])
                copy_mode(self._files[name], data)
            sync_folder(self._folder)
            checkpoint.create_journal(self._folder / checkpoint.JOURNAL, settings)
        except BaseException:
            with suppress(OSError):
                _remove(self._folder)
            raise
        sync_folder(self._folder.parent)


def require_distinct(targets: Sequence[Path]) -> None:
    """Refuse outputs that are not files of one folder, each with a name of its own, also with links resolved."""
    for paths in (targets, [resolve_link(target) for target in targets]):
        folders, names = ({path.parent.absolute() for path in paths}, {path.name for path in paths})
        if len(folders) > 1 or len(names) < len(targets):
            text = f"outputs: expected names of their own in one folder, got {', '.join(map(str, paths))}."
            raise FileError(f"{text} Put all of them into one folder, each under a name of its own.")


def require_apart(targets: Iterable[Path], sources: Iterable[Path]) -> None:
    """Refuse an output that is an input, lies in one, or contains one."""
    overlap = find_overlap(targets, sources)
    if overlap is not None:
        raise FileError(f"{overlap}: is an input of this run, lies in one or contains one. Choose another output.")


def require_replaceable(targets: Mapping[str, Path]) -> None:
    """Refuse to replace anything but a file, or for a Zarr array a folder with such an array and nothing else."""
    for target in targets.values():
        is_zarr = suffix_of(target) == ".zarr"
        if is_zarr and target.is_dir():
            _require_zarr_array(target)
            continue
        resolve_target(target)
        if is_zarr and os.path.exists(target):
            raise FileError(f"{target}: is a file, and is not replaced by a folder. Move it, or choose another output.")
    marker = checkpoint.done_marker(next(iter(targets.values())))
    if marker.is_symlink():
        raise FileError(f"{marker}: is a link, and not the record of a run. Delete it, or choose another output.")
    resolve_target(marker)


def _require_zarr_array(folder: Path) -> None:
    advice = "Move it, or choose another output."
    if not is_zarr_array(folder):
        raise FileError(f"{folder}: is a folder, but not a single Zarr array, and is not replaced. {advice}")
    member = other_member(resolve_link(folder))
    if member is not None:
        name = member.relative_to(resolve_link(folder))
        raise FileError(f"{folder}: holds {name}, which is not of the Zarr array and would be deleted. {advice}")
    if not os.access(folder, os.W_OK):
        raise WriteError(f"{folder}: cannot be written (the folder is write-protected). Choose another path.")


def _replace(file: Path, data: Path, old: Path) -> None:
    """Move data to the name of an output; a folder of that name moves to `old`, and back on an error."""
    if not file.is_dir():
        replace(data, file)
        return
    shutil.rmtree(old, ignore_errors=True)  # from a process that ended between these lines
    replace(file, old)
    try:
        replace(data, file)
    except BaseException:
        replace(old, file)
        raise


def _remove(folder: Path) -> None:
    """Remove the folder of a run: its journal first and its mark last, so that a later run can end the removal."""
    (folder / checkpoint.JOURNAL).unlink(missing_ok=True)
    for path in list(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != MARK:
            path.unlink()
    shutil.rmtree(folder)


def _remove_stale(folder: Path) -> None:
    """Remove the folder of a run that was interrupted before it had a journal; any other folder is refused."""
    if not os.path.lexists(folder):
        return
    is_folder = folder.is_dir() and not folder.is_symlink()
    if is_folder and (folder / MARK).is_file():
        _remove(folder)
    elif is_folder and not any(folder.iterdir()):
        folder.rmdir()
    else:
        raise FileError(f"{folder}: was not made by a run, which needs the name. Move it, or choose another output.")
