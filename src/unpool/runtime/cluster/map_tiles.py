"""The client's part: cuts what only it can read, keeps the workers busy, and watches over the tiles."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import dask.array as da
import numpy as np
from distributed import Client, KilledWorker, as_completed

from unpool.errors import UnpoolError
from unpool.files import lock, write_errors
from unpool.runtime.backends.ort_options import thread_budget
from unpool.runtime.cluster.job import Job, JobPlugin, run_numbered
from unpool.runtime.cluster.outputs import Outputs, chunks_of, local_place
from unpool.runtime.graph.model_files import outside
from unpool.runtime.graph.shapes import dtype
from unpool.runtime.graph.type_names import parse
from unpool.runtime.streams.inputs import input_paths
from unpool.runtime.streams.partial_output import require_apart
from unpool.runtime.tiles.tiler import Tiler
from unpool.runtime.tiles.tiling import Tile, Tiling

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession

AHEAD = 3
"""Tiles that are handed out per thread of the cluster: the one that runs, and some whose input is on its way."""


@dataclass(frozen=True)
class Work:
    """How a run goes over a cluster.

    Attributes:
        client: of the cluster.
        retries: how often a tile that raises an error is tried again.
        threads: of the model in one tile; a worker runs as many tiles at once as it has threads.
    """

    client: Client
    retries: int = 3
    threads: int = 1


def map_tiles(
    session: "InferenceSession",
    feed: Any,
    tile: Sequence[int],
    to: Any,
    work: Work,
    *,
    outputs: Iterable[str] | None = None,
    inputs: Iterable[str] | None = None,
    layout: str = "NCHW",
) -> dict[str, Any]:
    """See `InferenceSession.map_tiles`."""
    tiler = Tiler(session, layout=layout, inputs=inputs, outputs=outputs)
    arrays = _arrays(session, feed)
    tiling = tiler.tiling({name: tuple(array.shape) for name, array in arrays.items()}, tile)
    here = {name: arrays[name] for name in tiling.inputs if isinstance(arrays[name], (np.ndarray, da.Array))}
    there = {
        name: array if name in tiling.inputs else np.asarray(array)
        for name, array in arrays.items()
        if name not in here
    }
    twin = _for_workers(session, work.threads)
    types = {value.name: dtype(parse(value.type)) for value in session.get_outputs()}
    places = [place for place in [local_place(to)] if place is not None]
    require_apart(places, input_paths(session, arrays))
    for place in places:
        with write_errors(place):
            place.parent.mkdir(parents=True, exist_ok=True)
    with lock(places):
        made = Outputs(to, tiler.outputs)
        for name in tiling.outputs:
            made.create(name, tiling.shape(name), chunks_of(tiling, name), np.dtype(types[name]))
        job = Job.of(twin, tiling, there, dict(made.arrays))
        with _published(work.client, job) as name:
            for number, fixed in enumerate(_Run(work, name, tiling, here).results()):
                if not number:
                    for each, array in fixed.items():
                        made.create(each, array.shape, array.shape, array.dtype)[...] = array
        made.finish()
    return made.arrays


@dataclass(frozen=True)
class _Run:
    work: Work
    name: str
    tiling: Tiling
    cut: Mapping[str, Any]

    def results(self) -> Iterator[Any]:
        """What every tile gives back, as they are done, in any order. Nothing is left behind on the cluster."""
        left = iter(self.tiling)
        running: dict[Any, tuple[Tile, Any]] = {}
        done = as_completed(loop=self.work.client.loop, with_results=True, raise_errors=False)
        room = _Room(self.work.client)
        try:
            while True:
                for tile in islice(left, max(0, room.tiles() - len(running))):
                    future = self._submit(tile)
                    running[future.key] = (tile, future)
                    done.add(future)
                if not running:
                    return
                future, made = next(done)
                tile, _ = running.pop(future.key)
                yield made if future.status == "finished" else self._error(tile, future)
        finally:
            self.work.client.cancel([future for _, future in running.values()])

    def _submit(self, tile: Tile) -> Any:
        """Hand out one tile. Its key has its place in the grid, so that the dashboard says which one is slow."""
        pieces = {name: self._piece(array, tile.inputs[name]) for name, array in self.cut.items()}
        key = (self.name, *self._place(tile))
        client, retries = self.work.client, self.work.retries
        return client.submit(run_numbered, self.name, tile.number, pieces, key=key, retries=retries, pure=False)

    def _piece(self, array: Any, slices: tuple[slice, ...]) -> Any:
        part = array[slices]
        return self.work.client.compute(part) if isinstance(part, da.Array) else np.ascontiguousarray(part)

    def _place(self, tile: Tile) -> tuple[int, ...]:
        """Row and column, or the like."""
        return tuple(map(int, np.unravel_index(tile.number, [len(parts) for parts in self.tiling.cells])))

    def _error(self, tile: Tile, future: Any) -> Any:
        """Raise what a tile came to."""
        try:
            return future.result()
        except KilledWorker as error:
            raise UnpoolError(
                f"tiles: tile {tile.number} at {list(self._place(tile))}: expected workers that stay alive, got "
                f"{error.allowed_failures + 1} that ended while they ran it, the last one {error.last_worker.address}. "
                "Their memory may be too small for it: choose smaller tiles, or fewer threads per worker."
            ) from error


class _Room:
    """How many tiles may be handed out at a time; the cluster is asked once a second, for workers come and go."""

    def __init__(self, client: Client) -> None:
        self._client, self._tiles, self._asked = client, 0, -1.0

    def tiles(self) -> int:
        """AHEAD for every thread."""
        if monotonic() - self._asked > 1:
            self._tiles = AHEAD * max(1, sum(map(int, self._client.nthreads().values())))
            self._asked = monotonic()
        return self._tiles


def _arrays(session: "InferenceSession", feed: Any) -> dict[str, Any]:
    """The inputs by name; a model with one input takes the array alone.

    Raises:
        UnpoolError: names or types are not those of the model.
    """
    wanted = {value.name: dtype(parse(value.type)) for value in session.get_inputs()}
    if not isinstance(feed, Mapping):
        if len(wanted) != 1:
            raise UnpoolError(f"map_tiles: expected inputs {', '.join(wanted)} by name, got one array. Pass a dict.")
        feed = dict.fromkeys(wanted, feed)
    if set(feed) != set(wanted):
        raise UnpoolError(f"map_tiles: expected inputs {', '.join(wanted)}, got {', '.join(feed)}. Correct the names.")
    arrays = {name: array if hasattr(array, "shape") else np.asarray(array) for name, array in feed.items()}
    for name, array in arrays.items():
        if array.dtype != wanted[name]:
            raise UnpoolError(f"map_tiles: input {name!r}: expected {wanted[name]}, got {array.dtype}. Convert it.")
    return arrays


def _for_workers(session: "InferenceSession", threads: int) -> "InferenceSession":
    """The session as workers open it: on so many threads, and from bytes where the model is a single file."""
    config = session._config
    source = config.source
    if isinstance(source, str) and not outside(Path(source)).used:
        source = Path(source).read_bytes()
    twin = copy(session)
    twin._config = replace(config, source=source, threads=thread_budget(None, threads))
    return twin


@contextmanager
def _published(client: Client, job: Job) -> Iterator[str]:
    """Let every worker have a job, under a name that is given."""
    name = f"unpool-tile-{uuid4().hex}"
    client.register_plugin(JobPlugin(name, job))
    try:
        yield name
    finally:
        client.unregister_worker_plugin(name)
