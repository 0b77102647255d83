"""Outputs on their way: `NAME.part` beside them holds their data and the journal until the last part is finished.

    begin      NAME.part, its mark, NAME.part/OUTPUT of zeros for each, then NAME.part/journal
    part       its data, synced; then its line in the journal, synced
    end        NAME.part/OUTPUT -> OUTPUT for each, the record of what they were made of, then NAME.part goes

NAME is the first output, behind links. So an output of its name is complete, and whatever ends the process leaves a
state that can be resumed. A part is a tile, or a band of blended windows. The caller holds the locks of the outputs.
"""

import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np

from unpool.errors import FileError
from unpool.files import WriteError, copy_mode, find_overlap, resolve_link, resolve_target, sync_folder, write_errors
from unpool.images.axes import Array, Slices
from unpool.images.fingerprint import fingerprint_array
from unpool.images.formats import ending_of, format_of
from unpool.images.sink import OutputSpec, Sink
from unpool.images.zarr import is_zarr_array, other_member
from unpool.runtime.streams.earlier import JOURNAL, Earlier, folder_of, require_same
from unpool.runtime.streams.journal import Journal, Settings, begin
from unpool.runtime.streams.record import record_of, write_record

MARK = ".unpool"
"""The first file in NAME.part: only a folder that has it, or nothing at all, is removed."""

_log = logging.getLogger("unpool.streams")


class Unfinished:
    """Outputs to which parts are added; use it as a context manager. What fails before its first part leaves nothing.

    Args:
        targets: by output, the file, or the folder of a Zarr array.
        settings: what is run; those of an earlier run have to be equal.
        written: by output, what goes into it.
        count: of the parts.

    Raises:
        UnpoolError: the earlier run had other settings; the message names one.
        FileError: data of the earlier run are gone, or not those of such a run.
        WriteError, UnsupportedError, ShapeError: an output cannot be written.
    """

    def __init__(
        self, targets: Mapping[str, Path], settings: Settings, written: Mapping[str, OutputSpec], count: int
    ) -> None:
        self._targets, self._folder, self._count = targets, folder_of(targets), count
        self._places = {name: resolve_link(target) for name, target in targets.items()}
        self._data = {name: self._folder / place.name for name, place in self._places.items()}
        self._first = next(iter(targets.values()))
        self._writing, self._is_closed, self._is_appearing = threading.Lock(), False, False
        require_places(targets)
        with write_errors(self._first):
            if self._folder.is_symlink() or not os.path.lexists(self._folder / JOURNAL):
                self._start(settings, written)
            self._journal = Journal(self._folder / JOURNAL)
            try:
                require_same(Earlier(self._journal.settings, False), settings, targets)
                self._moved = self._require_data()
                self._sinks = {name: self._open(name, written[name]) for name in targets}
            except BaseException:
                self._journal.close()
                raise

    def __enter__(self) -> "Unfinished":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._writing:
            self._is_closed = True
        is_of_no_use = error is not None and not self._journal.finished and not self._is_appearing
        if is_of_no_use and self._journal.is_in_place():
            shutil.rmtree(self._folder, ignore_errors=True)
        self._journal.close()

    def finished(self, windows: Callable[[int], Mapping[str, Slices]]) -> set[int]:
        """The parts that an earlier run has finished and whose content is still what it wrote; all others may be added.

        Args:
            windows: by part, those of the outputs.

        Raises:
            FileError: an output appeared under its name already, and is not what the earlier run wrote.
        """
        noted = {part: content for part, content in self._journal.finished.items() if 0 <= part < self._count}
        found = {part for part, content in noted.items() if self._content(windows(part)) == content}
        if self._moved and len(found) < self._count:
            raise FileError(self._gone(self._moved[0]))
        if len(found) < len(noted):
            _log.info("%s: %d tiles are damaged and computed again", self._folder, len(noted) - len(found))
        with write_errors(self._first):
            for name, sink in self._sinks.items():
                if name not in self._moved:
                    sink.keep(part[name] for part in map(windows, sorted(found)) if name in part)
        return found

    def add(self, part: int, windows: Mapping[str, Slices], arrays: Mapping[str, Array]) -> None:
        """Write what a part gives: the data first, then the line that says so.

        Raises:
            WriteError: it cannot be written, or the run is over, or its folder is not there any more: another process
                may write there now.
        """
        with self._writing:
            if self._is_closed:
                raise WriteError(f"{self._first}: the run is over, so no more is written. Run it again.")
            self._require_folder()
            contents = []
            for name, window in windows.items():
                with write_errors(self._targets[name]):
                    plain = np.ascontiguousarray(arrays[name])
                    self._sinks[name].write(window, plain)
                    contents.append(fingerprint_array(plain))
            with write_errors(self._first):
                self._journal.add(part, " ".join(contents))

    def finish(self) -> None:
        """Let the outputs appear under their names, with the modes of those that they replace.

        Raises:
            WriteError: they cannot, or the folder of the run is not there any more.
        """
        require_places(self._targets)
        self._require_folder()
        self._is_appearing = True
        for name, place in self._places.items():
            if name not in self._moved:
                with write_errors(self._targets[name]):
                    copy_mode(place, self._data[name])
                    _replace(place, self._data[name], self._folder / f"old {place.name}")
        with write_errors(self._first):
            sync_folder(self._folder.parent)
            write_record(self._places, self._journal.settings)
            shutil.rmtree(self._folder)

    def _require_folder(self) -> None:
        """Refuse to write into the folder of another run, which began after that of this one was deleted."""
        if not self._journal.is_in_place():
            raise WriteError(f"{self._folder}: was deleted or replaced during the run, which ends here. Run it again.")

    def _content(self, windows: Mapping[str, Slices]) -> str | None:
        """A digest of what the files hold of a part; None where that cannot be read."""
        try:
            return " ".join(fingerprint_array(self._sinks[name].read(window)) for name, window in windows.items())
        except OSError as error:
            _log.info("%s: %s", self._folder, error)
            return None

    def _require_data(self) -> list[str]:
        """The outputs that appeared under their names already, which begins when all parts are finished.

        Raises:
            FileError: data are neither here nor there.
        """
        gone = [name for name, data in self._data.items() if not os.path.lexists(data)]
        is_complete = len(self._journal.finished) >= self._count
        missing = [name for name in gone if not (is_complete and self._places[name].exists())]
        if missing:
            raise FileError(self._gone(missing[0]))
        return gone

    def _gone(self, name: str) -> str:
        return f"{self._data[name]}: the data of the interrupted run are gone. Delete {self._folder} to start over."

    def _open(self, name: str, written: OutputSpec) -> Sink:
        """The data of an output, to be written and read again; only read where it appeared under its name already.

        Raises:
            FileError: they are not what this run would write.
        """
        form = format_of(self._targets[name])
        if name not in self._moved:
            return form.open(self._data[name], written)
        try:
            return form.open(self._places[name], written)
        except OSError as error:
            raise FileError(self._gone(name)) from error

    def _start(self, settings: Settings, written: Mapping[str, OutputSpec]) -> None:
        """Make the data and the journal; without its journal, a folder of ours holds nothing of worth."""
        _remove_ours(self._folder)
        self._folder.mkdir()
        try:
            (self._folder / MARK).touch()
            sync_folder(self._folder)
            for name, data in self._data.items():
                format_of(self._targets[name]).create(data, written[name])
                copy_mode(self._places[name], data)
            sync_folder(self._folder)
            begin(self._folder / JOURNAL, settings)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        sync_folder(self._folder.parent)


def require_targets(targets: Sequence[Path]) -> None:
    """Refuse outputs that are not files of one folder, each with a name of its own, behind links too."""
    for paths in (targets, [resolve_link(target) for target in targets]):
        folders, names = ({path.parent.absolute() for path in paths}, {path.name for path in paths})
        if len(folders) > 1 or len(names) < len(targets):
            raise FileError(
                f"outputs: expected names of their own in one folder, got {', '.join(map(str, paths))}. "
                "Put all of them into one folder, each under a name of its own."
            )


def require_apart(targets: Iterable[Path], sources: Iterable[Path]) -> None:
    """Refuse an output that is an input, lies in one, or contains one.

    Raises:
        FileError: such an output; nothing is written.
    """
    found = find_overlap(targets, sources)
    if found is not None:
        raise FileError(f"{found}: is an input of this run, lies in one or contains one. Choose another output.")


def require_places(targets: Mapping[str, Path]) -> None:
    """Refuse to replace anything but a file, or for a Zarr array another one, with nothing else in its folder.

    Raises:
        MissingFileError: a folder does not exist.
        FileError: something else is in the place of an output, or it is write-protected.
    """
    for target in targets.values():
        is_folder = ending_of(target) == ".zarr"
        if is_folder and target.is_dir():
            if not is_zarr_array(target):
                raise FileError(
                    f"{target}: is a folder, but not a single Zarr array, and is not replaced. Move it, or choose "
                    "another output."
                )
            member = other_member(resolve_link(target))
            if member is not None:
                raise FileError(
                    f"{target}: holds {member.relative_to(resolve_link(target))}, which is not of the Zarr array and "
                    "would be deleted. Move it, or choose another output."
                )
            if not os.access(target, os.W_OK):
                raise WriteError(f"{target}: cannot be written (the folder is write-protected). Choose another place.")
            continue
        resolve_target(target)
        if is_folder and os.path.exists(target):
            raise FileError(f"{target}: is a file, and is not replaced by a folder. Move it, or choose another output.")
    resolve_target(record_of(next(iter(targets.values()))))


def _replace(place: Path, data: Path, old: Path) -> None:
    """Let data appear under a name; the folder of that name goes to `old`, and comes back on a fault."""
    if not place.is_dir():
        os.replace(data, place)
        return
    shutil.rmtree(old, ignore_errors=True)  # left by a process that ended between these lines
    os.replace(place, old)
    try:
        os.replace(data, place)
    except BaseException:
        os.replace(old, place)
        raise


def _remove_ours(folder: Path) -> None:
    """Remove what an interrupted run left before it had a journal.

    Raises:
        FileError: it is not of a run.
    """
    if not os.path.lexists(folder):
        return
    is_folder = folder.is_dir() and not folder.is_symlink()
    if is_folder and (folder / MARK).is_file():
        shutil.rmtree(folder)
    elif is_folder and not any(folder.iterdir()):
        folder.rmdir()
    else:
        raise FileError(
            f"{folder}: is needed for this run, and was not made by one. Move it, or choose another output."
        )
