"""What the machine can do: memory read and written, and fused multiply-adds, by as many threads as the engines use."""

import platform
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from subprocess import run

import numpy as np

from benchmarks.case import Case

MEGABYTES = 256  # read or written by each thread, far more than any cache
TURNS = 4
STEPS = 4_000_000


@dataclass(frozen=True)
class Machine:
    """What a machine does with a number of threads.

    Attributes:
        cpu: its name and what Numba compiles for.
        threads: used by the measurement.
        read: bytes per second from memory.
        written: bytes per second into memory that was written before.
        flops: float32 operations per second, a fused multiply-add being two.
    """

    cpu: str
    threads: int
    read: float
    written: float
    flops: float

    def limit(self, case: Case) -> float:
        """Minimum seconds of a case with cold caches; 0 where it is not known.

        Bytes read and bytes written one after the other, or all multiply-adds of the definition, whatever is longer.
        Data that stays in a cache and algorithms that save multiplications can be faster.
        """
        return max(case.read / self.read + case.written / self.written, case.flops / self.flops)


def cpu_name() -> str:
    """The CPU's own name, and the family that LLVM knows it under."""
    if find_spec("llvmlite") is None:
        return _given_name()
    from llvmlite import binding

    return f"{_given_name()} ({binding.get_host_cpu_name()})"


def _given_name() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return run(command, capture_output=True, text=True, check=True).stdout.strip()
    return platform.processor() or platform.machine()


def measured(threads: int, megabytes: int = MEGABYTES, steps: int = STEPS) -> Machine:
    """Measure this machine: the fastest of a few turns each.

    Args:
        threads: how many work at once.
        megabytes: each thread's memory.
        steps: multiply-adds in each chain.
    """
    from benchmarks.machine_kernels import CHAINS, read_all, spinner, write_all
    from unpool.kernels.cpu.machine.host import vector_bytes

    arrays = [np.ones(megabytes << 18, np.float32) for _ in range(threads)]
    lanes = vector_bytes() // 4
    sinks = [np.arange(CHAINS * lanes, dtype=np.float32) for _ in range(threads)]
    moved = threads * (megabytes << 20)
    operations = 2.0 * threads * lanes * CHAINS * steps
    with ThreadPoolExecutor(threads) as pool:

        def per_second(amount: float, work: Callable[[int], object]) -> float:
            return max(amount / _seconds(pool, threads, work) for _ in range(TURNS))

        read_all(arrays[0][:64])
        write_all(arrays[0][:64], np.float32(1))
        spin = spinner(lanes)  # type: ignore[no-untyped-call]
        spin(sinks[0].ctypes.data, 1)
        return Machine(
            cpu_name(),
            threads,
            per_second(moved, lambda number: read_all(arrays[number])),
            per_second(moved, lambda number: write_all(arrays[number], np.float32(number + 0.5))),
            per_second(operations, lambda number: spin(sinks[number].ctypes.data, steps)),
        )


def _seconds(pool: ThreadPoolExecutor, threads: int, work: Callable[[int], object]) -> float:
    begin = time.perf_counter()
    list(pool.map(work, range(threads)))
    return time.perf_counter() - begin
