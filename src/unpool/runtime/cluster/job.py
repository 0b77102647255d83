"""What every worker has of a run: the model, loaded once per process, the tiles, and where results go."""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from distributed import WorkerPlugin

from unpool.runtime.tiles.run import Arrays, run_tile, write_tile
from unpool.runtime.tiles.tiling import Slices, Tiling

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession

KEPT = 2
"""Models that a worker keeps: that of the run, and one before it."""


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        digest: of the model and its options: a worker that has loaded it for another run takes that.
        session: pickled.
        tiling: of the whole image.
        feed: what workers read by themselves, by input: arrays in storage that all of them reach, and inputs that are
            not cut.
        outputs: Zarr arrays, by output.
    """

    digest: str
    session: bytes
    tiling: Tiling
    feed: Mapping[str, Any]
    outputs: Mapping[str, Any]

    @classmethod
    def of(
        cls, session: "InferenceSession", tiling: Tiling, feed: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> "Job":
        """The run of a session."""
        content = pickle.dumps(session)
        return cls(sha256(content).hexdigest(), content, tiling, feed, outputs)


@dataclass(frozen=True)
class Piece:
    """The part of an input that a tile reads, which the client has cut: it takes the slices for granted."""

    array: Any

    def __getitem__(self, slices: Slices) -> Any:
        return self.array


class JobPlugin(WorkerPlugin):
    """Gives every worker the job, those too that join later or are started again."""

    def __init__(self, name: str, job: Job) -> None:
        self.name, self._job = name, job

    def setup(self, worker: Any) -> None:  # noqa: ARG002 - the name is distributed's
        """Keep the job; its model is loaded by the first tile."""
        _jobs[self.name] = self._job

    def teardown(self, worker: Any) -> None:  # noqa: ARG002 - the name is distributed's
        """Forget the job; its model stays for the next one."""
        _jobs.pop(self.name, None)


_jobs: dict[str, Job] = {}
_sessions: dict[str, "InferenceSession"] = {}
_loading = Lock()


def run_numbered(name: str, number: int, pieces: Mapping[str, Any]) -> Arrays:
    """Run one tile on a worker, and write its results.

    Args:
        name: of the job.
        number: of the tile.
        pieces: what the tile reads of the inputs that the client has cut.

    Returns:
        the outputs that are the same for every tile, which nobody has written.
    """
    job = _jobs[name]
    tile = job.tiling[number]
    feed = {**job.feed, **{each: Piece(part) for each, part in pieces.items()}}
    made = run_tile(_session(job), job.tiling, tile, feed)
    write_tile(job.outputs, tile, made)
    return {each: np.asarray(made[each]) for each in job.tiling.constant_outputs}


def _session(job: Job) -> "InferenceSession":
    """The model of a job, loaded unless this process has it."""
    with _loading:
        found = _sessions.pop(job.digest, None) or pickle.loads(job.session)
        while len(_sessions) >= KEPT:
            del _sessions[next(iter(_sessions))]
        _sessions[job.digest] = found
    return found
