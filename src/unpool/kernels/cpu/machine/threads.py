"""Splits a kernel's independent jobs over threads.

Kernels are compiled serial and release the interpreter lock, so concurrent callers, forked children and other
users of Numba never meet a shared threading layer. Parts are contiguous, and every job is computed by the same
code whoever runs it: results do not depend on the number of threads.

A caller offers its parts to workers and works through them itself: what nobody took it does alone, so that no call ever
waits for a thread that has not begun. Workers are Python threads that watch for work in compiled code, without the
interpreter lock, and compute it there (`board.py`): a hand-over takes about a microsecond. After SPIN seconds without
work they park, in Python; waking a parked thread takes about 50. After IDLE seconds they end. In the plain mode of
`numba_seam.py` they compute in Python (`parts.py`), and are woken for every call.
"""

import atexit
import os
import threading
import time
from collections.abc import Callable
from functools import cache
from queue import Empty, SimpleQueue
from typing import Any

from unpool.kernels.cpu.machine import board
from unpool.kernels.cpu.machine.cores import available
from unpool.kernels.cpu.machine.entry import SHARED
from unpool.kernels.cpu.machine.jobs import PIECES
from unpool.kernels.cpu.machine.numba_seam import entry_point, is_plain
from unpool.kernels.cpu.machine.parts import Parts
from unpool.kernels.cpu.machine.placing import allow, keep_off_this_core
from unpool.kernels.cpu.machine.stop import go_on
from unpool.shape_cache import count_bytes, nbytes_of

VECTORISED = 4
"""So many elements of a pool that moves whole vectors, or products of sums in registers, take the time of one element,
as `split` counts work."""

IDLE = 60.0
"""Seconds without work after which a thread ends; the next call that wants it starts it again."""

ROUND = 0.1
"""Seconds for which a long call stays in compiled code, about: in between, Python handles signals, such as Ctrl-C, and
`stop.py` asks whether to go on."""

WHOLE = 0.15
"""Seconds that a call takes, by what it took before, up to which it is no long one."""

_PLAIN = is_plain()
_WORTH_A_THREAD = 1 << 15  # elements visited, at about 1 per nanosecond where they are in the cache
_WORTH_A_ROUND = 1 << 22
_WAKING = 5000  # of a caller, for each thread that sleeps, in the same unit: an estimate
_FORGET = 0.7  # of the longest time, with every call


class Pace:
    """How long a kernel takes, as far as is known: in long calls it is asked for some jobs after others."""

    def __init__(self) -> None:
        self._is_known = False
        self._seconds = ROUND / _WORTH_A_ROUND  # for a unit of work: more than any kernel takes, until it has run

    def run(
        self, kernel: Callable[..., Any], jobs: int, work: int, threads: int, pieces: int, args: tuple[Any, ...]
    ) -> list[Any]:
        """As `split`; nobody is at work when a signal's handler runs, or `go_on`, which may raise."""
        if work * self._seconds <= WHOLE:
            results, seconds = _timed(kernel, 0, jobs, work, threads, pieces, args)
        else:
            results, seconds = self._in_rounds(kernel, jobs, work, threads, pieces, args)
        self._seconds = max(seconds, self._seconds * _FORGET) if self._is_known else seconds
        self._is_known = True
        return results

    def _in_rounds(
        self, kernel: Callable[..., Any], jobs: int, work: int, threads: int, pieces: int, args: tuple[Any, ...]
    ) -> tuple[list[Any], float]:
        """Some jobs after others: what they give, and the seconds for a unit of work in the last of these rounds."""
        results: list[Any] = []
        seconds, first, count = self._seconds, 0, jobs
        while first < jobs:
            if first:
                go_on()
            left = work * (jobs - first) / jobs * seconds
            count = min(8 * count, jobs - first if left <= WHOLE else int((jobs - first) * ROUND / left))
            count = max(count - count % threads, threads) if count < jobs - first else count
            stop = min(first + count, jobs)
            some, seconds = _timed(kernel, first, stop, work * (stop - first) / jobs, threads, pieces, args)
            results += some
            first = stop
        return results, seconds


def _timed(
    kernel: Callable[..., Any], first: int, stop: int, work: float, threads: int, pieces: int, args: tuple[Any, ...]
) -> tuple[list[Any], float]:
    """What some jobs give, and the seconds that they take for a unit of work."""
    start = time.perf_counter()
    if threads <= 1 or stop - first < threads:
        results = [kernel(*args, first, stop)]
    else:
        results = _workers.compute(kernel, first, stop, threads, pieces, work, args)
    return results, (time.perf_counter() - start) / work


class _Worker:
    """A helper with the parts of any caller: a box, and a thread where one has been wanted lately."""

    def __init__(self, number: int) -> None:
        self.box = board.new_box()
        self._number = number
        self._bell: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._cores: set[int] = set()  # that it may use once it is awake; none where it may use them now
        self._lock = threading.Lock()  # whether there is a thread, and on which cores

    def wake(self, work: Callable[[], None]) -> None:
        """Have its thread do some work, unless other work waits for it."""
        if self._bell.empty() and self._lock.acquire(blocking=False):
            try:
                if self._thread is None:
                    self._thread = self._started()
                elif not self._cores:
                    self._cores = keep_off_this_core(self._thread)
                self._bell.put(work)
            except RuntimeError:  # no more threads, or the interpreter is ending: the caller does it all
                pass
            finally:
                self._lock.release()

    def watch(self) -> None:
        """Work of a thread: to help those who ask for it in the box, until nobody has for SPIN seconds."""
        board.serve(self.box, self._number, board.SPIN)

    def stop(self) -> None:
        """End it, once it has finished what it has begun."""
        self.box[1] = 1
        self._bell.put(None)
        thread = self._thread
        if thread is not None:
            thread.join()

    def _started(self) -> threading.Thread:
        thread = threading.Thread(target=self._serve, name="unpool", daemon=True)
        thread.start()
        return thread

    def _serve(self) -> None:
        for work in iter(self._wanted, None):
            self._roam()
            work()

    def _roam(self) -> None:
        """Let the system move it again, now that it is awake."""
        with self._lock:
            allow(self._cores)
            self._cores = set()

    def _wanted(self) -> Callable[[], None] | None:
        """Wait for the bell, but not for ever: what there is to do, None to end."""
        try:
            return self._bell.get(timeout=IDLE)
        except Empty:
            with self._lock:
                if self._bell.empty():
                    self._thread = None
                    return None
            return self._bell.get()


class _Workers:
    """As many as were ever wanted at once. No call waits for a lock: it does without whom another call is adding."""

    def __init__(self) -> None:
        self._all: list[_Worker] = []
        self._blank: dict[tuple[int, int], tuple[Any, int]] = {}
        self._is_open = True
        self._lock = threading.Lock()  # the list

    def compute(
        self, kernel: Callable[..., Any], first: int, stop: int, threads: int, pieces: int, work: float,
        args: tuple[Any, ...],
    ) -> list[Any]:  # fmt: skip
        """Have the jobs computed; what each part gives, in order.

        The caller wakes threads one by one. With n of them the work is done in work / n, and waking another one saves
        less than it takes where n * n * _WAKING is more than the work.
        """
        if len(self._all) < threads - 1:
            self._grow(threads - 1)
        helpers = self._all[: threads - 1]
        pieces = min(pieces, (stop - first) // threads)
        if _PLAIN:
            parts = Parts(kernel, args, first, stop, (len(helpers) + 1) * pieces)
            return parts.compute([worker.wake for worker in helpers])
        woken = 0
        for worker in helpers:
            if worker.box[0] == board.PARKED:
                if woken and woken * woken * _WAKING > work:
                    break
                worker.wake(worker.watch)
                woken += 1
        blank, start = self._blank.get((len(helpers), pieces)) or self._new_blank(helpers, pieces)
        record = blank.copy()
        record[board.FIRST], record[board.STOP] = first, stop
        kernel(*args, SHARED, id(record))
        results: list[Any] = record[start:].tolist()
        return results

    def stop(self) -> None:
        """End all threads, once they have finished what they have begun."""
        self._is_open = False
        for worker in self._all:
            worker.stop()

    def _new_blank(self, helpers: list[_Worker], pieces: int) -> tuple[Any, int]:
        found: tuple[Any, int] = board.blank(len(helpers) + 1, pieces, [each.box for each in helpers], board.SPIN)
        self._blank[len(helpers), pieces] = found
        return found

    def _grow(self, size: int) -> None:
        if self._lock.acquire(blocking=False):
            try:
                while self._is_open and len(self._all) < size:
                    self._all.append(_Worker(len(self._all) + 1))
            finally:
                self._lock.release()


_workers = _Workers()


def split(
    kernel: Callable[..., Any],
    jobs: int,
    work: int,
    threads: int | None,
    *args: Any,
    pieces: int = 1,
    pace: Pace | None = None,
) -> list[Any]:
    """Call `kernel(*args, first, stop)` on contiguous parts of range(jobs): what a `Launch` is made of.

    Args:
        kernel: from `compiled`; returns a bool, an int or nothing.
        jobs: how many independent jobs there are.
        work: elements that all jobs visit together; decides whether threads are worth their hand-over.
        threads: at most so many threads, and never more than cores that are available; None for all of these.
        args: what the kernel takes before `first` and `stop`.
        pieces: at most so many parts for each thread; more than one where little is done once for a part.
        pace: what is known of such calls; without it, what is known of the kernel.

    Returns:
        What the kernel returned for each part, in order, as numbers where there are several.
    """
    return _spread(kernel, jobs, work, useful(work, threads), pieces, pace or _paces.setdefault(kernel, Pace()), args)


def _spread(
    kernel: Callable[..., Any], jobs: int, work: int, most: int, pieces: int, pace: Pace, args: tuple[Any, ...]
) -> list[Any]:
    """As `split`, over so many threads where there are as many jobs."""
    threads = min(jobs, most)
    if work > _WORTH_A_ROUND:
        return pace.run(kernel, jobs, work, threads, pieces, args)
    return [kernel(*args, 0, jobs)] if threads <= 1 else _workers.compute(kernel, 0, jobs, threads, pieces, work, args)


def useful(work: int, threads: int | None) -> int:
    """How many threads, 1 or more, so much work is worth; the other arguments and the unit are those of `split`."""
    most = work // _WORTH_A_THREAD
    return max(1, most if most <= 1 else min(most, available() if threads is None else min(threads, cores())))


@cache
def cores() -> int:
    """Cores that were available when this was first asked: no call gets more threads."""
    return available()


_paces: dict[Any, Pace] = {}


class Launch:
    """A kernel with all its arguments but the arrays: what every caller in the kernels prepares, and runs again.

    The kernel takes the handles of its arrays, `id(x)`, which `address_of` turns into addresses: an int passes the
    dispatcher faster than an array, and no rank, flag or view of an array is worth a compilation of its own. Loops that
    LLVM is to turn into vectors need arrays that are typed; a kernel with such loops takes them behind the handles.
    """

    def __init__(self, kernel: Any, jobs: int, work: int, *args: Any, pieces: int = PIECES) -> None:
        """As `split`; `args` are what the kernel takes between the arrays and `first`; without jobs it may be None."""
        self._kernel = kernel
        self._enter: Callable[..., Any] = self._begin
        self._jobs = jobs
        self._work = work
        self._args = args
        self._pieces = pieces
        self._alone = (*args, 0, jobs)
        self.nbytes = nbytes_of(args)  # of its tables
        self._pace = Pace()

    def __call__(self, x: Any, y: Any, z: Any, threads: int | None, *more: Any) -> list[Any]:
        """Run the kernel on three C-contiguous NumPy arrays.

        Args:
            x: passed as a handle, as the next two.
            y: likewise.
            z: likewise.
            threads: at most so many; None for all cores that are available.
            more: what follows the handles, typed arrays among it; of the same types in every call.

        Returns:
            As `split`.
        """
        if self._work < 2 * _WORTH_A_THREAD and self._kernel is not None:
            return [self._enter(id(x), id(y), id(z), *more, *self._alone)]
        return self.on((x, y, z), threads, *more)

    def on(self, arrays: tuple[Any, ...], threads: int | None, *more: Any) -> list[Any]:
        """As a call, for any number of arrays."""
        if self._kernel is None:
            return []
        handles = (*map(id, arrays), *more)
        if self._work < 2 * _WORTH_A_THREAD:
            return [self._enter(*handles, *self._alone)]
        return split(
            self._enter, self._jobs, self._work, threads, *handles, *self._args, pieces=self._pieces, pace=self._pace
        )

    def over(self, threads: int, arrays: tuple[Any, ...], *more: Any) -> list[Any]:
        """The same, once `useful` has said how many threads the work is worth."""
        args = (*map(id, arrays), *more, *self._args)
        return _spread(self._enter, self._jobs, self._work, threads, self._pieces, self._pace, args)

    def _begin(self, *args: Any) -> Any:
        """The first call finds the machine code for its types; later ones enter that without asking again."""
        self._enter = entry_point(self._kernel, args)
        return self._enter(*args)


class Launches:
    """A `Launch` for every number of threads that calls get: what is cut for more threads is cut into more jobs."""

    def __init__(self, work: int, make: Callable[[int], Launch]) -> None:
        """`make` gives the launch for a number of threads; `work` is that of each."""
        self._work = work
        self._make = make
        self._made: dict[int, Launch] = {}

    @property
    def nbytes(self) -> int:
        """Of the tables of all."""
        return sum(launch.nbytes for launch in self._made.copy().values())

    def on(self, arrays: tuple[Any, ...], threads: int | None, *more: Any) -> list[Any]:
        """As `Launch.on`."""
        count = useful(self._work, threads)
        return (self._made.get(count) or self.of(count)).over(count, arrays, *more)

    def of(self, threads: int) -> Launch:
        """The launch for so many threads."""
        if threads not in self._made:
            self._made[threads] = made = self._make(threads)
            count_bytes(made.nbytes)
        return self._made[threads]


def _forget_workers() -> None:
    """A forked child has none of its parent's threads."""
    global _workers
    _workers = _Workers()


def _stop_workers() -> None:
    """No thread may be in compiled code when the interpreter takes it down."""
    _workers.stop()


atexit.register(_stop_workers)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_workers)
