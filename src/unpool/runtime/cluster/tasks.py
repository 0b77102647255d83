"""The tiles of a run as tasks of a cluster, and a watch over workers that run none of them."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, KilledWorker, as_completed

from unpool.errors import UnpoolError
from unpool.runtime.cluster.worker import ClusterJob, JobPlugin, TileResult, check_worker, run_tile_number
from unpool.runtime.tiles.tiling import Tile, Tiling

TILES_PER_THREAD = 3  # that are submitted per thread of the cluster: one that runs, some whose input is on its way
POLL_SECONDS = 0.1  # between two looks at tasks; the end of one ends the wait for the next look
WATCH_SECONDS = 2.0  # between two looks at the workers, while no task ends
WARN_SECONDS = 10.0  # without the end of a task, before a warning
RESUME = "What is written stays: resume=True (--resume) continues there."

_log = logging.getLogger("unpool.cluster")


@dataclass(frozen=True)
class TileTasks:
    """Keeps the workers busy with the tiles of one job; `inputs` are those that the client or the cluster cuts."""

    client: Client
    name: str
    tiling: Tiling
    inputs: Mapping[str, Any]
    retries: int
    pause_timeout: float

    @contextmanager
    def published(self, job: ClusterJob) -> Iterator[None]:
        """Give all workers the job inside the block."""
        self.client.register_plugin(JobPlugin(self.name, job))
        try:
            yield
        finally:
            if self.client.status == "running":
                with suppress(OSError, TimeoutError):  # the scheduler ends at the same time
                    self.client.unregister_worker_plugin(self.name)

    def check_workers(self) -> None:
        """Load the job on a worker with the least memory per thread; a ShapeError where that is too small."""
        workers = self._workers()
        shares = {
            address: worker["memory_limit"] / worker["nthreads"]
            for address, worker in workers.items()
            if worker.get("memory_limit") and worker["nthreads"]
        }
        least = [address for address, share in shares.items() if share == min(shares.values())]
        if not least:
            return

        def submit(_: None) -> Any:
            words: dict[str, Any] = {"workers": least, "allow_other_workers": True, "retries": self.retries}
            return self.client.submit(check_worker, self.name, key=(f"{self.name}-check", 0), pure=False, **words)

        for _, memory in self._run([None], submit, lambda _: "the model was loaded"):
            _log.info("%s", memory)

    def results(self, tiles: Iterable[Tile]) -> Iterator[tuple[Tile, TileResult]]:
        """The result of every tile, in the order of completion. At the end, no task is left running."""
        return self._run(
            tiles, self._submit, lambda tile: f"they ran tile {tile.number} at {list(self._grid_position(tile))}"
        )

    def _run(
        self, items: Iterable[Any], submit: Callable[[Any], Any], describe: Callable[[Any], str]
    ) -> Iterator[tuple[Any, Any]]:
        waiting, running = iter(items), dict[Any, tuple[Any, Any]]()
        client, capacity, updated = self.client, 0, -1.0
        done = as_completed(loop=client.loop, with_results=True, raise_errors=False)
        try:
            while True:
                if monotonic() - updated > 1:  # workers come and go
                    capacity = TILES_PER_THREAD * max(1, sum(map(int, client.nthreads().values())))
                    updated = monotonic()
                for item in islice(waiting, max(0, capacity - len(running))):
                    future = submit(item)
                    running[future.key] = (item, future)
                    done.add(future)
                if not running:
                    return
                self._wait(done)
                future, result = next(done)
                item, _ = running.pop(future.key)
                if future.status != "finished":
                    self._raise_error(future, describe(item))
                yield item, result
        finally:
            if client.status == "running":
                client.cancel([future for _, future in running.values()])

    def _wait(self, done: Any) -> None:
        """Wait for the end of a task; an UnpoolError after `pause_timeout` seconds in which all workers are paused."""
        begin, paused_since, looked, is_warned = monotonic(), None, monotonic(), False
        watch_seconds = min(WATCH_SECONDS, self.pause_timeout / 2)
        while not done.has_ready():
            with done.thread_condition:
                done.thread_condition.wait(POLL_SECONDS)
            now = monotonic()
            if now - looked < watch_seconds:
                continue
            looked = now
            if self.client.status != "running":  # a lost scheduler ends all tasks
                continue
            workers = self._workers().values()
            idle = describe_idle_workers(workers)
            paused_since = None if idle is None or not workers else paused_since or now
            if idle is not None and not is_warned and now - begin >= min(WARN_SECONDS, self.pause_timeout):
                _log.warning("no tile has ended for %.0f s: %s", now - begin, idle)
                is_warned = True
            if paused_since is not None and now - paused_since >= self.pause_timeout:
                raise UnpoolError(f"tiles: nothing has run for {now - paused_since:.0f} s: {idle} {RESUME}")

    def _workers(self) -> Mapping[str, Any]:
        """The workers by address; none where the scheduler is gone."""
        workers: Mapping[str, Any] = self.client.scheduler_info(n_workers=-1).get("workers", {})
        return workers

    def _submit(self, tile: Tile) -> Any:
        """Submit a tile. Its key has its position in the grid, which the dashboard shows for slow tiles."""
        client, parts = self.client, {}
        for name, array in self.inputs.items():
            part = array[tile.inputs[name]]
            parts[name] = client.compute(part) if isinstance(part, da.Array) else np.ascontiguousarray(part)
        key = (self.name, *self._grid_position(tile))
        return client.submit(run_tile_number, self.name, tile.number, parts, key=key, retries=self.retries, pure=False)

    def _grid_position(self, tile: Tile) -> tuple[int, ...]:
        return tuple(map(int, np.unravel_index(tile.number, [len(cells) for cells in self.tiling.cells])))

    def _raise_error(self, future: Any, doing: str) -> None:
        if future.status != "error":
            address = getattr(self.client.scheduler, "address", "of the cluster")
            raise UnpoolError(f"tiles: the scheduler {address} is gone, or has cancelled the tasks. {RESUME}")
        try:
            future.result()
        except KilledWorker as error:
            raise UnpoolError(
                f"tiles: {error.allowed_failures + 1} workers died while {doing}, the last one "
                f"{error.last_worker.address}. Their memory may be too small for it: choose smaller tiles, or fewer "
                f"threads per worker. {RESUME}"
            ) from error


def describe_idle_workers(workers: Collection[Mapping[str, Any]]) -> str | None:
    """A sentence where no worker can start a task, and what to do; None where one may, or runs one.

    >>> paused = {"status": "paused", "memory_limit": 2**30, "metrics": {"memory": 823 << 20, "task_counts": {}}}
    >>> describe_idle_workers([paused, paused])
    'all workers are paused: 823 and 823 of 1024 MiB. Give them more memory, or fewer threads or smaller tiles.'
    """
    if not workers:
        return "the scheduler has no workers. Start one with: dask worker."
    for worker in workers:
        is_running = worker["metrics"].get("task_counts", {}).get("executing")
        if worker["status"] != "paused" or is_running:
            return None
    used = [round(worker["metrics"]["memory"] / 2**20) for worker in workers]
    limits = sorted({round(worker["memory_limit"] / 2**20) for worker in workers})
    memory = " and ".join(map(str, used)) if len(used) < 3 else f"{min(used)} to {max(used)}"
    limit = str(limits[0]) if len(limits) == 1 else f"{limits[0]} to {limits[-1]}"
    advice = "Give them more memory, or fewer threads or smaller tiles."
    return f"all workers are paused: {memory} of {limit} MiB. {advice}"
