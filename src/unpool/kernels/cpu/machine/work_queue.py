"""Threads that share the parts of a call without the interpreter lock.

Every worker has a slot: a word that is IDLE, ASLEEP, PARKED or BUSY, or the address of a task that wants help. The
caller puts its task into slots, computes parts itself until none is left, takes its task out of the slots whose worker
has not begun, and waits for those that have. Each thread begins with its own parts, so that a repeated call finds its
data in the same caches, and then takes parts of others.

A worker that has polled for SPIN seconds sleeps until its slot changes (a futex of Linux), which the caller's compiled
code changes in some microseconds. It must not wake on the core of the caller. Linux looks for an idle core among those
that share a cache, and a virtual machine often tells it of none; then the woken thread would wait for the core of its
waker while other cores are idle (docs/decisions/0001-python-threads.md). So the caller takes its core from those
that the sleeping thread may run on now, and the worker puts it back, unless other cores have been set since.
Where there is no futex, and after SLEEP seconds, the worker returns to Python and is PARKED.

`task.py` has the words of a task.
"""

import ctypes
import os
import platform
import time
from typing import Any

import numpy as np

from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.machine import native_threads
from unpool.kernels.cpu.machine.jit import jit
from unpool.kernels.cpu.machine.linux_calls import FUTEX_WAKE, LINUX_CALLS
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
    WAKES,
)
from unpool.kernels.cpu.tuning import WAKING
from unpool.kernels.cpu.vector.registration import LazyModule, jit_inline

atomics = LazyModule("unpool.kernels.cpu.machine.atomics")

_IS_WINDOWS = platform.system() == "Windows"

IDLE, PARKED, BUSY, ASLEEP = range(4)  # words of a slot; any other word is the address of a task

SPIN = WAKING.spin
"""Seconds for which a waiting thread keeps its core: longer than a caller works alone between two steps, where it runs
Python and, for Winograd's tiles, checks x."""

_LINE = 8  # words
_MASK = 16  # words: a bit for each core
_END, _THREAD, _PLACING, _TIMEOUT, _CORES, _OTHER_CORES, _CORES_NOW = (
    8 * word for word in (1, 2, 3, 4, _LINE, _LINE + _MASK, _LINE + 2 * _MASK)
)
"""Bytes from a slot to words of its worker: whether it is to end; its number for Linux, 0 if it is not to be placed;
ANYWHERE, MOVING or ELSEWHERE; how long it sleeps, two words; the cores that it might run on, those without the
caller's, and those that it may run on now."""

ANYWHERE, MOVING, ELSEWHERE = range(3)
"""A worker may run on all cores that it is allowed; a caller is changing that; it has been kept off a core."""

_IS_LINUX = platform.system() == "Linux" and hasattr(os, "sched_getaffinity")
_CALLS = LINUX_CALLS.get(platform.machine()) if _IS_LINUX else None

SLEEP = 60.0 if _CALLS else 0.0
"""Seconds for which a worker sleeps in compiled code before it parks; 0 where there is no futex."""

_POLLS_PER_YIELD = 32  # the thread that is waited for may need this core
_TICK = time.get_clock_info("perf_counter").resolution if _IS_WINDOWS else 1e-9  # seconds, of `clock`


@jit_inline
def wait_once(polls, end):
    """Wait between two polls; True before `end`, by the clock once in _POLLS_PER_YIELD polls."""
    if polls % _POLLS_PER_YIELD:
        atomics.pause()
        return True
    atomics.yield_core()
    return atomics.clock() < end


@jit_inline
def run_parts(task, me):
    """Compute parts until all are taken: first those of thread `me`, then those of the others."""
    threads, parts, first = (
        atomics.load_acquire(task + 8 * THREADS),
        atomics.load_acquire(task + 8 * PARTS),
        atomics.load_acquire(task + 8 * FIRST),
    )
    jobs = atomics.load_acquire(task + 8 * STOP) - first
    taken = task + 8 * (SLOTS + 2 * (threads - 1) + _LINE)
    count = threads * parts
    for number in range(me, me + threads):
        owner = number % threads
        place = taken + 8 * _LINE * owner
        while atomics.load_acquire(place) < parts:  # threads may read a line together, but only one may add to it
            own_part = atomics.fetch_add(place, 1)
            if own_part < parts:
                part = owner * parts + own_part
                start, stop = first + jobs * part // count, first + jobs * (part + 1) // count
                atomics.call_part(atomics.load_acquire(task + 8 * RUN_PART), task, start, stop, part)


@jit_inline
def avoid_core(slot):
    """Keep a sleeping worker off the core of the caller, if it may run on others."""
    core, thread = atomics.current_core(), atomics.load_acquire(slot + _THREAD)
    if thread == 0 or core < 0 or core >= 64 * _MASK or not atomics.compare_exchange(slot + _PLACING, ANYWHERE, MOVING):
        return
    placing = ANYWHERE
    if atomics.get_affinity(thread, 8 * _MASK, slot + _CORES) > 0:
        others = 0
        for word in range(_MASK):
            cores = atomics.load_acquire(slot + _CORES + 8 * word)
            if word == core // 64:
                cores &= ~(1 << core % 64)
            others |= cores
            atomics.store_release(slot + _OTHER_CORES + 8 * word, cores)
        may_meet = atomics.load_acquire(slot + _CORES + 8 * (core // 64)) >> core % 64 & 1
        if others != 0 and may_meet and atomics.set_affinity(thread, 8 * _MASK, slot + _OTHER_CORES) == 0:
            placing = ELSEWHERE
    atomics.store_release(slot + _PLACING, placing)


@jit_inline
def return_to_cores(slot):
    """Give a worker its core back, unless its set of cores has changed since."""
    if atomics.load_acquire(slot + _PLACING) != ELSEWHERE:
        return
    if atomics.get_affinity(0, 8 * _MASK, slot + _CORES_NOW) > 0:
        changed = 0
        for word in range(0, 8 * _MASK, 8):
            changed |= atomics.load_acquire(slot + _CORES_NOW + word) ^ atomics.load_acquire(slot + _OTHER_CORES + word)
        if changed == 0:
            atomics.set_affinity(0, 8 * _MASK, slot + _CORES)
    atomics.store_release(slot + _PLACING, ANYWHERE)


@jit_inline
def sleep_until_woken(slot, nanoseconds):
    """Sleep while the slot is ASLEEP, at most for some nanoseconds."""
    return_to_cores(slot)  # a caller may have been too late to place it
    atomics.store_release(slot + _TIMEOUT, nanoseconds // 10**9)
    atomics.store_release(slot + _TIMEOUT + 8, nanoseconds % 10**9)
    atomics.futex_wait(slot, ASLEEP, slot + _TIMEOUT)
    return_to_cores(slot)


@jit()
def _run_as_caller(task):
    """Compute all parts together with workers; no worker uses the task any more when this returns."""
    places, stop = task + 8 * SLOTS, task + 8 * (SLOTS + 2 * (atomics.load_acquire(task + 8 * THREADS) - 1))
    begun, wakes = 0, atomics.load_acquire(task + 8 * WAKES)
    for place in range(places, stop, 16):
        slot, state = atomics.load_acquire(place), BUSY
        if atomics.compare_exchange(slot, IDLE, task):
            state = IDLE
        elif atomics.compare_exchange(slot, PARKED, task):
            state = PARKED
        elif wakes > 0 and atomics.compare_exchange(slot, ASLEEP, task):
            state = IDLE
            wakes -= 1
            avoid_core(slot)
            atomics.futex_wake(slot)
        atomics.fetch_add(place + 8, state)
    run_parts(task, 0)
    for place in range(places, stop, 16):
        state = atomics.load_acquire(place + 8)
        begun += state != BUSY and not atomics.compare_exchange(atomics.load_acquire(place), task, state)
    polls, end, is_polling = 0, atomics.clock() + atomics.load_acquire(task + 8 * TICKS), True
    while atomics.load_acquire(task + 8 * DONE) < begun:
        if is_polling:
            polls += 1
            is_polling = wait_once(polls, end)
        else:
            atomics.sleep()
    return 0


@jit()
def _worker_loop(handle, me, ticks, sleep):
    """Help with tasks; return after `ticks` and `sleep` nanoseconds without one, or when asked to end."""
    slot = vec.address_of(handle)
    polls, end = 0, atomics.clock() + ticks
    while atomics.load_acquire(slot + _END) == 0:
        task = atomics.load_acquire(slot)
        if task == PARKED:
            atomics.compare_exchange(slot, PARKED, IDLE)
        elif task != IDLE:
            if atomics.compare_exchange(slot, task, BUSY):
                run_parts(task, me)
                atomics.compare_exchange(slot, BUSY, IDLE)
                atomics.fetch_add(task + 8 * DONE, 1)
                end = atomics.clock() + ticks
        elif wait_once(polls, end):
            polls += 1
        elif sleep > 0 and atomics.compare_exchange(slot, IDLE, ASLEEP):
            sleep_until_woken(slot, sleep)
            if atomics.compare_exchange(slot, ASLEEP, PARKED):
                return
            end = atomics.clock() + ticks
        elif sleep == 0 and atomics.compare_exchange(slot, IDLE, PARKED):
            return


def new_slot():
    """An int64 array that begins with a slot, PARKED, and the words of its worker."""
    slot = np.zeros(2 * _LINE + 3 * _MASK, np.int64)
    slot[0] = PARKED
    return slot


def worker_loop(slot, me: int, seconds: float, sleep: float = 0.0) -> None:
    """Run as worker `me`, 1 or more; return when no task has come for some seconds of polling and some of sleep.

    The slot is PARKED then.
    """
    _worker_loop(id(slot), me, int(seconds / _TICK), int(sleep * 1e9))


def set_worker(slot) -> None:
    """Tell a slot that the calling thread is its worker."""
    slot[_THREAD // 8] = native_threads.get_native_id() if SLEEP else 0


def end_worker(slot) -> None:
    """Ask the worker of a slot to end. A worker that is about to sleep misses it, and has to be asked again."""
    slot[_END // 8] = 1
    if _CALLS is not None:
        words = _CALLS.futex, slot.ctypes.data, FUTEX_WAKE, 1, 0
        ctypes.CDLL(None).syscall(*map(ctypes.c_long, words))


def new_task(threads: int, parts: int, slots: list[Any], seconds: float):
    """A task to be copied for every call, and the number of its first word of results.

    The results of the parts, which are ints, stand there in order when all parts have ended. `threads` counts the
    caller and one thread for each slot, `parts` those of each thread. The caller polls for some seconds, then sleeps.
    """
    start = SLOTS + 2 * len(slots) + _LINE * (threads + 1)
    words = np.zeros(start + threads * parts, np.int64)
    ticks = int(seconds / _TICK)
    caller = _run_as_caller.address()
    words[[RUN_AS_CALLER, RESULTS, THREADS, PARTS, TICKS]] = caller, 8 * start, threads, parts, ticks
    words[SLOTS : SLOTS + 2 * len(slots) : 2] = [slot.ctypes.data for slot in slots]
    return words, start
