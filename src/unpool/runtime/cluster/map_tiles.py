"""A run in tiles on a cluster of `distributed`: the client makes the tiles, workers run the model and write to Zarr.

Client: `map_tiles` publishes a `ClusterJob` to all workers, lets one of them check its memory, creates the outputs and
submits tiles by number. Worker: see `worker`. Chunks of Zarr arrays end where tiles end, so that no two tiles write to
the same chunk. Other files are written by the client, as in `unpool.streams`; workers send it their results.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import prod
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import dask.array as da
import numpy as np
from distributed import Client

from unpool.errors import UnpoolError, UnsupportedError
from unpool.files import lock, write_errors
from unpool.graph.shapes import dtype, parse_type
from unpool.images.formats import WINDOW_NAMES, format_of, suffix_of
from unpool.images.source import fingerprint_array, fingerprint_file, fingerprint_folder
from unpool.onnxruntime.options import check_threads
from unpool.runtime.cluster.tasks import TileTasks
from unpool.runtime.cluster.worker import ClusterJob, TileResult, pickle_session
from unpool.runtime.cluster.zarr_outputs import ZarrOutputs, local_folder
from unpool.runtime.streams.checkpoint import find_checkpoint, partial_folder, require_same_settings
from unpool.runtime.streams.jobs import base_settings, input_paths, source_path, tiled_spec
from unpool.runtime.streams.output_transform import OutputTransform, ScoreFormat, output_transform
from unpool.runtime.streams.partial_output import PartialOutput, require_apart, require_replaceable
from unpool.runtime.streams.runner import OutputFile, Progress, ProgressCallback
from unpool.runtime.tiles.tiler import Tiler
from unpool.runtime.tiles.tiling import Tile, Tiling, per_axis
from unpool.runtime.tiles.walk import Shape

if TYPE_CHECKING:
    from unpool.onnxruntime.session import InferenceSession

AS_THEY_ARE = ScoreFormat()
CHUNKS_AT_ONCE = 10  # of a Zarr array that zarr reads at the same time


@dataclass(frozen=True)
class ClusterOptions:
    """The options of a run; see `map_tiles`."""

    client: Client
    outputs: Iterable[str] | None = None
    inputs: Iterable[str] | None = None
    layout: str = "NCHW"
    scores: ScoreFormat = AS_THEY_ARE
    retries: int = 3
    threads: int = 1
    pause_timeout: float = 120.0
    resume: bool = False
    on_progress: ProgressCallback = lambda _: None


@dataclass(frozen=True)
class ClusterRun:
    """A run that is prepared: its job, without the location of its outputs, and its tasks."""

    job: ClusterJob
    tasks: TileTasks
    settings: Mapping[str, Any]
    options: ClusterOptions

    def run(self, finished: Collection[int], add: Callable[[Tile, TileResult], None]) -> None:
        """Run the tiles that are not finished, and add the result of each."""
        begin, peak, count, done = monotonic(), 0, len(self.job.tiling), len(finished)
        tiles = (tile for tile in self.job.tiling if tile.number not in finished)
        if finished:
            self.options.on_progress(Progress(count, done, done, 0.0, peak))
        for tile, result in self.tasks.results(tiles):
            add(tile, result)
            done, peak = done + 1, max(peak, result.peak)
            self.options.on_progress(Progress(count, len(finished), done, monotonic() - begin, peak))

    def skip(self) -> None:
        """Report that an earlier run was complete."""
        count = len(self.job.tiling)
        self.options.on_progress(Progress(count, count, count, 0.0, 0, was_complete=True))

    def windows(self, number: int) -> dict[str, Any]:
        """The window of a tile in each output."""
        targets = self.job.tiling[number].targets
        return {name: self.job.transforms[name].window(slices) for name, slices in targets.items()}


def map_tiles(  # noqa: PLR0913  keyword-only public options
    session: "InferenceSession",
    feed: Any,
    tile: Sequence[int] | int,
    *,
    client: Client,
    to: Any,
    outputs: Iterable[str] | None = None,
    inputs: Iterable[str] | None = None,
    layout: str = "NCHW",
    argmax: bool = False,
    softmax: bool = False,
    threshold: float | None = None,
    retries: int = 3,
    threads: int = 1,
    pause_timeout: float = 120.0,
    resume: bool = False,
    on_progress: ProgressCallback = lambda _: None,
) -> dict[str, Any]:
    """The outputs of the model for an image of any size, computed tile by tile on a cluster, and written to Zarr.

    A worker loads the model once, and writes its results itself. When a worker dies, others run its unfinished
    tiles. The dashboard shows each tile as `unpool-tile-...` with its row and column.

    Args:
        session: the model.
        feed: an array for a model with one input, else every input by name. Workers read Zarr arrays, and others
            that can be sliced and pickled; this process cuts NumPy arrays and memory maps, a few tiles ahead; dask
            arrays are computed on the cluster, tile by tile.
        tile: size of a tile by spatial axis, or one number for all, in elements of the first input, rounded down to
            a multiple of the total stride.
        client: `distributed.Client` of the cluster. Workers need unpool, and the storage of `to` and of Zarr inputs
            under the same name. A model in one file is sent to them; one with external data must exist there.
        to: path, URL or store, still empty: for a Zarr array, or a group with one for each of several outputs.
            Their attribute `unpool_finished` becomes true when all tiles are written. A path that ends in .npy,
            .tif or .nii is a file for one output, which this process writes.
        outputs: names of outputs to compute; by default all.
        inputs: names of the inputs to cut; by default all of the highest rank.
        layout: "NCHW" if channels come before the spatial axes, for any number of these; else "NHWC".
        argmax: write the number of the best class instead of scores, as uint8 up to 256 classes.
        softmax: write probabilities, the softmax over the channels.
        threshold: for one channel of scores: write 1 above it, else 0.
        retries: maximum number of retries of a tile that raises an error. Dask's
            `distributed.scheduler.allowed-failures` limits the workers that may die in a tile.
        threads: threads of the model in one tile; a worker runs a tile on each of its threads.
        pause_timeout: seconds after which an error says that Dask has paused all workers, because their memory is
            full; a warning of the logger `unpool.cluster` says it earlier.
        resume: continue an interrupted run with the same settings, if there is one, after the tiles that are
            written.
        on_progress: called with an `unpool.streams.Progress` whenever a tile is written; its `peak` is the largest
            of the workers so far.

    Returns:
        Zarr arrays by output: the results of `run` on the whole image, as `unpool.tiles.run` gives them; or an
        `unpool.streams.OutputFile` for a file.

    Raises:
        UnsupportedError: a node does not treat every position of the image alike, or Zarr lacks the type.
        ShapeError: the memory limit of a worker is too small for a tile on each of its threads.
        FileError: `to` is not empty, or left from an interrupted run and `resume` is False.
        UnpoolError: `tile` or the inputs do not fit; too many workers died in the same tile, all are paused, or the
            scheduler is gone; or `resume`, and the settings are not those of the interrupted run.
        MissingExtraError: distributed or zarr is not installed.
    """
    scores = ScoreFormat(argmax, softmax, threshold)
    options = ClusterOptions(
        client, outputs, inputs, layout, scores, retries, threads, pause_timeout, resume, on_progress
    )
    if not options.pause_timeout > 0:
        fact = f"expected a number of seconds above 0, got {options.pause_timeout!r}"
        raise UnpoolError(f"map_tiles: pause_timeout: {fact}. Pass math.inf to wait for ever.")
    folder = local_folder(to)
    if folder is not None and isinstance(to, (str, Path)):
        to = str(folder.absolute())
    tiler = Tiler(session, layout=options.layout, inputs=options.inputs, outputs=options.outputs)
    arrays = _input_arrays(session, feed)
    run = _prepare(session, tiler, arrays, tile, options)
    folders = [] if folder is None else [folder.absolute()]
    require_apart(folders, input_paths(session, arrays))
    is_file = bool(folders) and _is_file(folders[0], tiler.outputs)
    for path in folders:
        with write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
    with lock(folders):
        return _into_file(run, folders[0]) if is_file else _into_zarr(run, to, tiler.outputs)


def _into_zarr(run: ClusterRun, to: Any, names: tuple[str, ...]) -> dict[str, Any]:
    outputs = ZarrOutputs(to, names, run.job.tiling, run.job.transforms)
    if outputs.find(run.settings, resume=run.options.resume):
        run.skip()
        return outputs.arrays
    with run.tasks.published(replace(run.job, location=outputs.location)):
        run.tasks.check_workers()
        is_new = not outputs.arrays
        outputs.create(run.settings)
        run.run(set() if is_new else outputs.finished_tiles(), lambda _, result: outputs.add(result.arrays))
    outputs.finish()
    return outputs.arrays


def _into_file(run: ClusterRun, path: Path) -> dict[str, Any]:
    (name,) = run.job.tiling.outputs
    spec, targets = run.job.transforms[name].spec, {name: path}
    written = {name: OutputFile(path, spec.shape, spec.dtype, spec.classes)}
    require_replaceable(targets)
    checkpoint = find_checkpoint(targets, resume=run.options.resume)
    if checkpoint is not None and checkpoint.is_complete:
        require_same_settings(checkpoint, run.settings, path, partial_folder(targets))
        run.skip()
        return written
    with run.tasks.published(run.job):
        run.tasks.check_workers()
        with PartialOutput(targets, run.settings, {name: spec}, len(run.job.tiling)) as output:

            def add(tile: Tile, result: TileResult) -> None:
                output.add(tile.number, run.windows(tile.number), result.arrays)

            run.run(output.finished_parts(run.windows), add)
            output.finish()
    return written


def _is_file(path: Path, names: tuple[str, ...]) -> bool:
    """True for the name of a file into which tiles can be written; other names are those of Zarr arrays."""
    known, suffix = format_of(path), suffix_of(path)
    if known is None or known.is_folder:
        return False
    if known.windows is None:
        endings = ", ".join(f".{name}" for name in WINDOW_NAMES)
        raise UnsupportedError(f"{path}: tiles of a cluster go into {endings}; got {suffix}. Choose one of them.")
    if len(names) > 1:
        raise UnpoolError(f"{path}: a {suffix} file holds one output, got {', '.join(names)}. Choose one, or .zarr.")
    return True


def _prepare(
    session: "InferenceSession",
    tiler: Tiler,
    arrays: Mapping[str, Any],
    tile: Sequence[int] | int,
    options: ClusterOptions,
) -> ClusterRun:
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    tiling = tiler.tiling(shapes, tile)
    client_inputs, worker_inputs = {}, {}
    for name, array in arrays.items():
        if name in tiling.inputs and isinstance(array, (np.ndarray, da.Array)):
            client_inputs[name] = array
        else:
            worker_inputs[name] = array if name in tiling.inputs else np.asarray(array)
    transforms = _transforms(session, tiling, options.scores)
    least = tiler.smallest_tiling(shapes).max_input_shapes()
    content, read = pickle_session(session, check_threads(options.threads) or 1), tiling.max_input_shapes()
    job = ClusterJob(
        sha256(content).hexdigest(),
        content,
        tiling,
        worker_inputs,
        None,
        transforms,
        {name: (shape, arrays[name].dtype) for name, shape in least.items()},
        max(tiler.lean_bytes(shapes, read), _read_bytes(worker_inputs, tiling)),
        tiler.arena_bytes(shapes, read),
    )
    settings = {
        **base_settings(session, arrays, transforms, options.scores, options.layout, _fingerprint),
        "tile": per_axis(tile, len(tiling.axes)),
        "outputs": list(tiler.outputs),
        "cut": list(tiling.inputs),
        "types": [transform.spec.dtype.str for transform in transforms.values()],
    }
    name = f"unpool-tile-{uuid4().hex}"
    tasks = TileTasks(options.client, name, tiling, client_inputs, options.retries, options.pause_timeout)
    return ClusterRun(job, tasks, json.loads(json.dumps(settings)), options)


def _transforms(session: "InferenceSession", tiling: Tiling, scores: ScoreFormat) -> dict[str, OutputTransform]:
    if scores != AS_THEY_ARE and tiling.constant_outputs:
        name = tiling.constant_outputs[0]
        raise UnpoolError(f"output {name!r}: does not depend on the image and has no classes. Choose other outputs.")
    return {name: output_transform(name, tiled_spec(session, tiling, name), scores) for name in tiling.outputs}


def _read_bytes(inputs: Mapping[str, Any], tiling: Tiling) -> int:
    """Bytes of the Zarr inputs of a tile, and of their chunks that are unpacked at the same time."""
    total = 0
    for name, shape in tiling.max_input_shapes().items():
        chunks: Shape | None = getattr(inputs.get(name), "chunks", None)
        if chunks is not None:
            count = prod(-(-size // chunk) + (size > 1) for size, chunk in zip(shape, chunks, strict=True))
            total += (prod(shape) + min(count, CHUNKS_AT_ONCE) * prod(chunks)) * inputs[name].dtype.itemsize
    return total


def _fingerprint(array: Any) -> str:
    """Equal where a later run reads the same, as far as that is known without reading storage."""
    if hasattr(array, "fingerprint"):
        return str(array.fingerprint())
    if isinstance(array, da.Array):
        return str(array.name)
    path = source_path(array)
    if path is not None and path.exists():
        return fingerprint_folder(path) if path.is_dir() else f"{fingerprint_file(path)} {array.shape} {array.dtype}"
    if isinstance(array, np.ndarray):
        return fingerprint_array(array)
    place = f"{array.store}/{array.path} " if hasattr(array, "store") and hasattr(array, "path") else ""
    return f"{place}{type(array).__name__} {array.shape} {array.dtype}"


def _input_arrays(session: "InferenceSession", feed: Any) -> dict[str, Any]:
    """The inputs by name, which must have the names and types of the model; its only input may be a single array."""
    expected = {value.name: dtype(parse_type(value.type)) for value in session.get_inputs()}
    if not isinstance(feed, Mapping):
        if len(expected) != 1:
            raise UnpoolError(f"map_tiles: expected inputs {', '.join(expected)} by name, got one array. Pass a dict.")
        feed = dict.fromkeys(expected, feed)
    if set(feed) != set(expected):
        raise UnpoolError(
            f"map_tiles: expected inputs {', '.join(expected)}, got {', '.join(feed)}. Pass the names of the model."
        )
    arrays = {name: array if hasattr(array, "shape") else np.asarray(array) for name, array in feed.items()}
    for name, array in arrays.items():
        if array.dtype != expected[name]:
            raise UnpoolError(f"map_tiles: input {name!r}: expected {expected[name]}, got {array.dtype}. Use astype.")
    return arrays
