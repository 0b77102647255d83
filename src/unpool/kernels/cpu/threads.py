"""Splits a kernel's independent jobs over Python threads.

Kernels are compiled serial and release the interpreter lock, so concurrent callers, forked children and other
users of Numba never meet a shared threading layer. Parts are contiguous, and every job is computed by the same
code whoever runs it: results do not depend on the number of threads.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")

_WORTH_A_THREAD = 1 << 16  # elements visited; a hand-over costs about 40 microseconds

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_pool_size = 0


def available() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
    edges = [jobs * part // parts for part in range(parts + 1)]
    pool = _executor(parts - 1)
    futures = [pool.submit(kernel, *args, *edges[part : part + 2]) for part in range(1, parts)]
    first = kernel(*args, *edges[:2])
    return [first, *(future.result() for future in futures)]


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

    def __call__(self, x: Any, y: Any, z: Any, threads: int | None) -> None:
        """Run the kernel on three C-contiguous NumPy arrays, which live until it is done."""
        kernel = self._kernel
        if kernel is None:
            return
        if self._work < 2 * _WORTH_A_THREAD:
            kernel(id(x), id(y), id(z), *self._alone)
        else:
            split(kernel, self._jobs, self._work, threads, id(x), id(y), id(z), *self._args)


def _executor(size: int) -> ThreadPoolExecutor:
    global _pool, _pool_size
    with _lock:
        if _pool is None or _pool_size < size:
            _pool = ThreadPoolExecutor(size, thread_name_prefix="unpool")
            _pool_size = size
        return _pool


def _forget_pool() -> None:
    """A forked child has none of its parent's threads."""
    global _pool, _pool_size, _lock
    _pool, _pool_size, _lock = None, 0, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)
