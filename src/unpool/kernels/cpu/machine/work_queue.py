"""Threads that share the parts of a call without the interpreter lock.

Every worker has a slot: a word that is IDLE, PARKED or BUSY, or the address of a task that wants help. The caller puts
its task into slots, computes parts itself until none is left, takes its task out of the slots whose worker has not
begun, and waits for those that have. Each thread begins with its own parts, so that a repeated call finds its data in
the same caches, and then takes parts of others.

`task.py` has the words of a task.
"""

import platform
import time
from typing import Any

import numpy as np

from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.machine.jit import jit
from unpool.kernels.cpu.machine.task import (
    DONE,
    FIRST,
    PARTS,
    RESULTS,
    RUN_AS_CALLER,
    RUN_PART,
    SLOTS,
    STOP,
    THREADS,
    TICKS,
)
from unpool.kernels.cpu.vector.registration import jit_inline

_IS_WINDOWS = platform.system() == "Windows"

IDLE, PARKED, BUSY = 0, 1, 2  # words of a slot; any other word is the address of a task

SPIN = 200e-6
"""Seconds for which a waiting thread keeps its core: longer than what a caller does alone between two steps, which is
Python and, for Winograd's tiles, a check of x."""

_END = 8  # bytes from a slot to the word that asks its worker to end
_LINE = 8  # words
_POLLS_PER_YIELD = 32  # a thread may poll on the very core that it waits for
_TICK = time.get_clock_info("perf_counter").resolution if _IS_WINDOWS else 1e-9  # seconds, of `clock`


@jit_inline
def wait_once(polls, end):
    """Wait between two polls; True while there is time before `end`, by the clock every few polls."""
    if polls % _POLLS_PER_YIELD:
        vec.pause()
        return True
    vec.yield_core()
    return vec.clock() < end


@jit_inline
def run_parts(task, me):
    """Compute parts until all are taken: first those of thread `me`, then those of the others."""
    threads, parts, first = (
        vec.load_acquire(task + 8 * THREADS),
        vec.load_acquire(task + 8 * PARTS),
        vec.load_acquire(task + 8 * FIRST),
    )
    jobs = vec.load_acquire(task + 8 * STOP) - first
    taken = task + 8 * (SLOTS + 2 * (threads - 1) + _LINE)
    count = threads * parts
    for number in range(me, me + threads):
        owner = number % threads
        place = taken + 8 * _LINE * owner
        while vec.load_acquire(place) < parts:  # many threads may read a line at once, but only one may add to it
            own_part = vec.fetch_add(place, 1)
            if own_part < parts:
                part = owner * parts + own_part
                start, stop = first + jobs * part // count, first + jobs * (part + 1) // count
                vec.call_part(vec.load_acquire(task + 8 * RUN_PART), task, start, stop, part)


@jit()
def _run_as_caller(task):
    """Compute all parts together with workers; no worker uses the task any more when this returns."""
    places, stop = task + 8 * SLOTS, task + 8 * (SLOTS + 2 * (vec.load_acquire(task + 8 * THREADS) - 1))
    begun = 0
    for place in range(places, stop, 16):
        slot = vec.load_acquire(place)
        state = (
            IDLE
            if vec.compare_exchange(slot, IDLE, task)
            else PARKED
            if vec.compare_exchange(slot, PARKED, task)
            else BUSY
        )
        vec.fetch_add(place + 8, state)
    run_parts(task, 0)
    for place in range(places, stop, 16):
        state = vec.load_acquire(place + 8)
        begun += state != BUSY and not vec.compare_exchange(vec.load_acquire(place), task, state)
    polls, end, is_polling = 0, vec.clock() + vec.load_acquire(task + 8 * TICKS), True
    while vec.load_acquire(task + 8 * DONE) < begun:
        if is_polling:
            polls += 1
            is_polling = wait_once(polls, end)
        else:
            vec.sleep()
    return 0


@jit()
def _worker_loop(handle, me, ticks):
    """Help with tasks; return after `ticks` without one, or when asked to end."""
    slot = vec.address_of(handle)
    polls, end = 0, vec.clock() + ticks
    while vec.load_acquire(slot + _END) == 0:
        task = vec.load_acquire(slot)
        if task == PARKED:
            vec.compare_exchange(slot, PARKED, IDLE)
        elif task != IDLE:
            if vec.compare_exchange(slot, task, BUSY):
                run_parts(task, me)
                vec.compare_exchange(slot, BUSY, IDLE)
                vec.fetch_add(task + 8 * DONE, 1)
                end = vec.clock() + ticks
        elif wait_once(polls, end):
            polls += 1
        elif vec.compare_exchange(slot, IDLE, PARKED):
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
    """A task to be copied for every call, and the number of its first word of results.

    There the results of the parts, which are ints, stand in order once all have ended. `threads` are the caller and one
    for each slot, `parts` those of each thread; the caller polls for some seconds before it sleeps.
    """
    start = SLOTS + 2 * len(slots) + _LINE * (threads + 1)
    words = np.zeros(start + threads * parts, np.int64)
    ticks = int(seconds / _TICK)
    caller = _run_as_caller.address()
    words[[RUN_AS_CALLER, RESULTS, THREADS, PARTS, TICKS]] = caller, 8 * start, threads, parts, ticks
    words[SLOTS : SLOTS + 2 * len(slots) : 2] = [slot.ctypes.data for slot in slots]
    return words, start
