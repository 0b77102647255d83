"""Waiting without the interpreter lock: one thread adds to a counter, another watches it, bounded in time.

Counters are int64 in shared memory, each in a cache line of its own. Nothing rests on them: whoever waited in vain
goes on to block on an ordinary Python object, and whoever did not finds there what it waited for.
"""

import platform
import time
from functools import cache

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from unpool.kernels.cpu.compiled import compiled
from unpool.kernels.cpu.host import source_digest
from unpool.kernels.cpu.vector import address_of

_PAUSES = {"x86_64": ("llvm.x86.sse2.pause", ()), "amd64": ("llvm.x86.sse2.pause", ()),
           "aarch64": ("llvm.aarch64.hint", (1,)), "arm64": ("llvm.aarch64.hint", (1,))}  # fmt: skip
_SAMPLE = 2000


def _pointer(builder, address):
    return builder.inttoptr(address, ir.PointerType(ir.IntType(64)))


@intrinsic
def read(context, address):
    """The counter at an address; what another thread wrote before it added is seen after this."""

    def emit(ctx, builder, signature, arguments):
        return builder.load_atomic(_pointer(builder, arguments[0]), "acquire", 8)

    return types.int64(types.int64), emit


@intrinsic
def add(context, address, amount):
    """Add to the counter at an address; what was written before is seen by whoever reads it then."""

    def emit(ctx, builder, signature, arguments):
        return builder.atomic_rmw("add", _pointer(builder, arguments[0]), arguments[1], "release")

    return types.int64(types.int64, types.int64), emit


@intrinsic
def pause(context):
    """Tell the processor that this is a loop that waits."""

    def emit(ctx, builder, signature, arguments):
        name, operands = _PAUSES.get(platform.machine().lower(), ("", ()))
        if name:
            number = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [number] * len(operands))
            function = cgutils.get_or_insert_function(builder.module, kind, name)
            builder.call(function, [ir.Constant(number, each) for each in operands])
        return ctx.get_dummy_value()

    return types.void(), emit


def add_and_watch(signal: int, amount: int, watched: int, least: int, pauses: int, margin: int) -> bool:
    """Add to one counter, then wait until another one is at least so large.

    Args:
        signal: handle, `id(...)`, of the counter to add to; when it changes, the interpreter lock is not held any more.
        amount: what is added; 0 leaves it alone.
        watched: handle of the counter to watch.
        least: what it should reach.
        pauses: how often to look.
        margin: pauses after it was reached, for the other thread to let go of the interpreter lock.

    Returns:
        Whether it was reached.
    """
    return bool(_watch(signal, amount, watched, least, pauses, margin))


def _make(digest):
    @compiled()
    def watch(signal, amount, watched, least, pauses, margin):
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        if amount:
            add(address_of(signal), amount)
        place = address_of(watched)
        for _ in range(pauses):
            if read(place) >= least:
                for _ in range(margin):
                    pause()
                return True
            pause()
        return False

    return watch


_watch = _make(source_digest())  # at once: two threads that make it at their first call would compile it twice


def counter():
    """A new counter: an int64 array that begins with it and fills a cache line."""
    return np.zeros(8, np.int64)


@cache
def pauses_in(seconds: float) -> int:
    """How many looks at a counter take so long on this machine."""
    never = counter()
    add_and_watch(id(never), 0, id(never), 1, 0, 0)
    start = time.perf_counter()
    add_and_watch(id(never), 0, id(never), 1, _SAMPLE, 0)
    return int(seconds * _SAMPLE / (time.perf_counter() - start))
