"""Tiles on a worker: it loads the session once per process, runs tiles, and writes or returns their results.

A worker's process keeps no memory from one tile to the next, so that Dask does not pause it: sessions have neither the
memory pattern nor the arena of onnxruntime, and in a process of a nanny the pool of unpool is off and large blocks go
back to the system when they are freed.
"""

import pickle
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from math import ceil
from threading import Lock
from typing import TYPE_CHECKING, Any

import dask
import numpy as np
from distributed import WorkerPlugin, get_worker

from unpool.display import format_shape
from unpool.errors import ShapeError, UnpoolError
from unpool.images.axes import Slices
from unpool.memory import map_large_blocks, peak_rss, pool_limit, rss, set_pool_limit, trim_heap
from unpool.runtime.cluster.zarr_outputs import ZarrLocation
from unpool.runtime.streams.output_transform import OutputTransform
from unpool.runtime.tiles.run import Arrays, run_tile
from unpool.runtime.tiles.tiling import Tiling
from unpool.runtime.tiles.walk import Shape

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession

MAX_CACHED_SESSIONS = 2  # of a worker: that of the run, and one from an earlier run


@dataclass(frozen=True)
class ClusterJob:
    """One run, as every worker has it.

    digest, session     the state of a pickled session
    feed                inputs that workers read: arrays in storage that all of them reach, and inputs that are not cut
    location            the Zarr arrays of the outputs; None where results go back to the client
    transforms          by output, the step to its array
    least_inputs        shapes and types of the inputs of the smallest tile
    tile_bytes          forecast of the memory of a tile in bytes
    """

    digest: str
    session: bytes
    tiling: Tiling
    feed: Mapping[str, Any]
    location: ZarrLocation | None
    transforms: Mapping[str, OutputTransform]
    least_inputs: Mapping[str, tuple[Shape, "np.dtype[Any]"]]
    tile_bytes: int


@dataclass(frozen=True)
class TileResult:
    """What a tile returns to the client: arrays that the client writes, and the peak memory of the worker in bytes."""

    arrays: Arrays
    peak: int


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
        self._pool_limit: int | None = None  # that of the process before the job

    def setup(self, worker: Any) -> None:
        """Store the job; the first tile loads its session."""
        if worker.nanny is not None:  # else the process may be that of the caller
            self._pool_limit = pool_limit()
            set_pool_limit(0)
            map_large_blocks()
        _jobs[self.name] = self._job

    def teardown(self, worker: Any) -> None:  # noqa: ARG002 - the name is distributed's
        """Drop the job; its session stays for the next one."""
        _jobs.pop(self.name, None)
        _checked.discard(self.name)
        if self._pool_limit is not None and not _jobs:
            set_pool_limit(self._pool_limit)


_jobs: dict[str, ClusterJob] = {}
_checked: set[str] = set()
_sessions: dict[str, "InferenceSession"] = {}
_loading = Lock()


def pickle_session(state: dict[str, Any], kind: type, threads: int) -> bytes:
    """The session for workers, from its state: without memory pattern and arena, and with this number of threads."""
    attributes, entries = state["config"]["options"] or ({}, {})
    lean = {"enable_mem_pattern": False, "enable_cpu_mem_arena": False, "intra_op_num_threads": threads}
    config = {**state["config"], "threads": None, "options": ({**attributes, **lean}, entries)}
    return pickle.dumps((kind, {**state, "config": config}))


def check_worker(name: str) -> None:
    """Load the session of a job on a worker; a ShapeError where its memory is too small for a tile on every thread."""
    _session_of(name)


def run_tile_number(name: str, number: int, parts: Mapping[str, Any]) -> TileResult:
    """Run a tile of a job on a worker, and write its results; the client writes those that are returned."""
    session, job = _session_of(name), _jobs[name]
    tile = job.tiling[number]
    feed = {**job.feed, **{input_name: InputPart(part) for input_name, part in parts.items()}}
    results = run_tile(session, job.tiling, tile, feed)
    tiled = {output: job.transforms[output].apply(results[output]) for output in tile.targets}
    if job.location is None:
        return TileResult({output: np.ascontiguousarray(array) for output, array in tiled.items()}, peak_rss())
    arrays = job.location.arrays
    for output, slices in tile.targets.items():
        arrays[output][job.transforms[output].window(slices)] = tiled[output]
    return TileResult({output: np.asarray(results[output]) for output in job.tiling.constant_outputs}, peak_rss())


def _session_of(name: str) -> "InferenceSession":
    """The session of a job, which is loaded and checked before its first tile."""
    job = _jobs[name]
    with _loading:
        session = _sessions.pop(job.digest, None) or _load(job.session)
        while len(_sessions) >= MAX_CACHED_SESSIONS:
            del _sessions[next(iter(_sessions))]
        _sessions[job.digest] = session
        if name not in _checked:
            _require_memory(session, job)
            _checked.add(name)
    return session


def _load(content: bytes) -> "InferenceSession":
    kind, state = pickle.loads(content)
    session: InferenceSession = kind.__new__(kind)
    session.__setstate__(state)
    return session


def _require_memory(session: "InferenceSession", job: ClusterJob) -> None:
    """Refuse a worker whose memory limit is below what its process takes and a tile on every thread."""
    worker = get_worker()
    limit, threads = worker.memory_manager.memory_limit, worker.state.nthreads
    if not limit:
        return
    for package in ("zarr", "numcodecs"):
        import_module(package)
    zeros = {name: np.zeros(shape, dtype) for name, (shape, dtype) in job.least_inputs.items()}
    with suppress(UnpoolError):  # kernels are loaded, and count as used; the first tile raises it again
        session.run(None, {**job.feed, **zeros})
    trim_heap()
    used = rss()
    pause = worker.memory_manager.memory_pause_fraction or 1.0
    terminate = dask.config.get("distributed.worker.memory.terminate") or 1.0
    needed = max((used + threads * job.tile_bytes) / terminate, used / pause)
    if needed > limit:
        reads = ", ".join(format_shape(shape) for shape in job.tiling.max_input_shapes().values())
        parts = f"{_mib(used)} MiB of its process, and {_mib(job.tile_bytes)} MiB for a tile that reads {reads}"
        times = f" on each of {threads} threads" if threads > 1 else ""
        raise ShapeError(
            f"tiles: the memory limit of {_mib(limit)} MiB of worker {worker.address} is too small: it needs about "
            f"{ceil(needed / 2**20)} MiB, for {parts}{times}. Take smaller tiles, fewer threads per worker, "
            "or a higher --memory-limit."
        )


def _mib(size: float) -> int:
    return round(size / 2**20)
