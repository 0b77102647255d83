"""Splits a kernel's independent jobs over threads.

Kernels are compiled serial and release the interpreter lock, so concurrent callers, forked children and other
users of Numba never meet a shared threading layer. Parts are contiguous, and every job is computed by the same
code whoever runs it: results do not depend on the number of threads.

A caller offers its parts to workers and works through them itself: what nobody took it does alone, so that no call ever
waits for a thread that has not begun. Workers are Python threads that watch for work in compiled code, without the
interpreter lock, and compute it there (`board.py`): a hand-over takes about a microsecond. After SPIN seconds without
work they park, in Python; waking a parked thread takes about 50.
"""

import atexit
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from unpool.kernels.cpu import board

VECTORISED = 4
"""So many elements of a pool that moves whole vectors take the time of one, as `split` counts work."""

PIECES = 4
"""Parts of each thread in a `Launch`: a thread that is done early takes over what others have not begun."""

_WORTH_A_THREAD = 1 << 15  # elements visited, at about 1 per nanosecond where they are in the cache


def available() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Worker:
    """A thread that helps with the parts of any caller."""

    def __init__(self, number: int) -> None:
        self.box = board.new_box()
        self.pauses = 0
        self._number = number
        self._bell: SimpleQueue[bool] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="unpool", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Have it look into its box if it is parked."""
        if self.box[0] == board.PARKED and self._bell.empty():
            self._bell.put(True)

    def stop(self) -> None:
        """End it, once it has finished what it has begun."""
        self.box[1] = 1
        self._bell.put(False)
        self._thread.join()

    def _serve(self) -> None:
        is_open = True
        while is_open:
            board.serve(self.box, self._number, self.pauses)
            is_open = self._bell.get()


class _Workers:
    """As many as were ever wanted at once."""

    def __init__(self) -> None:
        self._all: list[_Worker] = []
        self._blank: dict[tuple[int, int], Any] = {}
        self._is_open = True
        self._lock = threading.Lock()

    def compute(self, kernel: Callable[..., Any], jobs: int, threads: int, pieces: int, args: tuple[Any, ...]) -> Any:
        """Have all jobs computed; what each part gives, in order."""
        if len(self._all) < threads - 1:
            self._grow(threads - 1)
        helpers = self._all[: threads - 1]
        for worker in helpers:
            worker.wake()
        size = len(helpers) + 1, min(pieces, jobs // threads)
        if size not in self._blank:
            pauses = helpers[0].pauses if helpers else 0
            self._blank[size] = board.blank(*size, [worker.box for worker in helpers], pauses)
        notes = self._blank[size].copy()
        kernel(*args, -id(notes), jobs)
        return board.results(notes)

    def stop(self) -> None:
        """End all threads, once they have finished what they have begun."""
        with self._lock:
            self._is_open = False
        for worker in self._all:
            worker.stop()

    def _grow(self, size: int) -> None:
        with self._lock:
            while self._is_open and len(self._all) < size:
                try:
                    self._all.append(_Worker(len(self._all) + 1))
                except RuntimeError:  # no more threads, or the interpreter is ending: the caller does it all
                    break
            pauses = board.pauses_in(board.SPIN) if len(self._all) < available() else 0
            for worker in self._all:
                worker.pauses = pauses
            self._blank = {}


_workers = _Workers()


def split(
    kernel: Callable[..., Any], jobs: int, work: int, threads: int | None, *args: Any, pieces: int = 1
) -> list[Any]:
    """Call `kernel(*args, first, stop)` on contiguous parts of range(jobs).

    Args:
        kernel: from `compiled`; returns a bool, an int or nothing.
        jobs: how many independent jobs there are.
        work: elements that all jobs visit together; decides whether threads are worth their hand-over.
        threads: at most so many threads; None for all available cores.
        args: what the kernel takes before `first` and `stop`.
        pieces: at most so many parts for each thread; more than one where little is done once for a part.

    Returns:
        What the kernel returned for each part, in order, as numbers where there are several.
    """
    most = min(jobs, work // _WORTH_A_THREAD)
    if most > 1:
        most = min(most, available() if threads is None else threads)
    return [kernel(*args, 0, jobs)] if most <= 1 else _workers.compute(kernel, jobs, most, pieces, args)


class Launch:
    """A kernel with all its arguments but the arrays.

    The kernel takes the handles of its arrays, `id(x)`, which `address_of` turns into addresses: an int passes the
    dispatcher faster than an array, and no rank, flag or view of an array is worth a compilation of its own.
    """

    def __init__(self, kernel: Any, jobs: int, work: int, *args: Any) -> None:
        """As `split`; `args` are what the kernel takes between the arrays and `first`; without jobs it may be None."""
        self._kernel = kernel
        self._enter: Callable[..., Any] = self._begin
        self._jobs = jobs
        self._work = work
        self._args = args
        self._alone = (*args, 0, jobs)
        self.nbytes = sum(getattr(each, "nbytes", 0) for each in args)  # of its tables
        self._is_alone = kernel is not None and work < 2 * _WORTH_A_THREAD

    def __call__(self, x: Any, y: Any, z: Any, threads: int | None, *more: Any) -> list[Any]:
        """Run the kernel on three C-contiguous NumPy arrays; `more`, always of the same types, follows them.

        Returns:
            As `split`.
        """
        if self._is_alone:
            return [self._enter(id(x), id(y), id(z), *more, *self._alone)]
        return self.on((x, y, z), threads, *more)

    def on(self, arrays: tuple[Any, ...], threads: int | None, *more: Any) -> list[Any]:
        """As a call, for any number of arrays."""
        if self._kernel is None:
            return []
        handles = (*map(id, arrays), *more)
        if self._is_alone:
            return [self._enter(*handles, *self._alone)]
        return split(self._enter, self._jobs, self._work, threads, *handles, *self._args, pieces=PIECES)

    def _begin(self, *args: Any) -> Any:
        """The first call finds the machine code for its types; later ones enter that without asking again."""
        self._enter = self._kernel.compile(tuple(map(self._kernel.typeof_pyval, args)))
        return self._enter(*args)


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
