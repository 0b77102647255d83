"""How threads share the parts of a call without the interpreter lock.

Every worker has a box: a word that says IDLE, PARKED or BUSY, or is the address of the board of a call that wants help.
The caller puts its board into boxes, computes parts itself until none is left, takes its board out of the boxes whose
worker has not begun, and waits for those that have. Each thread begins with parts of its own, so that a repeated call
finds its data in the same caches, and then takes what others have left.

A board is an int64 array: the words of `entry.py`, then those named here, then for each box its address and what it
said, then for each thread a line of the cache with how many of its parts are taken, then what each part gives.
"""

import platform
import time
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from unpool.kernels.cpu.machine.compiled import compiled, inlined
from unpool.kernels.cpu.machine.entry import ENTRY, LEAD, RESULTS
from unpool.kernels.cpu.machine.host import source_digest
from unpool.kernels.cpu.machine.numba_seam import address
from unpool.kernels.cpu.vector import address_of

_IS_WINDOWS = platform.system() == "Windows"

IDLE, PARKED, BUSY = 0, 1, 2
"""What a box says; anything else is an address."""

SPIN = 200e-6
"""Seconds for which a thread that waits keeps its core: longer than what a caller does alone between two steps, which
is Python and, for Winograd's tiles, a look at x."""

NAP = 1 if _IS_WINDOWS else 30
"""Of a caller, again and again, until workers have ended: milliseconds on Windows, microseconds elsewhere."""

FIRST, STOP, THREADS, PIECES, DONE, TICKS, BOXES = range(6, 13)
"""Words of a board: the jobs, threads, parts of each, workers that have helped, time before a nap, the first box."""

_END = 8  # bytes from a box to the word that asks its worker to end
_LINE = 8  # words
_PAUSES = {"x86_64": ("llvm.x86.sse2.pause", ()), "amd64": ("llvm.x86.sse2.pause", ()),
           "aarch64": ("llvm.aarch64.hint", (1,)), "arm64": ("llvm.aarch64.hint", (1,))}  # fmt: skip
_YIELD, _SLEEP = ("SwitchToThread", "Sleep") if _IS_WINDOWS else ("sched_yield", "usleep")
_POLITE = 32  # looks between offers of the core: a thread may watch on the very core that it waits for
_TICK = time.get_clock_info("perf_counter").resolution if _IS_WINDOWS else 1e-9  # seconds, of `clock`


def _pointer(builder, address):
    return builder.inttoptr(address, ir.PointerType(ir.IntType(64)))


def _call(builder, name, operands):
    number = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [number] * len(operands))
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    builder.call(function, [ir.Constant(number, each) for each in operands])


@intrinsic
def read(context, address):
    """The word at an address; what another thread wrote before it changed the word is seen after this."""

    def emit(ctx, builder, signature, arguments):
        return builder.load_atomic(_pointer(builder, arguments[0]), "acquire", 8)

    return types.int64(types.int64), emit


@intrinsic
def add(context, address, amount):
    """Add to the word at an address, and what it was; what was written before is seen by whoever reads it then."""

    def emit(ctx, builder, signature, arguments):
        return builder.atomic_rmw("add", _pointer(builder, arguments[0]), arguments[1], "acq_rel")

    return types.int64(types.int64, types.int64), emit


@intrinsic
def swap(context, address, old, new):
    """Whether the word at an address was `old`; it is `new` then."""

    def emit(ctx, builder, signature, arguments):
        place = _pointer(builder, arguments[0])
        return builder.extract_value(builder.cmpxchg(place, *arguments[1:], "acq_rel", "acquire"), 1)

    return types.boolean(types.int64, types.int64, types.int64), emit


@intrinsic
def call(context, function, board, first, stop, part):
    """Call an entry of a kernel, given its address."""

    def emit(ctx, builder, signature, arguments):
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 4)
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])
        return ctx.get_dummy_value()

    return types.void(*[types.int64] * 5), emit


@intrinsic
def pause(context):
    """Tell the processor that this is a loop that waits."""

    def emit(ctx, builder, signature, arguments):
        name, operands = _PAUSES.get(platform.machine().lower(), ("", ()))
        if name:
            _call(builder, name, operands)
        return ctx.get_dummy_value()

    return types.void(), emit


@intrinsic
def give_way(context):
    """Let another thread that waits for this core have it."""

    def emit(ctx, builder, signature, arguments):
        _call(builder, _YIELD, ())
        return ctx.get_dummy_value()

    return types.void(), emit


@intrinsic
def nap(context):
    """Leave the core alone for a moment."""

    def emit(ctx, builder, signature, arguments):
        _call(builder, _SLEEP, (NAP,))
        return ctx.get_dummy_value()

    return types.void(), emit


@intrinsic
def clock(context):
    """What time it is, in ticks from any start."""

    def emit(ctx, builder, signature, arguments):
        word, number = ir.IntType(64), ir.IntType(32)
        time_of = cgutils.alloca_once(builder, ir.ArrayType(word, 2))
        place = builder.bitcast(time_of, word.as_pointer())
        name = "QueryPerformanceCounter" if _IS_WINDOWS else "clock_gettime"
        given = [place] if _IS_WINDOWS else [ir.Constant(number, time.CLOCK_MONOTONIC), place]
        kind = ir.FunctionType(number, [each.type for each in given])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, name), given)
        first = builder.load(place)
        if _IS_WINDOWS:
            return first
        rest = builder.load(builder.gep(place, [ir.Constant(number, 1)]))
        return builder.add(builder.mul(first, ir.Constant(word, 10**9)), rest)

    return types.int64(), emit


@inlined
def may_wait(looks, end):
    """Spend the time after so many looks, and whether it is not the end yet: every few looks the clock is asked."""
    if looks % _POLITE:
        pause()
        return True
    give_way()
    return clock() < end


@inlined
def help_with(board, me):
    """Compute parts until none is left to take: first those of thread `me`, then those of the others."""
    threads, pieces, first = read(board + 8 * THREADS), read(board + 8 * PIECES), read(board + 8 * FIRST)
    jobs = read(board + 8 * STOP) - first
    taken = board + 8 * (BOXES + 2 * (threads - 1) + _LINE)
    parts = threads * pieces
    for number in range(me, me + threads):
        owner = number % threads
        place = taken + 8 * _LINE * owner
        while read(place) < pieces:  # many threads may read a line at once, but only one may add to it
            piece = add(place, 1)
            if piece < pieces:
                part = owner * pieces + piece
                start, stop = first + jobs * part // parts, first + jobs * (part + 1) // parts
                call(read(board + 8 * ENTRY), board, start, stop, part)


def _make_lead(digest):
    @compiled()
    def lead(board):
        """The caller's side: everything is computed, and nobody knows the board any more, when this returns."""
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        places, stop = board + 8 * BOXES, board + 8 * (BOXES + 2 * (read(board + 8 * THREADS) - 1))
        begun = 0
        for place in range(places, stop, 16):
            box = read(place)
            said = IDLE if swap(box, IDLE, board) else PARKED if swap(box, PARKED, board) else BUSY
            add(place + 8, said)
        help_with(board, 0)
        for place in range(places, stop, 16):
            said = read(place + 8)
            begun += said != BUSY and not swap(read(place), board, said)
        looks, end, is_awake = 0, clock() + read(board + 8 * TICKS), True
        while read(board + 8 * DONE) < begun:
            if is_awake:
                looks += 1
                is_awake = may_wait(looks, end)
            else:
                nap()
        return 0

    return lead


def _make_serve(digest):
    @compiled()
    def serve(handle, me, ticks):
        """The worker's side: help whoever asks; return when nobody has for so long, or when asked to end."""
        digest  # noqa: B018  captured, so that the cache misses when a helper changed
        box = address_of(handle)
        looks, end = 0, clock() + ticks
        while read(box + _END) == 0:
            board = read(box)
            if board == PARKED:
                swap(box, PARKED, IDLE)
            elif board != IDLE:
                if swap(box, board, BUSY):
                    help_with(board, me)
                    swap(box, BUSY, IDLE)
                    add(board + 8 * DONE, 1)
                    end = clock() + ticks
            elif may_wait(looks, end):
                looks += 1
            elif swap(box, IDLE, PARKED):
                return

    return serve


_lead, _serve = _make_lead(source_digest()), _make_serve(source_digest())


def new_box():
    """A box, PARKED: an int64 array that begins with it and fills a line of the cache."""
    box = np.zeros(_LINE, np.int64)
    box[0] = PARKED
    return box


def serve(box, me: int, seconds: float) -> None:
    """Be worker `me`, 1 or more, until nobody has wanted help for so long; the box says PARKED then."""
    _serve(id(box), me, int(seconds / _TICK))


def blank(threads: int, pieces: int, boxes: list[Any], seconds: float):
    """A board that nothing is on yet, to be copied for every call, and the first word of its results.

    What the parts give is found there as ints, in order, once they have ended.

    Args:
        threads: the caller, and one for each box.
        pieces: parts of each.
        boxes: of the workers that are asked for help.
        seconds: for which the caller watches for the end of others before it takes a nap.
    """
    start = BOXES + 2 * len(boxes) + _LINE * (threads + 1)
    words = np.zeros(start + threads * pieces, np.int64)
    words[[LEAD, RESULTS, THREADS, PIECES, TICKS]] = _lead_address(), 8 * start, threads, pieces, int(seconds / _TICK)
    words[BOXES : BOXES + 2 * len(boxes) : 2] = [box.ctypes.data for box in boxes]
    return words, start


@cache
def _lead_address() -> int:
    return address(_lead, (types.int64,))
