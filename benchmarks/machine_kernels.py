# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN202, ARG001
"""What keeps memory or multipliers busy and nothing else, compiled by Numba; serial, without the interpreter lock.

read_all walks an array once, write_all too, spinner(lanes) keeps chains of fused multiply-adds in registers;
spinner_in_jobs(lanes) is the same as a kernel whose jobs `split` spreads over unpool's threads.
"""

import numpy as np
from llvmlite import ir
from numba import float32, njit
from numba.core import cgutils
from numba.core.types import UniTuple
from numba.extending import intrinsic

from unpool.kernels.cpu.machine.jit import jit
from unpool.kernels.cpu.vector import Vector, address_of, splat, store

CHAINS = 12  # multiply-adds in flight: at least latency times throughput, and few enough for 16 registers


@njit(fastmath=True, nogil=True)
def read_all(array):
    """Sum of a float32 array."""
    total = np.float32(0)
    for position in range(array.size):
        total += array[position]
    return total


@njit(nogil=True)
def write_all(array, value):
    """Fill a float32 array."""
    for position in range(array.size):
        array[position] = value


@intrinsic(prefer_literal=True)
def load_chains(context, address, element, lanes, count):
    """A tuple of `count` vectors that lie one behind the other."""
    kind = Vector(element.dtype, lanes.literal_value)
    size = 4 * kind.lanes

    def emit(context, builder, signature, arguments):
        offsets = [ir.Constant(ir.IntType(64), size * one) for one in range(count.literal_value)]
        places = [builder.add(arguments[0], offset) for offset in offsets]
        pointers = [builder.inttoptr(place, ir.PointerType(kind.llvm)) for place in places]
        return cgutils.pack_array(builder, [builder.load(pointer, align=4) for pointer in pointers])

    return UniTuple(kind, count.literal_value)(address, element, lanes, count), emit


@intrinsic(prefer_literal=True)
def multiply_add(context, chains, factor, term):
    """Every vector of the tuple times `factor` plus `term`, rounded once."""
    kind = factor.llvm

    def emit(context, builder, signature, arguments):
        name = f"llvm.fma.{factor.suffix}"
        fused = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3), name)
        before = cgutils.unpack_tuple(builder, arguments[0])
        return cgutils.pack_array(builder, [builder.call(fused, [one, *arguments[1:]]) for one in before])

    return chains(chains, factor, term), emit


def spinner(lanes):
    """A function of an address, where CHAINS * lanes float32 numbers lie, and of a number of steps.

    Every step is CHAINS * lanes multiply-adds; the sum of the chains is stored at the address.
    """

    @njit(nogil=True)
    def spin(address, steps):
        chains = load_chains(address, float32, lanes, CHAINS)
        factor, term = splat(np.float32(0.5), lanes), splat(np.float32(1), lanes)
        for _ in range(steps):
            chains = multiply_add(chains, factor, term)
        total = chains[0]
        for one in chains:
            total = total + one
        store(address, total)

    return spin


def spinner_in_jobs(lanes):
    """A kernel of an array's handle, with CHAINS * lanes float32 numbers for each job, and of a number of steps."""
    spin = spinner(lanes)

    @jit()
    def spin_jobs(numbers, steps, first, stop):
        for job in range(first, stop):
            spin(address_of(numbers) + job * CHAINS * lanes * 4, steps)

    return spin_jobs
