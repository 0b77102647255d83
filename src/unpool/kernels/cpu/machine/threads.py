"""Splits a kernel's independent jobs over threads.

Kernels are compiled serial and release the interpreter lock, so concurrent callers, forked children and other users of
Numba do not share a threading layer. Parts are contiguous, and the same code computes a job in every thread:
results do not depend on the number of threads.

A caller offers its parts to workers, and computes every part that no worker takes. So a call never waits for a thread
that has not begun. Workers are threads of the system (`native_threads.py`) that poll for work in compiled code,
without the interpreter lock, and compute it there (`work_queue.py`): a hand-over takes about a microsecond. After SPIN
seconds without work they sleep, on Linux still in compiled code, where they are woken without Python. After SLEEP
seconds, and on other systems at once, they park in Python; waking a parked thread takes about 100 microseconds. After
IDLE_SECONDS they end.
"""

import atexit
import math
import os
import time
from _queue import Empty, SimpleQueue  # compiled: gevent may replace that of `queue`
from _thread import LockType, _local
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from unpool.kernels.cpu.machine import native_threads, work_queue
from unpool.kernels.cpu.machine.host import available_cores
from unpool.kernels.cpu.machine.jobs import PARTS_PER_THREAD
from unpool.kernels.cpu.machine.plan import Condition, Operand, PlanStep
from unpool.kernels.cpu.machine.task import FIRST, RUN_AS_CALLER, SHARED, STOP, WAKES
from unpool.kernels.cpu.tuning import THREADS, WAKING
from unpool.kernels.cpu.vector.registration import jit_inline
from unpool.shape_cache import count_bytes, nbytes_of

VECTOR_SPEEDUP = THREADS.vector_speedup
IDLE_SECONDS = 60.0  # a thread ends after so many seconds without work; a call that needs it starts it again
ROUND_SECONDS = 0.1  # duration of a round of a long call; between rounds Python handles signals
LONG_SECONDS = 0.15  # a call is long if it takes more seconds than this, judged by earlier calls


class Pace:
    """The time that a kernel takes for a unit of work; long calls run it in rounds of some jobs."""

    def __init__(self) -> None:
        self._is_known = False
        self._seconds = ROUND_SECONDS / THREADS.round  # a first guess, slower than any kernel

    def run(self, kernel: Any, jobs: int, work: int, threads: int, parts: int, args: tuple[Any, ...]) -> list[Any]:
        """As `split`; no thread computes while a signal's handler runs, which may raise."""
        results: list[Any]
        if work * self._seconds <= LONG_SECONDS:
            results, seconds = _timed(kernel, 0, jobs, work, threads, parts, args)
        else:
            results, seconds = self._in_rounds(kernel, jobs, work, threads, parts, args)
        self._seconds = max(seconds, self._seconds * THREADS.decay) if self._is_known else seconds
        self._is_known = True
        return results

    def _in_rounds(self, kernel: Any, jobs: int, work: int, threads: int, parts: int, args: tuple[Any, ...]):
        """The results, and the seconds for a unit of work in the last round."""
        results: list[Any] = []
        seconds, first, count = self._seconds, 0, jobs
        while first < jobs:
            left = work * (jobs - first) / jobs * seconds
            count = min(8 * count, jobs - first if left <= LONG_SECONDS else int((jobs - first) * ROUND_SECONDS / left))
            count = max(count - count % threads, threads) if count < jobs - first else count
            stop = min(first + count, jobs)
            some, seconds = _timed(kernel, first, stop, work * (stop - first) / jobs, threads, parts, args)
            results += some
            first = stop
        return results, seconds


def _timed(kernel: Any, first: int, stop: int, work: float, threads: int, parts: int, args: tuple[Any, ...]):
    start = time.perf_counter()
    if threads <= 1 or stop - first < threads:
        results = [kernel(*args, first, stop)]
    else:
        results = _pool().compute(kernel, first, stop, threads, parts, work, args)
    return results, (time.perf_counter() - start) / work


class _Worker:
    """A slot in which any caller can ask for help, and its thread; the thread ends when it has been idle for long."""

    def __init__(self, number: int) -> None:
        self.slot = work_queue.new_slot()
        self.is_parked = True
        self._number = number
        self._bell: SimpleQueue[bool] = SimpleQueue()
        self._thread: LockType | None = None  # held until its thread ends
        self._lock = native_threads.new_lock()  # of the thread
        # Here, not in its thread, machine code is found or compiled: Numba's lock may be one of greenlets.
        work_queue.worker_loop(self.slot, number, 0.0)

    def unpark(self) -> None:
        """Let its thread help callers."""
        if self._bell.empty() and self._lock.acquire(blocking=False):
            try:
                if self._thread is None:
                    self._thread = native_threads.start_thread(self._run, "unpool")
                self.is_parked = False
                self._bell.put(True)
            except RuntimeError:  # the system has no more threads, or the interpreter is ending
                pass
            finally:
                self._lock.release()

    def stop(self) -> None:
        """End its thread, and wait for it."""
        self._bell.put(False)
        thread = self._thread
        while thread is not None and thread.locked():
            work_queue.end_worker(self.slot)
            if thread.acquire(timeout=0.01):
                thread.release()

    def _run(self) -> None:
        work_queue.set_worker(self.slot)
        while self._wait_for_bell():
            work_queue.worker_loop(self.slot, self._number, work_queue.SPIN, work_queue.SLEEP)
            self.is_parked = True

    def _wait_for_bell(self) -> bool:
        """Wait for work, at most IDLE_SECONDS; False if the thread is to end."""
        try:
            return self._bell.get(timeout=IDLE_SECONDS)
        except Empty:
            with self._lock:
                if self._bell.empty():
                    self._thread = None
                    return False
            return self._bell.get()


class _Workers:
    """All workers. Their number grows to the maximum that calls have needed at once; no call waits for a lock."""

    def __init__(self) -> None:
        self._all: list[_Worker] = []
        self._tasks: dict[tuple[int, int], tuple[Any, int]] = {}
        self._is_open = True
        self._lock = native_threads.new_lock()  # of the list

    def compute(
        self, kernel: Any, first: int, stop: int, threads: int, parts: int, work: float, args: tuple[Any, ...]
    ) -> list[Any]:
        """The result of each part, in order. The caller wakes threads one by one.

        With n of them the work takes work / n: another one does not pay if n * n * WAKING.wake exceeds the work.
        """
        if len(self._all) < threads - 1:
            self._add_workers(threads - 1)
        helpers = self._all[: threads - 1]
        parts = min(parts, (stop - first) // threads)
        wakes = math.isqrt(int(work) // WAKING.wake) + 1
        for worker in helpers:
            if worker.is_parked:
                if wakes == 0:
                    break
                worker.unpark()
                wakes -= 1
        known = self._tasks.get((len(helpers), parts))
        if known is None:
            slots = [worker.slot for worker in helpers]
            known = work_queue.new_task(len(helpers) + 1, parts, slots, work_queue.SPIN)
            self._tasks[len(helpers), parts] = known
        template, start = known
        task = template.copy()
        task[FIRST], task[STOP], task[WAKES] = first, stop, wakes
        kernel(*args, SHARED, id(task))
        results: list[Any] = task[start:].tolist()
        return results

    def stop(self) -> None:
        self._is_open = False
        for worker in self._all:
            worker.stop()

    def _add_workers(self, size: int) -> None:
        if self._lock.acquire(blocking=False):
            try:
                while self._is_open and len(self._all) < size:
                    self._all.append(_Worker(len(self._all) + 1))
            finally:
                self._lock.release()


_workers = _Workers()


class ForeignPool:
    """The threads of another runtime: `run_parts` is the address of its C function that computes all parts of a task.

    It takes the address of the task, and returns when all parts have ended.
    """

    def __init__(self, run_parts: int) -> None:
        self._run_parts = run_parts
        self._tasks: dict[tuple[int, int], tuple[Any, int]] = {}

    def compute(
        self, kernel: Any, first: int, stop: int, threads: int, parts: int, work: float, args: tuple[Any, ...]
    ) -> list[Any]:
        """The result of each part, in order, as workers compute it."""
        parts = min(parts, (stop - first) // threads)
        known = self._tasks.get((threads, parts))
        if known is None:
            known = work_queue.new_task(threads, parts, [], 0.0)
            known[0][RUN_AS_CALLER] = self._run_parts
            self._tasks[threads, parts] = known
        template, start = known
        task = template.copy()
        task[FIRST], task[STOP] = first, stop
        kernel(*args, SHARED, id(task))
        results: list[Any] = task[start:].tolist()
        return results


class _Caller(_local):
    pool: ForeignPool | None = None  # that this thread's calls use


_caller = _Caller()


def _pool() -> _Workers | ForeignPool:
    return _caller.pool or _workers


@contextmanager
def use_pool(pool: ForeignPool) -> Iterator[None]:
    """Let this thread's calls compute in the threads of another runtime instead of unpool's workers."""
    before, _caller.pool = _caller.pool, pool
    try:
        yield
    finally:
        _caller.pool = before


def split(
    kernel: Callable[..., Any], jobs: int, work: int, threads: int | None, *args: Any,
    parts: int = 1, pace: Pace | None = None,
) -> list[Any]:  # fmt: skip
    """Call `kernel(*args, first, stop)` on contiguous parts of range(jobs); the result of each, in order, as numbers.

    The kernel, from `jit`, returns a bool, an int or nothing. `work` are the elements that all jobs visit: they decide
    whether threads are worth their hand-over. `threads` is a maximum, None for all cores. Each thread has up to
    `parts` parts, more than one where a part costs little beside its jobs. Without `pace`, the times are those of the
    kernel's own calls.
    """
    pace = pace or _paces.setdefault(kernel, Pace())
    return _spread(kernel, jobs, work, thread_count(work, threads), parts, pace, args)


def _spread(kernel: Any, jobs: int, work: int, most: int, parts: int, pace: Pace, args: tuple[Any, ...]) -> list[Any]:
    """As `split`, over `most` threads if there are enough jobs."""
    threads = min(jobs, most)
    if work > THREADS.round:
        return pace.run(kernel, jobs, work, threads, parts, args)
    return [kernel(*args, 0, jobs)] if threads <= 1 else _pool().compute(kernel, 0, jobs, threads, parts, work, args)


def thread_count(work: int, threads: int | None) -> int:
    """The number of threads, 1 or more, that some work is worth; `threads` is a maximum, as in `split`."""
    if work < 2 * THREADS.thread:
        return 1
    most: int = available_cores() if threads is None else min(threads, max_threads())
    return thread_count_of(work, most)


@jit_inline
def thread_count_of(work: int, most: int) -> int:
    """As `thread_count`, with `most` as the maximum."""
    return max(1, min(work // THREADS.thread, most))


@cache
def max_threads() -> int:
    """The maximum number of threads of a call: the cores that were available at the first call."""
    return available_cores()


_paces: dict[Any, Pace] = {}


class Launch:
    """A kernel with all its arguments but the arrays: prepared once for a shape, and called again and again.

    The kernel takes the handles of its arrays, `id(x)`, which `address_of` turns into addresses: an int passes the
    dispatcher faster than an array, and no rank, flag or view of an array needs a compilation of its own. Loops that
    LLVM turns into vectors need typed arrays; a kernel with such loops takes them after the handles.
    """

    def __init__(self, kernel: Any, jobs: int, work: int, *args: Any, parts: int = PARTS_PER_THREAD) -> None:
        """Arguments are those of `split`; `args` follow the arrays. A kernel without jobs may be None."""
        self._kernel, self._jobs, self._work, self._args, self._parts = kernel, jobs, work, args, parts
        self._enter: Callable[..., Any] = self._first_call
        self._serial_args = (*args, 0, jobs)
        self.nbytes = nbytes_of(args)  # of tables
        self._pace = Pace()

    def __call__(self, x: Any, y: Any, z: Any, threads: int | None, *more: Any) -> list[Any]:
        """The results of the kernel on three C-contiguous arrays; `more`, of constant types, follow their handles."""
        if self._work < 2 * THREADS.thread and self._kernel is not None:
            return [self._enter(id(x), id(y), id(z), *more, *self._serial_args)]
        return self.run((x, y, z), threads, *more)

    def run(self, arrays: tuple[Any, ...], threads: int | None, *more: Any) -> list[Any]:
        """As a call, for any number of arrays."""
        if self._kernel is None:
            return []
        handles = (*map(id, arrays), *more)
        if self._work < 2 * THREADS.thread:
            return [self._enter(*handles, *self._serial_args)]
        return split(
            self._enter, self._jobs, self._work, threads, *handles, *self._args, parts=self._parts, pace=self._pace
        )

    def run_on(self, threads: int, arrays: tuple[Any, ...], *more: Any) -> list[Any]:
        """As `run`, on a number of threads from `thread_count`."""
        args = (*map(id, arrays), *more, *self._args)
        return _spread(self._enter, self._jobs, self._work, threads, self._parts, self._pace, args)

    def steps(
        self, arrays: tuple[Operand, ...], threads: int | None, *more: Any, outcome: Condition = Condition.ALWAYS,
        then: tuple[int, ...] = (1,),
    ) -> tuple[PlanStep, ...]:  # fmt: skip
        """The call of `run` as the step of a plan; no step without a kernel."""
        if self._kernel is None:
            return ()
        count = min(self._jobs, thread_count(self._work, threads))
        parts = 1 if count <= 1 else count * min(self._parts, self._jobs // count)
        return (PlanStep(self._kernel, (*arrays, *more, *self._args), self._jobs, parts, outcome, then),)

    def _first_call(self, *args: Any) -> Any:
        """Find the machine code for the types of the arguments; later calls enter it directly."""
        self._enter = self._kernel.entry_point(args)
        return self._enter(*args)


class Launches:
    """A `Launch` for each number of threads: the more threads, the more jobs the work is split into."""

    def __init__(self, work: int, make: Callable[[int], Launch]) -> None:
        """`make` builds the launch for a number of threads; `work` is that of each."""
        self._work, self._make = work, make
        self._launches: dict[int, Launch] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of all tables."""
        return sum(launch.nbytes for launch in self._launches.copy().values())

    def run(self, arrays: tuple[Any, ...], threads: int | None, *more: Any) -> list[Any]:
        """As `Launch.run`."""
        count = thread_count(self._work, threads)
        return (self._launches.get(count) or self.for_threads(count)).run_on(count, arrays, *more)

    def steps(
        self, arrays: tuple[Operand, ...], threads: int | None, *more: Any, outcome: Condition = Condition.ALWAYS,
        then: tuple[int, ...] = (1,),
    ) -> tuple[PlanStep, ...]:  # fmt: skip
        """As `Launch.steps`."""
        launch = self.for_threads(thread_count(self._work, threads))
        return launch.steps(arrays, threads, *more, outcome=outcome, then=then)

    def for_threads(self, threads: int) -> Launch:
        """The launch for a number of threads."""
        if threads not in self._launches:
            self._launches[threads] = launch = self._make(threads)
            count_bytes(launch.nbytes)
        return self._launches[threads]


def _forget_workers() -> None:
    """A forked child has none of its parent's threads."""
    global _workers
    _workers = _Workers()


atexit.register(lambda: _workers.stop())  # when the interpreter ends, no thread may be in compiled code
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_workers)
