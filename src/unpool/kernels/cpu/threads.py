"""Splits a kernel's independent jobs over Python threads.

Kernels are compiled serial and release the interpreter lock, so concurrent callers, forked children and other
users of Numba never meet a shared threading layer. Parts are contiguous, and every job is computed by the same
code whoever runs it: results do not depend on the number of threads.

A caller offers its parts to parked workers and works through them itself: what nobody took it does alone, so that no
call ever waits for a thread that has not begun. Waking a parked thread takes about 50 microseconds. A worker that
has just finished therefore watches a counter for SPIN seconds before it parks, and takes the next part over within
about 12; so does a caller whose last parts are still under way. Queues alone decide who does what.
"""

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from unpool.kernels.cpu.spin import add_and_watch, counter, pauses_in

Result = TypeVar("Result")

SPIN = 100e-6
"""Seconds for which a thread that waits keeps its core."""

VECTORISED = 4
"""So many elements of a pool that moves whole vectors take the time of one, as `split` counts work."""

_START = 10e-6  # at most so long a caller waits for watching workers to begin, so as not to take the lock from them
_MARGIN = 2e-6  # a worker that has begun holds the interpreter lock for about so long
_WORTH_A_THREAD = 1 << 15  # elements visited, at about 1 per nanosecond where they are in the cache; see SPIN


def available() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Work:
    """One call of `split`: its parts, and what comes of them.

    Attributes:
        made: what the kernel returned for each part.
        failures: what it raised in workers.
        begun: counter of the workers that have taken this up.
        done: counter of the parts that workers have finished, and told `finished` of.
    """

    def __init__(self, kernel: Callable[..., Any], args: tuple[Any, ...], edges: list[int]) -> None:
        self._call: tuple[Callable[..., Any], tuple[Any, ...]] | None = (kernel, args)
        self._edges = edges
        self._open = deque(range(len(edges) - 1))
        self._finished: SimpleQueue[int] = SimpleQueue()
        self.made: list[Any] = [None] * len(self._open)
        self.failures: list[BaseException] = []
        self.begun, self.done = counter(), counter()

    def take(self) -> int | None:
        """A part that nobody has taken, or None."""
        try:
            return self._open.popleft() if self._open else None
        except IndexError:
            return None

    def run(self, part: int) -> None:
        """Compute one part; nothing of the call is held any more afterwards."""
        if self._call is not None:
            kernel, args = self._call
            self.made[part] = kernel(*args, *self._edges[part : part + 2])

    def help(self) -> int:
        """Compute parts in a worker until none is left; how many there were."""
        count = 0
        while (part := self.take()) is not None:
            try:
                self.begun[0] += count == 0
                self.run(part)
            except BaseException as cause:
                self.failures.append(cause)
            self._finished.put(part)
            count += 1
        return count

    def wait(self, parts: int, pauses: int) -> None:
        """Wait until workers have finished so many parts."""
        if parts:
            add_and_watch(id(self.done), 0, id(self.done), parts, pauses, 0)
        for _ in range(parts):
            self._finished.get()

    def close(self) -> None:
        """Let go of parts that nobody has taken, and of the arrays."""
        self._open.clear()
        self._call = None


class _Workers:
    """Threads that help with the parts of any caller."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._bell = counter()
        self._watching: set[int] = set()
        self._threads: list[threading.Thread] = []
        self._spins = False
        self._lock = threading.Lock()

    def compute(self, work: _Work, parts: int) -> None:
        """Compute all parts, with the help of at most `parts` - 1 workers; may leave early only with an exception."""
        self._grow(parts - 1)
        for _ in range(parts - 1):
            self._queue.put(work)
        watching = min(parts - 1, len(self._watching))
        pauses = pauses_in(_START) if watching else 0
        add_and_watch(id(self._bell), 1, id(work.begun), watching, pauses, pauses_in(_MARGIN))
        while (part := work.take()) is not None:
            work.run(part)
            parts -= 1
        work.wait(parts, pauses_in(SPIN) if self._spins else 0)

    def stop(self) -> None:
        """End all threads, once they have finished what they have begun."""
        threads, self._threads = self._threads, []
        for _ in threads:
            self._queue.put(None)
        for thread in threads:
            thread.join()

    def _grow(self, size: int) -> None:
        if len(self._threads) < size:
            with self._lock:
                while len(self._threads) < size:
                    thread = threading.Thread(target=self._serve, name="unpool", daemon=True)
                    try:
                        thread.start()
                    except RuntimeError:  # no more threads, or the interpreter is ending: the caller does it all
                        break
                    self._threads.append(thread)
                self._spins = len(self._threads) < available()

    def _serve(self) -> None:
        """Take work from the queue for ever; look for it without the interpreter lock for a while before blocking.

        As little as possible is done between a kernel and the next release of the lock: the caller may need it.
        """
        me, done, count, pauses = threading.get_ident(), counter(), 0, pauses_in(SPIN)
        heard = int(self._bell[0])
        while True:
            self._watching.add(me)
            is_idle = self._spins and self._queue.empty()
            is_rung = add_and_watch(id(done), count, id(self._bell), heard + 1, pauses if is_idle else 0, 0)
            self._watching.discard(me)
            count, heard = 0, int(self._bell[0])
            if is_rung and self._queue.empty():
                continue
            work = self._queue.get()
            if work is None:
                return
            done = work.done
            count = work.help()
            del work


_workers = _Workers()


def split(kernel: Callable[..., Result], jobs: int, work: int, threads: int | None, *args: Any) -> list[Result]:
    """Call `kernel(*args, first, stop)` on contiguous parts of range(jobs).

    Args:
        kernel: a compiled function that releases the interpreter lock.
        jobs: how many independent jobs there are.
        work: elements that all jobs visit together; decides whether threads are worth their hand-over.
        threads: at most so many threads; None for all available cores.
        args: what the kernel takes before `first` and `stop`.

    Returns:
        What the kernel returned for each part, in order.
    """
    parts = min(jobs, work // _WORTH_A_THREAD)
    if parts > 1:
        parts = min(parts, available() if threads is None else threads)
    if parts <= 1:
        return [kernel(*args, 0, jobs)]
    shared = _Work(kernel, args, [jobs * part // parts for part in range(parts + 1)])
    try:
        _workers.compute(shared, parts)
    finally:
        shared.close()
    if shared.failures:
        raise shared.failures[0]
    return shared.made


class _Holding(partial[Any]):
    """A kernel with handles of arrays, which live as long: a caller may be interrupted, and leave before a worker."""

    arrays: tuple[Any, ...]


class Launch:
    """A kernel with all its arguments but the arrays.

    The kernel takes the handles of its arrays, `id(x)`, which `address_of` turns into addresses: an int passes the
    dispatcher faster than an array, and no rank, flag or view of an array is worth a compilation of its own.
    """

    def __init__(self, kernel: Callable[..., Any] | None, jobs: int, work: int, *args: Any) -> None:
        """As `split`; `args` are what the kernel takes between the arrays and `first`; without jobs there is none."""
        self._kernel = kernel
        self._jobs = jobs
        self._work = work
        self._args = args
        self._alone = (*args, 0, jobs)

    def __call__(self, x: Any, y: Any, z: Any, threads: int | None, *more: Any) -> list[Any]:
        """Run the kernel on three C-contiguous NumPy arrays; `more` follows them.

        Returns:
            As `split`.
        """
        if self._kernel is not None and self._work < 2 * _WORTH_A_THREAD:
            return [self._kernel(id(x), id(y), id(z), *more, *self._alone)]
        return self.on((x, y, z), threads, *more)

    def on(self, arrays: tuple[Any, ...], threads: int | None, *more: Any) -> list[Any]:
        """As a call, for any number of arrays."""
        if self._kernel is None:
            return []
        handles = (*map(id, arrays), *more)
        if self._work < 2 * _WORTH_A_THREAD:
            return [self._kernel(*handles, *self._alone)]
        kernel = _Holding(self._kernel, *handles)
        kernel.arrays = arrays
        return split(kernel, self._jobs, self._work, threads, *self._args)


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
