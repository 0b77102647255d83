"""Processes of several versions on one cache, killed or out of space while they write: none runs code of another one.

    python -m tools.campaigns.stored --count 2000 --seed 1

Each round is a process of a random version. It calls a kernel whose own source is that of all versions, but which calls
a function that every version has in another way, and it finds and stores a choice. A fault hits it at a random byte
that it writes, or at a random request to change a folder. Between rounds, versions are removed, times of files are
moved to the past or the future, or the cache is copied to another place. A last round of each version, without a fault,
finds what it stores.
"""

import argparse
import errno
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from numba import njit

from unpool.kernels.cpu.machine import cache, measurements
from unpool.kernels.cpu.machine.jit import jit

VERSIONS = (1, 2, 3)
FAULTS = ("none", "kill at a byte", "kill at a request", "full at a byte", "full at a request")
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)
CHANGES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir")
"""Requests that change a folder, as `sys.addaudithook` names them, apart from `open`."""

BYTES, REQUESTS = 20_000, 12
"""More than a process writes to a file, and more requests than it makes."""

RIGHT, WRONG, FAILED = 0, 1, 2
"""Exit codes of a round; 4 more if the machine code was found, and 8 more if the choice was."""


def add(number: int) -> Callable[[int], int]:
    """The function of a version in another source."""

    @njit
    def add_number(x):
        return x + number

    return add_number


PARTS = {version: add(version) for version in (0, *VERSIONS)}
called = PARTS[0]


def kernel(x):
    """A kernel that is the same in all versions."""
    return called(x)


def work(version: int) -> int:
    """Compute and choose as a version does; the exit code."""
    global called
    called = PARTS[version]
    for module in (cache, measurements):
        module.source_digest = lambda *_, **__: f"version {version}"
    compiled, choice = jit()(kernel), measurements.find_result("key")
    result = compiled(10)
    measurements.store_result("key", version)
    if result != 10 + version or choice not in (None, version):
        return WRONG
    return RIGHT + 4 * bool(compiled.dispatcher.stats.cache_hits) + 8 * (choice is not None)


def prepare(draw: random.Random, fault: str, folder: Path) -> None:
    """Let a fault hit this process."""
    import resource

    if fault.endswith("byte"):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (draw.randrange(BYTES), resource.RLIM_INFINITY))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if fault.startswith("kill") else signal.SIG_IGN)
    if fault.endswith("request"):
        left, number = draw.randrange(REQUESTS), draw.choice(FULL)

        def fail(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal left
            writes = event in CHANGES or (event == "open" and int(arguments[2]) & (os.O_WRONLY | os.O_RDWR))
            if not writes or not str(arguments[0]).startswith(str(folder)):
                return
            left -= 1
            if left == -1 and fault.startswith("kill"):
                os.kill(os.getpid(), signal.SIGKILL)
            if left == -1:
                raise OSError(number, os.strerror(number))

        sys.addaudithook(fail)


def run(draw: random.Random, version: int, fault: str, folder: Path) -> int:
    """Run a round in a process of its own; its exit code, the negative number of a signal that ended it."""
    seed = draw.random()
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    code = FAILED
    try:
        os.environ["NUMBA_CACHE_DIR"] = str(folder)
        prepare(random.Random(seed), fault, folder)
        code = work(version)
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    finally:
        os._exit(code)


def disturb(draw: random.Random, folder: Path, number: int) -> Path:
    """Remove a version, move times of files or the cache itself; where it is now."""
    for path in folder.glob("*/kernels-*"):
        if draw.random() < 0.15:
            shutil.rmtree(path)
    if draw.random() < 0.3:
        for path in folder.rglob("*"):
            seconds = draw.choice((0, 1e9, 4e9)) + draw.randrange(1000)
            os.utime(path, (seconds, seconds))
    if draw.random() < 0.2:
        place = folder.parent / f"copy of round {number}"
        shutil.copytree(folder, place, copy_function=draw.choice((shutil.copy, shutil.copy2)))
        shutil.rmtree(folder)
        return place
    return folder


def is_expected(code: int, fault: str) -> bool:
    """True if a round may end like this under a fault."""
    if code < 0:
        return fault.startswith("kill") and -code in (signal.SIGKILL, signal.SIGXFSZ)
    return code & 3 == RIGHT


def campaign(count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Run rounds.

    Returns:
        how often each fault ended how, and the rounds that went wrong.
    """
    os.environ["UNPOOL_KERNELS"] = "compiled"
    logging.getLogger("unpool").setLevel("ERROR")
    jit()(kernel).dispatcher(10)  # imports what compiling needs, once for all rounds
    draw, tally, failed = random.Random(seed), Counter(), []
    with tempfile.TemporaryDirectory(prefix="stored") as place:
        folder = Path(place, "cache")
        folder.mkdir()
        version = VERSIONS[0]
        for number in range(count):
            version, fault = draw.choice((version, *VERSIONS)), draw.choice(FAULTS)
            code = run(draw, version, fault, folder)
            ending = "killed" if code < 0 else "found" if code & 4 else "compiled"
            tally[f"{fault}: {ending}"] += 1
            if not is_expected(code, fault):
                failed.append(f"round {number} of seed {seed}, version {version}, {fault}: exit code {code}")
            folder = disturb(draw, folder, number)
        for version in VERSIONS:
            codes = [run(draw, version, "none", folder) for _ in range(2)]
            if codes[1] != RIGHT + 4 + 8:
                failed.append(f"version {version} of seed {seed} does not find what it stored: {codes}")
    return tally, failed


def main(words: list[str]) -> int:
    """The campaign as a command; its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2000, help="rounds")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(words)
    tally, failed = campaign(options.count, options.seed)
    for line in (*failed, *(f"{number:5} {ending}" for ending, number in sorted(tally.items()))):
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(f"stored: seed {options.seed}, {options.count} rounds, {len(failed)} wrong\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
