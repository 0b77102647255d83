"""Runs a model over files in exact tiles; whatever ends the process, a run can be gone on with."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpool.extras import require
from unpool.files import lock
from unpool.runtime.streams.doing import Finished, do, paths_of, targets_of
from unpool.runtime.streams.earlier import earlier_run
from unpool.runtime.streams.job import Asked, job, load_kernels
from unpool.runtime.streams.progress import Progress
from unpool.runtime.streams.result import Scores
from unpool.runtime.streams.unfinished import require_apart, require_places, require_targets

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession


def run(  # noqa: PLR0913  public options, by keyword only
    session: "InferenceSession",
    feed: Mapping[str, Any],
    target: str | Path | Mapping[str, str | Path],
    tile: Sequence[int] | str = "auto",
    *,
    output: str | None = None,
    argmax: bool = False,
    softmax: bool = False,
    threshold: float | None = None,
    max_memory: int | None = None,
    layout: str = "NCHW",
    resume: bool = False,
    told: Callable[[Progress], None] = lambda _: None,
) -> Finished:
    """Write outputs of a model into files, tile by tile: what `session.run` gives, of images that no memory holds.

    Until the last tile is written, `TARGET.part` beside the file holds its data, and a journal of the finished tiles.
    Whatever ends the process, a run with `resume=True` and the same settings goes on from there, and gives the same
    bytes as one that was never ended. What an earlier run wrote is read again and compared with the journal. Beside a
    complete output, `.TARGET.done` says what it was made of; with `resume=True`, nothing is computed again then.

    Args:
        session: that runs the tiles.
        feed: every input by name: a path (for `unpool.images.open`), what that returns, an array, or anything that
            has a shape and a type and gives arrays for `feed[name][slices]`. An object with a method `fingerprint` is
            not read to see whether it has changed.
        target: .zarr (version 3), .npy, .tif (BigTIFF in tiles, not compressed) or .nii; for several outputs, a
            file by name for each, in one folder.
        tile: elements of the first input of which one tile gives the results, by spatial axis, rounded down to a
            multiple of the total stride; "auto" takes the largest that fits into memory.
        output: name of the output for a single target; by default the only one.
        argmax: write the number of the channel with the largest value, uint8 up to 256 channels, else uint16.
        softmax: write probabilities, by the softmax over the channels, in the type of the output; it has floats.
        threshold: of an output with one channel, write 1 where it is above this number and 0 elsewhere, as uint8.
        max_memory: bytes that the process may have in all, for "auto"; by default half of what is free comes on top.
        layout: "NCHW" where inputs have channels before the spatial axes, or "NHWC".
        resume: go on with an earlier run, if there is one.
        told: is called whenever a tile is on the disk, with how far the run is.

    Returns:
        what was written, and how far the run was at its end.

    Raises:
        UnsupportedError: a node does not treat every position of the image alike; the message names it. Or the format
            of a file does not hold such an array.
        ShapeError: even the smallest tile takes too much memory.
        FileError: a file cannot be read or written.
        UnpoolError: there is an unfinished run, and `resume` is False; or `resume`, and the settings are not those of
            the earlier run.

    >>> import tempfile
    >>> import numpy as np
    >>> from onnx import parser
    >>> from unpool import InferenceSession
    >>> session = InferenceSession(parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["" : 17]>
    ...     shrink (float[1, 1, h, w] x) => (float[1, 1, hh, hw] y) {
    ...         y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
    ...     }'''))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = run(session, {"x": np.ones((1, 1, 8, 6), np.float32)}, Path(folder) / "y.npy", (4, 4))
    ...     done.progress.tiles, np.load(Path(folder) / "y.npy").shape
    (4, (1, 1, 4, 3))
    """
    targets = targets_of(session, target, output)
    require_apart(targets.values(), paths_of(session, feed))
    asked = Asked(tile, max_memory, list(targets), Scores(argmax, softmax, threshold), layout)
    with lock(targets.values()):
        return run_locked(session, feed, targets, asked, resume=resume, told=told)


def run_locked(
    session: "InferenceSession",
    feed: Mapping[str, Any],
    targets: Mapping[str, Path],
    asked: Asked,
    *,
    resume: bool,
    told: Callable[[Progress], None],
) -> Finished:
    """See `run`; the caller holds the locks of the outputs, and has seen that they are apart from the inputs."""
    require_targets(list(targets.values()))
    require_places(targets)
    earlier = earlier_run(targets, resume=resume)
    if asked.max_memory is not None:
        _load_packages(targets.values())
        load_kernels(session, feed, asked, asked.max_memory)
    return do(job(session, feed, asked, None if earlier is None else earlier.settings), targets, earlier, told)


def _load_packages(targets: Iterable[Path]) -> None:
    """Import what writes the files, so that its memory counts as taken when tiles are chosen.

    Raises:
        MissingExtraError: it is not installed.
    """
    for target in targets:
        if target.suffix == ".zarr":
            require(str(target), "formats", "zarr", "numcodecs")
            import_module("zarr")
