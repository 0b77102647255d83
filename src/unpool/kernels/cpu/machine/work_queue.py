"""Threads that share the parts of a call without the interpreter lock.

Every worker has a slot: a word that is IDLE, PARKED or BUSY, or the address of a task that wants help. The caller puts
its task into slots, computes parts itself until none is left, takes its task out of the slots whose worker has not
begun, and waits for those that have. Each thread begins with its own parts, so that a repeated call finds its data in
the same caches, and then takes parts of others.

A task is an int64 array: the words of `jit.py`, then those named here, then for each slot its address and the word
that the task replaced, then for each thread a cache line with the number of its parts that are taken, then the results
of all parts.
"""

import platform
import time
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from unpool.kernels.cpu.machine.jit import RESULTS, RUN_AS_CALLER, RUN_PART, jit, jit_inline
from unpool.kernels.cpu.machine.numba_internals import address
from unpool.kernels.cpu.vector import address_of
from unpool.kernels.cpu.vector.type import I32, I64, operation, pointer_to

_IS_WINDOWS = platform.system() == "Windows"

IDLE, PARKED, BUSY = 0, 1, 2  # words of a slot; any other word is the address of a task

# words of a task: jobs, threads, parts of each, workers that have helped, ticks before sleeping, the first slot
FIRST, STOP, THREADS, PARTS, DONE, TICKS, SLOTS = range(6, 13)
# seconds for which a waiting thread keeps its core: longer than what a caller does alone between two steps, which is
# Python and, for Winograd's tiles, a check of x
SPIN = 200e-6
SLEEP = 1 if _IS_WINDOWS else 30  # of a caller between two checks: milliseconds on Windows, microseconds elsewhere
_END = 8  # bytes from a slot to the word that asks its worker to end
_LINE = 8  # words
_PAUSES = {"x86_64": ("llvm.x86.sse2.pause", ()), "amd64": ("llvm.x86.sse2.pause", ()),
           "aarch64": ("llvm.aarch64.hint", (1,)), "arm64": ("llvm.aarch64.hint", (1,))}  # fmt: skip
_YIELD, _SLEEP = ("SwitchToThread", "Sleep") if _IS_WINDOWS else ("sched_yield", "usleep")
_POLLS_PER_YIELD = 32  # a thread may poll on the very core that it waits for
_TICK = time.get_clock_info("perf_counter").resolution if _IS_WINDOWS else 1e-9  # seconds, of `clock`


def _call(builder, name, operands):
    kind = ir.FunctionType(ir.VoidType(), [I32] * len(operands))
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    builder.call(function, [I32(each) for each in operands])


@operation
def read(address):
    """The word at an address; what another thread wrote before it changed the word is visible after this (acquire)."""
    return types.int64, lambda builder, address: builder.load_atomic(pointer_to(builder, address, I64), "acquire", 8)


@operation
def add(address, amount):
    """Add to the word at an address, and return its old value; earlier writes are visible to its readers (release)."""
    return types.int64, lambda builder, address, amount: builder.atomic_rmw(
        "add", pointer_to(builder, address, I64), amount, "acq_rel"
    )


@operation
def swap(address, old, new):
    """Replace the word at an address by `new` if it is `old`; True if it was."""
    return types.boolean, lambda builder, address, old, new: builder.extract_value(
        builder.cmpxchg(pointer_to(builder, address, I64), old, new, "acq_rel", "acquire"), 1
    )


@operation
def call(function, task, first, stop, part):
    """Call a kernel's `run_part`, given its address."""
    kind = ir.FunctionType(ir.VoidType(), [I64] * 4)
    return types.void, lambda builder, address, *rest: builder.call(pointer_to(builder, address, kind), rest)


@operation
def pause():
    """The processor's hint for a loop that waits."""

    def emit(builder):
        name, operands = _PAUSES.get(platform.machine().lower(), ("", ()))
        if name:
            _call(builder, name, operands)

    return types.void, emit


@operation
def yield_core():
    """Give the core to another thread that waits for it."""
    return types.void, lambda builder: _call(builder, _YIELD, ())


@operation
def sleep():
    """Block for SLEEP."""
    return types.void, lambda builder: _call(builder, _SLEEP, (SLEEP,))


@operation
def clock():
    """The time in ticks, from any start."""

    def emit(builder):
        time_of = cgutils.alloca_once(builder, ir.ArrayType(I64, 2))
        place = builder.bitcast(time_of, I64.as_pointer())
        name = "QueryPerformanceCounter" if _IS_WINDOWS else "clock_gettime"
        operands = [place] if _IS_WINDOWS else [I32(time.CLOCK_MONOTONIC), place]
        kind = ir.FunctionType(I32, [operand.type for operand in operands])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, name), operands)
        first = builder.load(place)
        if _IS_WINDOWS:
            return first
        rest = builder.load(builder.gep(place, [I32(1)]))
        return builder.add(builder.mul(first, I64(10**9)), rest)

    return types.int64, emit


@jit_inline
def wait_once(polls, end):
    """Wait between two polls; True while there is time before `end`, by the clock every few polls."""
    if polls % _POLLS_PER_YIELD:
        pause()
        return True
    yield_core()
    return clock() < end


@jit_inline
def run_parts(task, me):
    """Compute parts until all are taken: first those of thread `me`, then those of the others."""
    threads, parts, first = read(task + 8 * THREADS), read(task + 8 * PARTS), read(task + 8 * FIRST)
    jobs = read(task + 8 * STOP) - first
    taken = task + 8 * (SLOTS + 2 * (threads - 1) + _LINE)
    count = threads * parts
    for number in range(me, me + threads):
        owner = number % threads
        place = taken + 8 * _LINE * owner
        while read(place) < parts:  # many threads may read a line at once, but only one may add to it
            own_part = add(place, 1)
            if own_part < parts:
                part = owner * parts + own_part
                start, stop = first + jobs * part // count, first + jobs * (part + 1) // count
                call(read(task + 8 * RUN_PART), task, start, stop, part)


@jit()
def _run_as_caller(task):
    """Compute all parts together with workers; no worker uses the task any more when this returns."""
    places, stop = task + 8 * SLOTS, task + 8 * (SLOTS + 2 * (read(task + 8 * THREADS) - 1))
    begun = 0
    for place in range(places, stop, 16):
        slot = read(place)
        state = IDLE if swap(slot, IDLE, task) else PARKED if swap(slot, PARKED, task) else BUSY
        add(place + 8, state)
    run_parts(task, 0)
    for place in range(places, stop, 16):
        state = read(place + 8)
        begun += state != BUSY and not swap(read(place), task, state)
    polls, end, is_polling = 0, clock() + read(task + 8 * TICKS), True
    while read(task + 8 * DONE) < begun:
        if is_polling:
            polls += 1
            is_polling = wait_once(polls, end)
        else:
            sleep()
    return 0


@jit()
def _worker_loop(handle, me, ticks):
    """Help with tasks; return after `ticks` without one, or when asked to end."""
    slot = address_of(handle)
    polls, end = 0, clock() + ticks
    while read(slot + _END) == 0:
        task = read(slot)
        if task == PARKED:
            swap(slot, PARKED, IDLE)
        elif task != IDLE:
            if swap(slot, task, BUSY):
                run_parts(task, me)
                swap(slot, BUSY, IDLE)
                add(task + 8 * DONE, 1)
                end = clock() + ticks
        elif wait_once(polls, end):
            polls += 1
        elif swap(slot, IDLE, PARKED):
            return


def new_slot():
    """An int64 array that begins with a slot, PARKED, and fills a cache line."""
    slot = np.zeros(_LINE, np.int64)
    slot[0] = PARKED
    return slot


def worker_loop(slot, me: int, seconds: float) -> None:
    """Run as worker `me`, 1 or more, until no task has come for some seconds; the slot is PARKED then."""
    _worker_loop(id(slot), me, int(seconds / _TICK))


def new_task(threads: int, parts: int, slots: list[Any], seconds: float):
    """A task to be copied for every call, and the number of its first word of results, ints in the order of the parts.

    `threads` are the caller and one for each slot, `parts` those of each; the caller polls `seconds` before it sleeps.
    """
    start = SLOTS + 2 * len(slots) + _LINE * (threads + 1)
    words = np.zeros(start + threads * parts, np.int64)
    ticks = int(seconds / _TICK)
    caller = address(_run_as_caller, (types.int64,))
    words[[RUN_AS_CALLER, RESULTS, THREADS, PARTS, TICKS]] = caller, 8 * start, threads, parts, ticks
    words[SLOTS : SLOTS + 2 * len(slots) : 2] = [slot.ctypes.data for slot in slots]
    return words, start
