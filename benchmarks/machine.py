"""What the machine can do: memory read and written, and fused multiply-adds, by as many threads as the engines use."""

import platform
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from subprocess import run

import numpy as np
from llvmlite import binding, ir
from numba import float32, njit, types
from numba.core import cgutils

from benchmarks.case import Case
from unpool.kernels.cpu.host import vector_bytes
from unpool.kernels.cpu.vector import Vector, intrinsic, splat, store

MEGABYTES = 256  # read or written by each thread, far more than any cache
TURNS = 4
CHAINS = 12  # multiply-adds in flight: more than latency times throughput of any CPU known
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
        """Seconds that a case takes at least if nothing is in a cache; 0 where nobody counts.

        Bytes read and bytes written one after the other, or all multiply-adds of the definition, whatever is longer.
        Data that stays in a cache and algorithms that save multiplications can be faster.
        """
        return max(case.read / self.read + case.written / self.written, case.flops / self.flops)


def cpu_name() -> str:
    """The CPU's own name, and the family that LLVM knows it under."""
    return f"{_given_name()} ({binding.get_host_cpu_name()})"


def _given_name() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    if sys.platform == "darwin":
        return run(
            ["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True, check=True
        ).stdout.strip()
    return platform.processor() or platform.machine()


def measured(threads: int, megabytes: int = MEGABYTES, steps: int = STEPS) -> Machine:
    """Measure this machine: the fastest of a few turns each.

    Args:
        threads: how many work at once.
        megabytes: each thread's memory.
        steps: multiply-adds in each chain.
    """
    arrays = [np.ones(megabytes << 18, np.float32) for _ in range(threads)]
    lanes = vector_bytes() // 4
    sinks = [np.arange(CHAINS * lanes, dtype=np.float32) for _ in range(threads)]
    moved = threads * (megabytes << 20)
    operations = 2.0 * threads * lanes * CHAINS * steps
    with ThreadPoolExecutor(threads) as pool:

        def per_second(amount: float, work: Callable[[int], object]) -> float:
            return max(amount / _seconds(pool, threads, work) for _ in range(TURNS))

        _sum(arrays[0][:64])
        _fill(arrays[0][:64], np.float32(1))
        spin = _spinner(lanes)
        spin(sinks[0].ctypes.data, 1)
        return Machine(
            cpu_name(),
            threads,
            per_second(moved, lambda number: _sum(arrays[number])),
            per_second(moved, lambda number: _fill(arrays[number], np.float32(number + 0.5))),
            per_second(operations, lambda number: spin(sinks[number].ctypes.data, steps)),
        )


def _seconds(pool: ThreadPoolExecutor, threads: int, work: Callable[[int], object]) -> float:
    begin = time.perf_counter()
    list(pool.map(work, range(threads)))
    return time.perf_counter() - begin


@njit(fastmath=True, nogil=True)  # type: ignore[untyped-decorator]
def _sum(array: np.ndarray) -> float:
    total = np.float32(0)
    for position in range(array.size):
        total += array[position]
    return total


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _fill(array: np.ndarray, value: float) -> None:
    for position in range(array.size):
        array[position] = value


@intrinsic  # type: ignore[untyped-decorator]
def _load_chains(context, address, element, lanes, count):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202, ARG001
    """A tuple of `count` vectors that lie one behind the other."""
    kind = Vector(element.dtype, lanes.literal_value)
    size = 4 * kind.lanes

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202, ARG001
        places = [
            builder.add(arguments[0], ir.Constant(ir.IntType(64), size * one)) for one in range(count.literal_value)
        ]
        pointers = [builder.inttoptr(place, ir.PointerType(kind.llvm)) for place in places]
        return cgutils.pack_array(builder, [builder.load(pointer, align=4) for pointer in pointers])

    return types.UniTuple(kind, count.literal_value)(address, element, lanes, count), emit


@intrinsic  # type: ignore[untyped-decorator]
def _multiply_add(context, chains, factor, term):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202, ARG001
    """Every vector of the tuple times `factor` plus `term`, rounded once."""
    kind = factor.llvm

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202, ARG001
        name = f"llvm.fma.{factor.suffix}"
        fused = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3), name)
        before = cgutils.unpack_tuple(builder, arguments[0])
        return cgutils.pack_array(builder, [builder.call(fused, [one, *arguments[1:]]) for one in before])

    return chains(chains, factor, term), emit


def _spinner(lanes: int) -> Callable[[int, int], None]:
    """A function that keeps every multiplier busy and stores something at an address."""

    @njit(nogil=True)  # type: ignore[untyped-decorator]
    def spin(address, steps):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
        chains = _load_chains(address, float32, lanes, CHAINS)
        factor, term = splat(types.float32(0.5), lanes), splat(types.float32(1), lanes)
        for _ in range(steps):
            chains = _multiply_add(chains, factor, term)
        total = chains[0]
        for one in chains:
            total = total + one
        store(address, total)

    return spin
