"""Does what there is to do: reads, computes and writes at the same time, part by part, and goes on after any end."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unpool.errors import UnpoolError
from unpool.images.axes import Shape
from unpool.images.fingerprint import fingerprint_file
from unpool.memory_limits import peak_rss
from unpool.runtime.graph.model_files import outside
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.streams.earlier import Earlier, require_same
from unpool.runtime.streams.flow import flow
from unpool.runtime.streams.progress import Progress
from unpool.runtime.streams.unfinished import Unfinished, require_targets
from unpool.runtime.streams.work import Made, Work

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession


@dataclass(frozen=True)
class WrittenFile:
    """A file that was written: where, of which shape and type; `classes` counts them where it holds their numbers."""

    path: Path
    shape: Shape
    dtype: np.dtype[Any]
    classes: int = 0


@dataclass(frozen=True)
class Finished:
    """What was written: a file by output, and how far the run was at its end.

    `path`, `shape` and `dtype` are those of the first file, of which there often is one only.
    """

    files: Mapping[str, WrittenFile]
    progress: Progress

    @property
    def was_complete(self) -> bool:
        """Whether an earlier run had written all of it, so that nothing was left to do."""
        return self.progress.was_complete

    @property
    def path(self) -> Path:
        """Of the first file."""
        return self._first.path

    @property
    def shape(self) -> Shape:
        """Of the first file."""
        return self._first.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the first file."""
        return self._first.dtype

    @property
    def _first(self) -> WrittenFile:
        return next(iter(self.files.values()))


def targets_of(
    session: "InferenceSession", target: str | Path | Mapping[str, str | Path], output: str | None
) -> dict[str, Path]:
    """By output, where it goes.

    Args:
        session: of the model.
        target: a place for one output, or places by output.
        output: the name of the one output.

    Raises:
        UnpoolError: outputs of which the model has none, or several outputs for one place.
        FileError: places in several folders.
    """
    names = [value.name for value in session.get_outputs()]
    if isinstance(target, Mapping):
        targets = {name: Path(place) for name, place in target.items()}
        if output is not None or not targets or not set(targets) <= set(names):
            raise UnpoolError(
                f"target: expected files for outputs out of {', '.join(names)}, and no `output` beside them; "
                f"got {', '.join(targets) or 'none'}. Name outputs of the model."
            )
    elif output is None and len(names) > 1:
        raise UnpoolError(f"output: expected one of {', '.join(names)}, got none. Name one, or give a file for each.")
    else:
        targets = {output or names[0]: Path(target)}
    require_targets(list(targets.values()))
    return targets


def paths_of(session: "InferenceSession", feed: Mapping[str, Any]) -> list[Path]:
    """The files that a run reads: those of the model, and of its inputs where these are files."""
    found = map(_path_of, feed.values())
    return [*session_paths(session), *(path for path in found if path is not None)]


def _path_of(source: Any) -> Path | None:
    """The file or folder that an input is read from; None where that is not known."""
    given = source
    while not hasattr(given, "path") and hasattr(given, "source"):  # what casts or scales another source
        given = given.source
    if isinstance(given, np.ndarray):
        while not isinstance(given, np.memmap) and isinstance(given.base, np.ndarray):
            given = given.base
        name = getattr(given, "filename", None)
    elif hasattr(given, "store"):  # an array of zarr, whose path is that in its store
        root = getattr(given.store, "root", None)
        name = None if root is None else Path(root, getattr(given, "path", ""))
    else:
        name = given if isinstance(given, (str, Path)) else getattr(given, "path", None)
    return Path(name) if isinstance(name, (str, Path)) else None


def session_settings(session: "InferenceSession") -> dict[str, str]:
    """The model of a session, how it is read, and the versions that run it."""
    config = session._config
    paths = session_paths(session)
    return {
        "model": " ".join(map(fingerprint_file, paths)) if paths else _fingerprint_model(config.source),
        "semantics": f"{config.semantics} providers={session.get_providers()}",
        "versions": f"unpool {version('unpool')}, onnxruntime {version('onnxruntime')}",
    }


def session_paths(session: "InferenceSession") -> list[Path]:
    """The files that the model of a session is in: its own, and those of its weights; none where it is in memory."""
    source = session._config.source
    return [Path(source), *map(Path, outside(Path(source)).paths(Path(source)))] if isinstance(source, str) else []


def _fingerprint_model(source: Any) -> str:
    content = source if isinstance(source, bytes) else source.SerializeToString(deterministic=True)
    return blake2b(content, digest_size=16).hexdigest()


def do(work: Work, targets: Mapping[str, Path], earlier: Earlier | None, told: Callable[[Progress], None]) -> Finished:
    """Do what is left of the work, and let the outputs appear.

    Args:
        work: what is to be done.
        targets: by output, where it goes.
        earlier: the run that has begun it, if there is one; one that is complete leaves nothing to do.
        told: is called whenever a part is on the disk, with how far the run is.

    Raises:
        UnpoolError: the earlier run had other settings.
        FileError: an output cannot be written.
    """
    if earlier is not None and earlier.is_complete:
        require_same(earlier, work.settings, targets)
        progress = Progress(len(work), len(work), len(work), 0.0, peak_rss(), was_complete=True)
    else:
        with Unfinished(targets, work.settings, work.written, len(work)) as unfinished:
            progress = _do_rest(work, unfinished, told)
            unfinished.finish()
    files = {name: WrittenFile(targets[name], one.shape, one.dtype, one.classes) for name, one in work.written.items()}
    return Finished(files, progress)


def _do_rest(work: Work, unfinished: Unfinished, told: Callable[[Progress], None]) -> Progress:
    """Do the parts that are left."""
    finished = unfinished.finished(work.windows)
    options = onnxruntime.RunOptions()
    begin, done = time.monotonic(), len(finished)

    def write(made: Made | None) -> int:
        if made is None:
            return 0
        part, arrays = made
        unfinished.add(part, work.windows(part), arrays)
        return 1

    def end() -> None:
        options.terminate = True

    def progress() -> Progress:
        return Progress(len(work), len(finished), done, time.monotonic() - begin, peak_rss())

    left = set(range(len(work))).difference(finished)
    for count in flow(work.items(left), (*work.stages(options), write), end):
        if count:
            done += count
            told(progress())
    return progress()
