"""Interrupted runs whose files are damaged: a resume gives the result of the whole, or one UnpoolError, never another.

    python -m tools.campaigns.resume --count 2000 --seed 1

What an interrupted run left is copied, one to three of its files are damaged, and the copy is resumed: data, tags,
chunks, zarr.json, journal, record, also between the moments when two outputs get their names. Where the resume is
refused, the folder that the message names is deleted, and the run has to give the right result then.
"""

import argparse
import dataclasses
import json
import random
import re
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

from tools.campaigns.two_writers import FORMATS, Job, StoppedError, read, results, run, session
from unpool.errors import UnpoolError
from unpool.runtime.streams.checkpoint import partial_folder

STOPS = (1, 4, 6)
"""Tiles or bands after which a run is interrupted; there are 6 or 3 in all."""

NUMBER = 7
WAY = re.compile(r"(?:D|d)elete (\S+) to start over")

NOTHING, SCRATCH = "nothing", "scratch"
DEEP = b"[" * 100_000
VALUES = (
    "1e999", "NaN", "-1", "true", "null", "9.5", "9" * 5000, '"x"', "[[16], [16]]", "{}", "[1e999, 1]", "[1, 1]",
    '{"a": ' * 900 + "1" + "}" * 900,
)  # fmt: skip


def files_of(folder):
    """Every file of a state, in order."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def damage(draw, path, others):
    """Damage one file in a random way; the name of the way."""
    content = bytearray(path.read_bytes())
    way = draw.choice(WAYS)
    damaged = WAYS_BY_NAME[way](draw, content, path, others)
    if damaged is not None:
        path.write_bytes(damaged)
    return way


def truncate(draw, content, path, others):
    return content[: draw.randrange(len(content) + 1)]


def empty(draw, content, path, others):
    return b""


def flip(draw, content, path, others):
    """Up to eight bits, half of them in the first 512 bytes, where headers are."""
    for _ in range(draw.randint(1, 8) if content else 0):
        content[draw.randrange(min(len(content), draw.choice((512, 1 << 40))))] ^= 1 << draw.randrange(8)
    return content


def scribble(draw, content, path, others):
    first = draw.randrange(len(content) + 1)
    length = draw.randint(1, 64)
    content[first : first + length] = draw.randbytes(min(length, len(content) - first))
    return content


def garbage(draw, content, path, others):
    return draw.randbytes(len(content))


def zeros(draw, content, path, others):
    return bytes(len(content))


def append(draw, content, path, others):
    return bytes(content) + draw.choice((b"\0" * 4096, b"\n\n", draw.randbytes(50) + b"\n", DEEP + b"\n"))


def swap(draw, content, path, others):
    """With another file of the same run."""
    other = draw.choice(others)
    there = other.read_bytes()
    other.write_bytes(content)
    return there


def delete(draw, content, path, others):
    path.unlink()


def folder(draw, content, path, others):
    path.unlink()
    path.mkdir()


def link(draw, content, path, others):
    """To nothing; an output that is a link has its folder elsewhere, and is left out."""
    if path.suffix != ".done" and not any(parent.suffix == ".part" for parent in path.parents):
        return garbage(draw, content, path, others)
    path.unlink()
    path.symlink_to(path.with_name(NOTHING))
    return None


def link_folder(draw, content, path, others):
    """A folder of chunks becomes a link to where it was moved."""
    folders = [parent for parent in path.parents if any(outer.suffix == ".zarr" for outer in parent.parents)]
    if not folders:
        return garbage(draw, content, path, others)
    place = draw.choice(folders)
    base = next(parent for parent in path.parents if parent.name == SCRATCH).parent
    moved = Path(tempfile.mkdtemp(dir=base)) / place.name
    place.rename(moved)
    place.symlink_to(moved)
    return None


def lines(draw, content, path, others):
    """Lines of a journal in another order, twice, or without one."""
    found = bytes(content).splitlines(keepends=True)
    if found:
        found = draw.choice((found[::-1], found + found[-1:], found[1:], [*found[:1], *draw.sample(found, len(found))]))
    return b"".join(found)


def value(draw, content, path, others):
    """A value of a JSON text that is none, or too much."""
    places = [found.span(1) for found in re.finditer(rb'": ?("[^"]*"|[\d.]+|\[[^\]]*\])', bytes(content))]
    if not places:
        return content
    first, stop = draw.choice(places)
    return bytes(content[:first]) + draw.choice(VALUES).encode() + bytes(content[stop:])


WAYS_BY_NAME = {
    way.__name__: way
    for way in (
        truncate, empty, flip, scribble, garbage, zeros, append, swap, delete, folder, link, link_folder, lines, value,
    )
}  # fmt: skip
WAYS = ("flip", "value", "lines", *WAYS_BY_NAME)


def states(opened, folder):
    """Interrupted runs of every format, exact and blended, of one output and of two; and complete ones.

    Returns:
        by name, the folder that holds the state, and the job.
    """
    found = {}
    for form in FORMATS:
        for is_blended in (False, True):
            for outputs in ("y", "yz"):
                for stop in (*STOPS, 0):
                    place = folder / f"{form}-{'blend' if is_blended else 'exact'}-{outputs}-{stop}"
                    place.mkdir()
                    job = Job(
                        NUMBER, {name: place / f"{name}.{form}" for name in outputs}, is_blended, False, 0.0, stop
                    )
                    try:
                        run(opened, job)
                    except StoppedError:
                        part = partial_folder(job.targets)
                        found[place.name] = (place, job)
                        if outputs == "yz" and stop == len(STOPS) * 2 and not is_blended:
                            moved = folder / f"{place.name}-moved"
                            shutil.copytree(place, moved)
                            (moved / part.name / f"y.{form}").rename(moved / f"y.{form}")
                            found[moved.name] = (moved, job)
                    else:
                        found[place.name] = (place, job)
    return found


def trial(opened, draw, state, job, scratch, expected):
    """Damage a copy of a state and resume it; how that ended, and what was wrong with it."""
    shutil.copytree(state, scratch)
    targets = {name: scratch / path.name for name, path in job.targets.items()}
    ways = []
    for _ in range(draw.choice((1, 1, 2, 3))):
        found = files_of(scratch)
        special = [path for path in found if path.name in ("journal", "zarr.json") or path.name.endswith(".done")]
        pool = special if special and draw.random() < 0.4 else found
        if pool:
            path = draw.choice(pool)
            ways.append(f"{damage(draw, path, found)} {path.relative_to(scratch)}")
    try:
        ended = resume(opened, Job(job.number, targets, job.is_blended, True, 0.0, -1), scratch)
        why = unlike(targets, expected) or ", ".join(f"{name} is left" for name in litter(scratch, targets))
    except Exception as error:
        ended, why = "ended in an error", f"{type(error).__name__}: {str(error)[:300]}"
    return ended, f"{', '.join(ways)}: {why}" if why else ""


def resume(opened, job, scratch):
    """Resume a run; where it is refused, do what the message says, and run it; the word for what happened."""
    try:
        run(opened, job)
    except UnpoolError as error:
        named = WAY.search(str(error))
        for path in [Path(named[1])] if named else scratch.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        run(opened, dataclasses.replace(job, resume=False))
        return "refused with a way" if named else "refused"
    return "resumed"


def unlike(targets, expected):
    """What is wrong with outputs, in words."""
    for name, path in targets.items():
        try:
            if not np.array_equal(read(path), expected[name]):
                return f"{path.name} is another result"
        except Exception as error:  # whatever a reader makes of a damaged file
            return f"{path.name} is unreadable: {error}"
    return ""


def litter(scratch, targets):
    """The names beside outputs that nobody wants; a link that damage made has got a file behind it."""
    wanted = {path.name for path in targets.values()} | {NOTHING}
    return sorted(
        path.name for path in scratch.iterdir() if path.name not in wanted and not path.name.endswith(".done")
    )


def campaign(count, seed):
    """Damage and resume so many interrupted runs.

    Returns:
        how often a resume ended how, and the trials that went wrong.
    """
    draw, tally, failed, opened = random.Random(seed), Counter(), [], session()
    with tempfile.TemporaryDirectory(prefix="resume") as base, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of readers, about damaged files
        (Path(base) / "states").mkdir()
        found = states(opened, Path(base) / "states")
        expected = {blended: results(opened, NUMBER, is_blended=blended) for blended in (False, True)}
        names = sorted(found)
        for number in range(count):
            name = draw.choice(names)
            state, job = found[name]
            scratch = Path(base) / SCRATCH
            ended, why = trial(opened, draw, state, job, scratch, expected[job.is_blended])
            shutil.rmtree(scratch)
            tally[f"{name.split('-')[0]} {ended}"] += 1
            if why:
                failed.append(f"{name}, trial {number} of seed {seed}: {why}")
    return tally, failed


def main(words):
    """The campaign as a command; its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(words)
    tally, failed = campaign(options.count, options.seed)
    for line in failed:
        sys.stdout.write(f"{line}\n")
    how = json.dumps(dict(sorted(tally.items()))).strip("{}").replace('"', "")
    sys.stdout.write(f"resume: seed {options.seed}, {options.count} trials, {len(failed)} wrong; {how}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
