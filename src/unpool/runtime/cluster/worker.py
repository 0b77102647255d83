"""Tiles on a worker: it loads the session once per process, runs tiles, and writes or returns their results.

Tiles have several shapes. If a worker keeps memory for each of them, Dask pauses it. So sessions do not use
onnxruntime's memory pattern, and processes that a nanny starts do not use unpool's memory pool. If the memory limit is
too small for onnxruntime's arena, a process is *lean*: it uses no arena, and returns large blocks to the system when
they are freed, which takes more time.
"""

import pickle
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from math import ceil
from pathlib import Path
from threading import Lock
from typing import Any

import dask
import numpy as np
from distributed import WorkerPlugin, get_worker

from unpool.display import format_shape
from unpool.errors import ShapeError, UnpoolError
from unpool.graph.save import external_files
from unpool.memory import map_blocks, peak_rss, pool_limit, rss, set_pool_limit, trim_heap
from unpool.onnxruntime.errors import run_session
from unpool.onnxruntime.options import OptionsState
from unpool.onnxruntime.session import InferenceSession, SessionState
from unpool.runtime.cluster.zarr_outputs import ZarrLocation
from unpool.runtime.streams.output_transform import OutputTransform
from unpool.runtime.tiles.run import Arrays, compute_tile
from unpool.runtime.tiles.tiling import Tiling
from unpool.runtime.tiles.walk import Shape

MAX_CACHED_SESSIONS = 2  # of a worker: the session of the run, and one of an earlier run
LEAN_BLOCK = 1 << 20  # bytes, from which a lean process maps blocks on their own


@dataclass(frozen=True)
class ClusterJob:
    """A run, in the form that every worker gets.

    digest, session     the state of a pickled session
    feed                inputs that workers read: arrays in storage that all of them reach, and inputs that are not cut
    location            the Zarr arrays of the outputs; None where results go back to the client
    transforms          by output, the step to its array
    least_inputs        shapes and types of the inputs of the smallest tile
    lean_bytes          forecast of the memory of a tile in bytes, in a lean process
    arena_bytes         upper bound of the memory of tiles in bytes, in a process that is not
    """

    digest: str
    session: bytes
    tiling: Tiling
    feed: Mapping[str, Any]
    location: ZarrLocation | None
    transforms: Mapping[str, OutputTransform]
    least_inputs: Mapping[str, tuple[Shape, "np.dtype[Any]"]]
    lean_bytes: int
    arena_bytes: int


@dataclass(frozen=True)
class TileResult:
    """The result of a tile: arrays that the client writes, and the peak memory of the worker in bytes."""

    arrays: Arrays
    peak: int


class JobPlugin(WorkerPlugin):
    """Gives the job to every worker, also to those that join or restart later."""

    def __init__(self, name: str, job: ClusterJob) -> None:
        self.name, self._job = name, job
        self._pool_limit: int | None = None  # of the process before the job

    def setup(self, worker: Any) -> None:
        """Store the job; the first tile loads its session."""
        if worker.nanny is not None:  # otherwise it may be the caller's process
            self._pool_limit = pool_limit()
            set_pool_limit(0)
        _jobs[self.name] = self._job

    def teardown(self, worker: Any) -> None:  # noqa: ARG002 - the name is distributed's
        """Drop the job; its session stays for the next one."""
        _jobs.pop(self.name, None)
        if _jobs:
            return
        if self._pool_limit is not None:
            set_pool_limit(self._pool_limit)
            if any(_is_lean.values()):
                map_blocks()
        _is_lean.clear()


_jobs: dict[str, ClusterJob] = {}
_is_lean: dict[str, bool] = {}  # by job, from its first tile
_sessions: dict[tuple[str, bool], InferenceSession] = {}  # by the digest, and whether they are lean
_loading = Lock()


def pickle_session(session: InferenceSession, threads: int) -> bytes:
    """The pickled session for workers: the model as bytes of one file, no memory pattern, this number of threads."""
    state, source = session.state(), session.source
    if isinstance(source, str) and not external_files(Path(source)).used:
        state = state._replace(source=Path(source).read_bytes())
    return pickle.dumps(_with_attributes(state, enable_mem_pattern=False, intra_op_num_threads=threads))


def _with_attributes(state: SessionState, **attributes: Any) -> SessionState:
    """The state with other attributes of its options."""
    options = state.options or OptionsState({}, {})
    options = options._replace(attributes={**options.attributes, **attributes})
    return state._replace(options=options, words={**state.words, "threads": None})


def check_worker(name: str) -> str:
    """Load the session of a job on a worker, and say how; a ShapeError where it has too little memory for the tiles."""
    _session_of(name)
    job = _jobs[name]
    if _is_lean[name]:
        return f"memory of workers: too small for an arena; tiles take about {_mib(job.lean_bytes)} MiB, and more time"
    return f"memory of workers: tiles take up to {_mib(job.arena_bytes)} MiB, in an arena"


def run_tile_number(name: str, number: int, parts: Mapping[str, Any]) -> TileResult:
    """Run a tile of a job on a worker, and write its results; the client writes those that are returned."""
    session, job = _session_of(name), _jobs[name]
    tile = job.tiling[number]
    read = {
        input_name: np.ascontiguousarray(parts[input_name] if input_name in parts else job.feed[input_name][slices])
        for input_name, slices in tile.inputs.items()
    }
    results = compute_tile(session, job.tiling, tile, {**job.feed, **read})
    tiled = {output: job.transforms[output].apply(results[output]) for output in tile.targets}
    if job.location is None:
        return TileResult({output: np.ascontiguousarray(array) for output, array in tiled.items()}, peak_rss())
    arrays = job.location.arrays
    for output, slices in tile.targets.items():
        arrays[output][job.transforms[output].window(slices)] = tiled[output]
    return TileResult({output: np.asarray(results[output]) for output in job.tiling.constant_outputs}, peak_rss())


def _session_of(name: str) -> InferenceSession:
    """The session of a job; before its first tile, the memory of the process decides whether it is lean."""
    job = _jobs[name]
    with _loading:
        if name not in _is_lean:
            _is_lean[name] = _is_lean_for(job)
        return _load(job, _is_lean[name])


def _load(job: ClusterJob, is_lean: bool) -> InferenceSession:
    key = (job.digest, is_lean)
    session = _sessions.pop(key, None)
    if session is None:
        state = pickle.loads(job.session)
        session = (_with_attributes(state, enable_cpu_mem_arena=False) if is_lean else state).restore()
    while len(_sessions) >= MAX_CACHED_SESSIONS:
        del _sessions[next(iter(_sessions))]
    _sessions[key] = session
    return session


def _is_lean_for(job: ClusterJob) -> bool:
    """True if the memory limit is too small for an arena; a ShapeError where it is for a tile on every thread too."""
    worker = get_worker()
    limit, threads = worker.memory_manager.memory_limit, worker.state.nthreads
    if not limit:
        return False
    for package in ("zarr", "numcodecs"):
        import_module(package)
    pause = worker.memory_manager.memory_pause_fraction or 1.0
    if _loaded_bytes(job, False) + threads * job.arena_bytes + pool_limit() <= pause * limit:
        return False
    used = _loaded_bytes(job, True)
    terminate = dask.config.get("distributed.worker.memory.terminate") or 1.0
    needed = max((used + threads * job.lean_bytes) / terminate, used / pause)
    if needed > limit:
        reads = ", ".join(format_shape(shape) for shape in job.tiling.max_input_shapes().values())
        parts = f"{_mib(used)} MiB of its process, and {_mib(job.lean_bytes)} MiB for a tile that reads {reads}"
        times = f" on each of {threads} threads" if threads > 1 else ""
        raise ShapeError(
            f"tiles: the memory limit of {_mib(limit)} MiB of worker {worker.address} is too small: it needs about "
            f"{ceil(needed / 2**20)} MiB, for {parts}{times}. Take smaller tiles, fewer threads per worker, "
            "or a higher --memory-limit."
        )
    if worker.nanny is not None:
        map_blocks(LEAN_BLOCK)
    return True


def _loaded_bytes(job: ClusterJob, is_lean: bool) -> int:
    """Memory of the process in bytes, with the session of a job and its kernels, without those of earlier jobs."""
    _sessions.clear()
    zeros = {name: np.zeros(shape, dtype) for name, (shape, dtype) in job.least_inputs.items()}
    with suppress(UnpoolError):  # the first tile raises it again
        run_session(_load(job, is_lean), None, {**job.feed, **zeros})
    trim_heap()
    return rss()


def _mib(size: float) -> int:
    return round(size / 2**20)
