"""A run in tiles on a cluster of `distributed`: the client cuts, workers run the model and write to Zarr.

Client: `map_tiles` creates the Zarr arrays, publishes a `ClusterJob` to all workers, and submits tiles by number.
Worker: `run_tile_number` loads the session once per process, runs a tile, and writes its results. Chunks end where
tiles end, so that no two tiles write to the same chunk.
"""

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import dask.array as da
import numpy as np
from distributed import Client, KilledWorker, WorkerPlugin, as_completed

from unpool.errors import FileError, UnpoolError, UnsupportedError
from unpool.files import lock, write_errors
from unpool.runtime.backends.ort_options import thread_budget
from unpool.runtime.graph.save import external_files
from unpool.runtime.graph.shapes import dtype, parse_type
from unpool.runtime.streams.jobs import input_paths
from unpool.runtime.streams.partial_output import require_apart
from unpool.runtime.tiles.run import Arrays, run_tile, write_tile
from unpool.runtime.tiles.tiler import Tiler
from unpool.runtime.tiles.tiling import Slices, Tile, Tiling
from unpool.runtime.tiles.walk import Shape

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession

TILES_PER_THREAD = 3  # that are submitted per thread of the cluster: one that runs, some whose input is on its way
MAX_CACHED_SESSIONS = 2  # of a worker: that of the run, and one from an earlier run
MAX_CHUNK_LENGTH = 1024  # along a spatial axis, unless the length of a tile has no divisor close to it
FINISHED = "unpool_finished"  # the attribute that becomes true when all tiles are written


@dataclass(frozen=True)
class ClusterOptions:
    """Options of a run: retries of a tile that raises an error, and threads of the model in each tile of a worker."""

    client: Client
    retries: int = 3
    threads: int = 1


def map_tiles(
    session: "InferenceSession",
    feed: Any,
    tile: Sequence[int] | int,
    to: Any,
    options: ClusterOptions,
    *,
    outputs: Iterable[str] | None = None,
    inputs: Iterable[str] | None = None,
    layout: str = "NCHW",
) -> dict[str, Any]:
    """See `InferenceSession.map_tiles`."""
    tiler = Tiler(session, layout=layout, inputs=inputs, outputs=outputs)
    arrays = _input_arrays(session, feed)
    tiling = tiler.tiling({name: tuple(array.shape) for name, array in arrays.items()}, tile)
    client_inputs, worker_inputs = {}, {}
    for name, array in arrays.items():
        if name in tiling.inputs and isinstance(array, (np.ndarray, da.Array)):
            client_inputs[name] = array
        else:
            worker_inputs[name] = array if name in tiling.inputs else np.asarray(array)
    content = _pickle_session(session, options.threads)
    types = {value.name: dtype(parse_type(value.type)) for value in session.get_outputs()}
    folders = list(filter(None, [local_folder(to)]))
    require_apart(folders, input_paths(session, arrays))
    for path in folders:
        with write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
    with lock(folders):
        zarr_outputs = ZarrOutputs(to, tiler.outputs)
        for name in tiling.outputs:
            zarr_outputs.create(name, tiling.shape(name), chunk_shape(tiling, name), np.dtype(types[name]))
        job = ClusterJob(sha256(content).hexdigest(), content, tiling, worker_inputs, dict(zarr_outputs.arrays))
        name = f"unpool-tile-{uuid4().hex}"
        options.client.register_plugin(JobPlugin(name, job))
        try:
            scheduler = _TileScheduler(options, name, tiling, client_inputs)
            for number, constant in enumerate(scheduler.results()):
                if not number:
                    for output, array in constant.items():
                        zarr_outputs.create(output, array.shape, array.shape, array.dtype)[...] = array
        finally:
            options.client.unregister_worker_plugin(name)
        zarr_outputs.finish()
    return zarr_outputs.arrays


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


def _pickle_session(session: "InferenceSession", threads: int) -> bytes:
    """The session for workers, from bytes where the model is a single file."""
    config, source = session._config, session._config.source
    if isinstance(source, str) and not external_files(Path(source)).used:
        source = Path(source).read_bytes()
    twin = copy(session)
    twin._config = replace(config, source=source, threads=thread_budget(None, threads))
    return pickle.dumps(twin)


@dataclass(frozen=True)
class _TileScheduler:
    """Keeps the workers busy with the tiles of one job."""

    options: ClusterOptions
    name: str
    tiling: Tiling
    inputs: Mapping[str, Any]

    def results(self) -> Iterator[Any]:
        """The constant outputs from every tile, in the order of completion. At the end, no task is left running."""
        tiles = iter(self.tiling)
        running: dict[Any, tuple[Tile, Any]] = {}
        client, capacity, updated = self.options.client, 0, -1.0
        done = as_completed(loop=client.loop, with_results=True, raise_errors=False)
        try:
            while True:
                if monotonic() - updated > 1:  # workers come and go
                    capacity = TILES_PER_THREAD * max(1, sum(map(int, client.nthreads().values())))
                    updated = monotonic()
                for tile in islice(tiles, max(0, capacity - len(running))):
                    future = self._submit(tile)
                    running[future.key] = (tile, future)
                    done.add(future)
                if not running:
                    return
                future, result = next(done)
                tile, _ = running.pop(future.key)
                yield result if future.status == "finished" else self._raise_error(tile, future)
        finally:
            client.cancel([future for _, future in running.values()])

    def _submit(self, tile: Tile) -> Any:
        """Submit a tile. Its key has its position in the grid, which the dashboard shows for slow tiles."""
        client, parts = self.options.client, {}
        for name, array in self.inputs.items():
            part = array[tile.inputs[name]]
            parts[name] = client.compute(part) if isinstance(part, da.Array) else np.ascontiguousarray(part)
        key, retries = (self.name, *self._grid_position(tile)), self.options.retries
        return client.submit(run_tile_number, self.name, tile.number, parts, key=key, retries=retries, pure=False)

    def _grid_position(self, tile: Tile) -> tuple[int, ...]:
        return tuple(map(int, np.unravel_index(tile.number, [len(cells) for cells in self.tiling.cells])))

    def _raise_error(self, tile: Tile, future: Any) -> Any:
        try:
            return future.result()
        except KilledWorker as error:
            raise UnpoolError(
                f"tiles: {error.allowed_failures + 1} workers died while they ran tile {tile.number} at "
                f"{list(self._grid_position(tile))}, the last one {error.last_worker.address}. Their memory may be too "
                "small for it: choose smaller tiles, or fewer threads per worker."
            ) from error


class ZarrOutputs:
    """The Zarr arrays of one run: one array for a single output, else a group with an array for each."""

    def __init__(self, store: Any, names: tuple[str, ...]) -> None:
        """Create the group, at a free path or in a Zarr store."""
        self._store, self._names = store, names
        self.arrays: dict[str, Any] = {}
        self._group: Any = None
        if len(names) != 1:
            self._group = self._create(lambda zarr: zarr.create_group(store, attributes={FINISHED: False}))

    def create(self, name: str, shape: Shape, chunks: Shape, dtype: "np.dtype[Any]") -> Any:
        """A new array, of a type that Zarr has."""
        if dtype.kind not in "?biuf":
            raise UnsupportedError(
                f"{self._store}: output {name!r}: expected a type that Zarr has, got {dtype}. Choose other outputs."
            )
        options = {"shape": shape, "chunks": tuple(max(1, size) for size in chunks), "dtype": dtype, "fill_value": 0}
        if self._group is None:
            options["attributes"] = {FINISHED: False}
            self.arrays[name] = self._create(lambda zarr: zarr.create_array(self._store, **options))
        else:
            self.arrays[name] = self._group.create_array(name.strip("/"), **options)
        return self.arrays[name]

    def finish(self) -> None:
        """Mark the arrays as complete."""
        root = self.arrays[self._names[0]] if self._group is None else self._group
        root.attrs[FINISHED] = True

    def _create(self, make: Any) -> Any:
        import zarr

        try:
            return make(zarr)
        except (OSError, ValueError) as error:  # zarr's own errors are ValueErrors
            raise FileError(
                f"{self._store}: expected a free place for Zarr arrays, got: {error}. Choose another."
            ) from error


def local_folder(to: Any) -> Path | None:
    """The folder of Zarr arrays; None for a URL, or a store that is no folder.

    >>> local_folder("masks/a.zarr").name, local_folder("s3://masks/a.zarr")
    ('a.zarr', None)
    """
    if isinstance(to, (str, Path)):
        return None if "://" in str(to) else Path(to)
    root = getattr(getattr(to, "store", to), "root", None)
    return None if root is None else Path(root, getattr(to, "path", ""))


def chunk_shape(tiling: Tiling, name: str) -> Shape:
    """The chunks of an output: a tile, or equal parts of it.

    >>> [_chunk_length(length) for length in (512, 4096, 3000, 4099)]
    [512, 1024, 1000, 4099]
    """
    spans = [next(cell.output_spans[name] for cell in cells if name in cell.output_spans) for cells in tiling.cells]
    return tiling.trace.fields[name].shape_for([_chunk_length(span.stop - span.first) for span in spans])


def _chunk_length(length: int) -> int:
    """The largest divisor of a length up to MAX_CHUNK_LENGTH; the length itself where that is too short."""
    divisors = (length // count for count in range(1, length + 1) if length % count == 0)
    chunk = next((divisor for divisor in divisors if divisor <= MAX_CHUNK_LENGTH), length)
    return chunk if chunk * 16 > MAX_CHUNK_LENGTH or chunk == length else length


@dataclass(frozen=True)
class ClusterJob:
    """One run, as every worker has it: a pickled session with its digest, and the Zarr arrays of the outputs.

    The feed has the inputs that workers read: arrays in storage that all of them reach, and inputs that are not cut.
    """

    digest: str
    session: bytes
    tiling: Tiling
    feed: Mapping[str, Any]
    outputs: Mapping[str, Any]


@dataclass(frozen=True)
class InputPart:
    """The part of an input that a tile reads, cut by the client; any slices return all of it."""

    array: Any

    def __getitem__(self, slices: Slices) -> Any:
        return self.array


class JobPlugin(WorkerPlugin):
    """Gives the job to every worker, also to those that join or restart later."""

    def __init__(self, name: str, job: ClusterJob) -> None:
        self.name, self._job = name, job

    def setup(self, worker: Any) -> None:  # noqa: ARG002 - the name is distributed's
        """Store the job; the first tile loads its session."""
        _jobs[self.name] = self._job

    def teardown(self, worker: Any) -> None:  # noqa: ARG002 - the name is distributed's
        """Drop the job; its session stays for the next one."""
        _jobs.pop(self.name, None)


_jobs: dict[str, ClusterJob] = {}
_sessions: dict[str, "InferenceSession"] = {}
_loading = Lock()


def run_tile_number(name: str, number: int, parts: Mapping[str, Any]) -> Arrays:
    """Run a tile of a job on a worker, and write its results; the client writes the constant outputs, returned here."""
    job = _jobs[name]
    tile = job.tiling[number]
    feed = {**job.feed, **{input_name: InputPart(part) for input_name, part in parts.items()}}
    with _loading:
        session = _sessions.pop(job.digest, None) or pickle.loads(job.session)
        while len(_sessions) >= MAX_CACHED_SESSIONS:
            del _sessions[next(iter(_sessions))]
        _sessions[job.digest] = session
    results = run_tile(session, job.tiling, tile, feed)
    write_tile(job.outputs, tile, results)
    return {output: np.asarray(results[output]) for output in job.tiling.constant_outputs}
