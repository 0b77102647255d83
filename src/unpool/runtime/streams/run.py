"""Runs a model over files: reading, computing and writing go on at the same time, and any end can be gone on from."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime

from unpool.allowance import peak
from unpool.errors import UnpoolError
from unpool.runtime.streams.arrangement import Array, Shape
from unpool.runtime.streams.flow import flow
from unpool.runtime.streams.job import Asked, Job, job
from unpool.runtime.streams.progress import Progress
from unpool.runtime.streams.unfinished import Unfinished, earlier_settings, folder_of
from unpool.runtime.tiles.run import compute_tile, read_tile
from unpool.runtime.tiles.tiling import Tile

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession


def run(  # noqa: PLR0913  public options, by keyword only
    session: "InferenceSession",
    feed: Mapping[str, Any],
    target: str | Path,
    tile: Sequence[int] | str = "auto",
    *,
    output: str | None = None,
    argmax: bool = False,
    max_memory: int | None = None,
    layout: str = "NCHW",
    resume: bool = False,
    told: Callable[[Progress], None] = lambda _: None,
) -> "Finished":
    """Write an output of a model into a file, tile by tile: what `session.run` gives, of images that no memory holds.

    Until the last tile is written, `TARGET.part` beside the file holds its data, and a journal of the finished tiles.
    Whatever ends the process, a run with `resume=True` and the same settings goes on from there, and gives the same
    bytes as one that was never ended. What an earlier run wrote is read again and compared with the journal.

    Args:
        session: that runs the tiles.
        feed: every input by name: a path (`open_source`), a source, an array, or anything that has a shape and a type
            and gives arrays for `feed[name][slices]`; a Source or something with its method `identity` is not read to
            find out whether it has changed.
        target: .zarr (version 3), .npy, .tif (BigTIFF in tiles, not compressed) or .nii.
        tile: elements of the first input of which one tile gives the results, by spatial axis, rounded down to a
            multiple of the total stride; "auto" takes the largest that fits into memory.
        output: name of the output; by default the only one.
        argmax: write the number of the channel with the largest value, uint8 up to 256 channels, else uint16.
        max_memory: bytes that the process may have in all, for "auto"; by default half of what is free comes on top.
        layout: "NCHW" where inputs have channels before the spatial axes, or "NHWC".
        resume: go on with an unfinished run, if there is one.
        told: is called whenever a tile is on the disk, with how far the run is.

    Returns:
        what was written, and how far the run was at its end.

    Raises:
        UnsupportedError: a node does not treat every position of the image alike; the message names it. Or the format
            of a file does not hold such an array.
        ShapeError: even the smallest tile takes too much memory.
        FileError: a file cannot be read or written.
        UnpoolError: there is an unfinished run, and `resume` is False or the settings are not those of it.

    >>> import tempfile
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
    place = Path(target)
    earlier = earlier_settings(place)
    if earlier is not None and not resume:
        raise UnpoolError(
            f"{place}: expected no unfinished run, {folder_of(place)} is of one. Resume it, or remove that folder."
        )
    asked = Asked(tile, max_memory, output, argmax, layout)
    whole_job = job(session, feed, asked, earlier)
    with Unfinished(place, whole_job.settings, whole_job.result.written) as unfinished:
        progress = _work(whole_job, unfinished, told)
        unfinished.finish()
    written = whole_job.result.written
    return Finished(place, written.shape, written.dtype, progress)


@dataclass(frozen=True)
class Finished:
    """A file that was written: where, of which shape and type, and how far the run was at its end."""

    path: Path
    shape: Shape
    dtype: np.dtype[Any]
    progress: Progress


def _work(job: Job, unfinished: Unfinished, told: Callable[[Progress], None]) -> Progress:
    """Run the tiles that are left."""
    finished = unfinished.finished(lambda number: job.result.window(job.tiling[number]))
    options = onnxruntime.RunOptions()
    name, begin, done = job.result.name, time.monotonic(), len(finished)

    def read(tile: Tile) -> tuple[Tile, Any]:
        return tile, read_tile(tile, job.feed)

    def compute(given: tuple[Tile, Any]) -> tuple[Tile, Array]:
        tile, read = given
        return tile, job.result.of(compute_tile(job.session, job.tiling, tile, read, options)[name])

    def write(given: tuple[Tile, Array]) -> None:
        tile, made = given
        unfinished.add(tile.number, job.result.window(tile), made)

    def end() -> None:
        options.terminate = True

    def progress() -> Progress:
        return Progress(len(job.tiling), len(finished), done, time.monotonic() - begin, peak())

    left = (tile for tile in job.tiling if tile.number not in finished)
    for _ in flow(left, (read, compute, write), end):
        done += 1
        told(progress())
    return progress()
