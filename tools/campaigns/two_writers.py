"""Processes that write one output at the same moment: each file is the result of one of them, all others are refused.

    python -m tools.campaigns.two_writers --count 200 --seed 1

Two or three processes wait for each other and begin: in exact tiles or blended, each with an input of its own into a
place that is free, or with one input into the place of an interrupted run. Some share only the second of two outputs.
"""

import argparse
import multiprocessing
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import nibabel
import numpy as np
import tifffile
import zarr

from tests.support import models
from unpool import InferenceSession, streams, tiles
from unpool.errors import FileError, UnpoolError

FORMATS = ("npy", "tif", "zarr", "nii")
KINDS = ("cold", "cold", "resumed", "shared")
MODEL = "pair (float[1, 1, h, w] x) => (float[1, 1, h, w] y, float[1, 1, h, w] z) { y = Abs (x)  z = Neg (x) }"
SHAPE, TILE = (1, 1, 70, 50), (32, 32)
PROCESSES = 3
JITTERS = (0.0, 0.004, 0.08)
"""Seconds by which a process begins later than another one at most; a run has its first tile and its end in them."""

REFUSED = re.compile(r"(process \d+|another process) is writing it\. Wait for it to end, or choose another output\.$")


class StoppedError(Exception):
    """The end of a run."""


@dataclass(frozen=True)
class Job:
    """What a process does in a round: which input goes where, and how."""

    number: int
    targets: dict
    is_blended: bool
    resume: bool
    jitter: float
    stop: int = 0


def image(number):
    """The input of a process, which it shares with nobody."""
    return np.random.default_rng(number).standard_normal(SHAPE).astype(np.float32)


def session():
    """A model with two outputs that any size of tile gives."""
    return InferenceSession(models.model(MODEL))


def run(opened, job):
    """Run one job; after `stop` tiles it ends."""

    def on_progress(progress):
        if progress.done == job.stop:
            raise StoppedError

    feed = {"x": image(job.number)}
    if job.is_blended:
        return streams.blend(opened, feed, job.targets, TILE, overlap=0.25, resume=job.resume, on_progress=on_progress)
    return streams.run(opened, feed, job.targets, TILE, resume=job.resume, on_progress=on_progress)


def work(pipe, barriers):
    """Do the jobs that come through a pipe, each when as many processes as it says are ready."""
    opened = session()
    while (received := pipe.recv()) is not None:
        job, count = received
        barriers[count].wait()
        time.sleep(job.jitter)
        try:
            run(opened, job)
            said = "ok"
        except UnpoolError as error:
            said = str(error)
        except BaseException as error:
            said = f"WRONG {type(error).__name__}: {error}"
        pipe.send(said)


def read(path):
    """What others than unpool read from a file, as an image."""
    kinds = {
        ".npy": np.load,
        ".zarr": lambda place: zarr.open_array(str(place), mode="r")[...],
        ".tif": tifffile.imread,
        ".nii": lambda place: np.asarray(nibabel.load(place).dataobj),
    }
    return np.asarray(kinds[path.suffix](path)).reshape(SHAPE)


def results(opened, number, *, is_blended):
    """Both outputs of one input, without files."""
    feed = {"x": image(number)}
    if is_blended:
        return tiles.blend(opened, feed, TILE, overlap=0.25)
    return dict(zip("yz", opened.run(None, feed), strict=True))


def wrong(opened, jobs, said, folder):
    """Everything in a round that must not be, in words."""
    written = [job for job, words in zip(jobs, said, strict=True) if words == "ok"]
    found = [words for words in said if words != "ok" and not REFUSED.search(words)]
    found += [] if written else ["nobody wrote"]
    for path in {path for job in written for path in job.targets.values()}:
        writers = [job for job in written if path in job.targets.values()]
        expected = [
            results(opened, job.number, is_blended=job.is_blended)[name]
            for job in writers
            for name, place in job.targets.items()
            if place == path
        ]
        try:
            content = read(path)
        except Exception as error:  # whatever a reader makes of a damaged file
            found.append(f"{path.name} is unreadable: {error}")
            continue
        if not any(np.array_equal(content, one) for one in expected):
            found.append(f"{path.name} is the result of no process that succeeded")
    wanted = {path.name for job in written for path in job.targets.values()}
    litter = {path.name for path in folder.iterdir() if not path.name.endswith(".done")} - wanted
    return [*found, *(f"{name} is left" for name in sorted(litter))]


def jobs_of(draw, form, kind, folder):
    """The jobs of a round."""
    count, is_blended = draw.choice((2, PROCESSES)), draw.random() < 0.3
    base = draw.randrange(10**6)
    jitters = [draw.random() * draw.choice(JITTERS) for _ in range(count)]
    y, z = folder / f"y.{form}", folder / f"z.{form}"
    places = [{"y": y, "z": z}] * count
    if kind == "shared":
        places = [{"y": folder / f"y{number}.{form}", "z": z} if number else {"z": z} for number in range(count)]
    elif draw.random() < 0.5:
        places = [{"y": y}] * count
    numbers = [base if kind == "resumed" else base + number for number in range(count)]
    return [
        Job(number, targets, is_blended, kind == "resumed", jitter)
        for number, targets, jitter in zip(numbers, places, jitters, strict=True)
    ]


def campaign(count, seed, formats=FORMATS):
    """Run rounds for each format.

    Returns:
        how often each kind of round ended how, and the rounds that went wrong.
    """
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if "forkserver" in methods:
        context.set_forkserver_preload([__name__])
    barriers = {number: context.Barrier(number) for number in range(2, PROCESSES + 1)}
    pipes, workers = [], []
    for _ in range(PROCESSES):
        here, there = context.Pipe()
        workers.append(context.Process(target=work, args=(there, barriers), daemon=True))
        workers[-1].start()
        pipes.append(here)
    opened, draw, tally, failed = session(), random.Random(seed), Counter(), []
    try:
        for form in formats:
            for number in range(count):
                folder = Path(tempfile.mkdtemp(prefix="two_writers"))
                kind = KINDS[number % len(KINDS)]
                jobs = jobs_of(draw, form, kind, folder)
                if kind == "resumed":
                    interrupt(opened, jobs[0])
                for pipe, job in zip(pipes, jobs, strict=False):
                    pipe.send((job, len(jobs)))
                said = [pipe.recv() for pipe, _ in zip(pipes, jobs, strict=False)]
                bad = wrong(opened, jobs, said, folder)
                failed += [f"{form} {kind} round {number} of seed {seed}: {one}" for one in bad]
                tally[f"{form} {kind}: {said.count('ok')} of {len(said)} wrote"] += 1
                shutil.rmtree(folder)
    finally:
        for pipe in pipes:
            pipe.send(None)
        for worker in workers:
            worker.join(30)
    return tally, failed


def interrupt(opened, job):
    """Leave the outputs of a job unfinished."""
    try:
        run(opened, Job(job.number, job.targets, job.is_blended, False, 0.0, stop=2))
    except StoppedError:
        return
    raise FileError("the run was not interrupted")


def main(words):
    """The campaign as a command; its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="rounds per format")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--formats", nargs="*", choices=FORMATS, default=FORMATS)
    options = parser.parse_args(words)
    tally, failed = campaign(options.count, options.seed, options.formats)
    for line in failed:
        sys.stdout.write(f"{line}\n")
    rounds, ended = sum(tally.values()), Counter()
    for name, number in tally.items():
        ended[name.split(": ")[1]] += number
    how = ", ".join(f"{number} {name}" for name, number in sorted(ended.items()))
    sys.stdout.write(f"two_writers: seed {options.seed}, {rounds} rounds, {len(failed)} wrong; {how}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
