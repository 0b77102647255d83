"""Results do not depend on the number of threads, on who else calls, or on a fork."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

import unpool
from runners import bits
from unpool.kernels.cpu import threads as splitter

KINDS = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)
CALLERS = 6


def large(kind: type, *shape: int) -> np.ndarray:
    """Several 100,000 elements, so that every kernel splits its work."""
    return np.random.default_rng(7).normal(size=shape).astype(kind)


def pool(kind: type, threads: int | None) -> list[bytes]:
    x = large(kind, 2, 8, 141, 157)
    window = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    y, indices = unpool.max_pool(x, **window, return_indices=True, threads=threads)
    alone = unpool.max_pool(x, **window, threads=threads)
    return [bits(y), bits(indices), bits(alone)]


def one_plane(kind: type, threads: int | None) -> list[bytes]:
    planes = large(kind, 1, 1, 601, 907)
    given = (("NCHW", planes), ("NHWC", planes.reshape(1, 601, 907, 1)))
    window = {"kernel_shape": [3, 3], "return_indices": True, "threads": threads}
    return [bits(each) for layout, x in given for each in unpool.max_pool(x, **window, layout=layout)]


def unpool_with_duplicates(kind: type, threads: int | None) -> list[bytes]:
    """Rivals in one plane, all planes crossing, and a later half that overwrites the end of the earlier one."""
    x = large(kind, 2, 8, 97, 101)
    random = np.random.default_rng(3)
    near = random.integers(0, 2 * 97 * 2 * 101, x.shape) // 5
    crossing = random.integers(0, 500, x.shape)
    planes = near + np.arange(16).reshape(2, 8, 1, 1) * (2 * 97 * 2 * 101)
    early = planes.copy()
    early[1, 0] = planes[0, 7]
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    return [bits(unpool.max_unpool(x, i, **window, threads=threads)) for i in (planes, crossing, early)]


def deconvolve(kind: type, threads: int | None) -> list[bytes]:
    x = large(kind, 2, 8, 41, 43)
    w, b = large(kind, 8, 6, 3, 3), large(kind, 6)
    dense = unpool.conv_transpose(x, w, b, strides=[2, 2], threads=threads)
    grouped = unpool.conv_transpose(x, large(kind, 8, 1, 4, 4), strides=[2, 2], group=8, threads=threads)
    return [bits(dense), bits(grouped)]


WORK = [pool, one_plane, unpool_with_duplicates, deconvolve]
Work = Callable[[type, int | None], list[bytes]]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: np.dtype(kind).name)
@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__)
def test_thread_count_changes_no_bit(work: Work, kind: type) -> None:
    """One thread, two, three and the default give the same bytes."""
    alone = work(kind, 1)
    for threads in (2, 3, None):
        assert work(kind, threads) == alone, threads


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__)
def test_concurrent_callers(work: Work) -> None:
    """Six Python threads that call at once each get what one gets alone."""
    alone = work(np.float32, 1)
    with ThreadPoolExecutor(CALLERS) as callers:
        results = list(callers.map(lambda _: work(np.float32, 2), range(CALLERS)))
    assert all(result == alone for result in results)


def test_kernels_really_split() -> None:
    """The sizes of these tests are above the kernels' threshold: more than one part runs."""
    seen: list[tuple[int, int]] = []

    def note(first: int, stop: int) -> None:
        seen.append((first, stop))

    splitter.split(note, 16, 2 * 8 * 141 * 157, 2)
    assert sorted(seen) == [(0, 8), (8, 16)]


LARGE = 1 << 30


@pytest.mark.parametrize("threads", [2, 3, 40])
def test_parts_come_in_order(threads: int) -> None:
    """Results are those of the parts in order, however many more threads than cores there are."""
    assert splitter.split(lambda first, stop: (first, stop), 90, LARGE, threads) == [
        (90 * part // threads, 90 * (part + 1) // threads) for part in range(threads)
    ]


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_exceptions_reach_the_caller(wrong: int) -> None:
    """Whoever computes the part that fails, the caller gets its exception, and the next call works."""

    def fail(first: int, stop: int) -> int:
        if first == wrong:
            raise ZeroDivisionError(str(stop))
        return first

    for _ in range(20):
        with pytest.raises(ZeroDivisionError, match=str(wrong + 1)):
            splitter.split(fail, 3, LARGE, 3)
        assert splitter.split(lambda first, _: first, 3, LARGE, 3) == [0, 1, 2]


def test_interrupt_leaves_at_once_and_workers_go_on() -> None:
    """Ctrl-C in the caller's part ends the call; a part that a worker has begun still ends, with its arguments."""
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    def part(values: list[int], first: int, stop: int) -> None:
        if threading.current_thread() is threading.main_thread():
            begun.wait(10)
            raise KeyboardInterrupt
        begun.set()
        go.wait(10)
        assert values == [1, 2], (first, stop)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        splitter.split(part, 2, LARGE, 2, [1, 2])
    go.set()
    assert ended.wait(10)
    assert splitter.split(lambda first, _: first, 3, LARGE, 3) == [0, 1, 2]


def test_parts_may_split_again() -> None:
    """A part that itself splits work does not wait for a thread that waits for it."""

    def outer(first: int, stop: int) -> list[int]:
        return splitter.split(lambda inner, _: 10 * first + inner, 3, LARGE, 3)

    for _ in range(20):
        assert splitter.split(outer, 3, LARGE, 3) == [[0, 1, 2], [10, 11, 12], [20, 21, 22]]


def test_arguments_are_let_go() -> None:
    """After a call no thread holds on to its arrays."""
    for _ in range(20):
        values = np.ones(3)
        before = sys.getrefcount(values)
        splitter.split(lambda each, first, stop: float(each[first:stop].sum()), 3, LARGE, 3, values)
        assert sys.getrefcount(values) == before


def test_idle_threads_use_no_processor() -> None:
    """Threads that wait for work stop watching for it within a few milliseconds."""
    pool(np.float32, 2)
    time.sleep(0.02)
    start = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - start < 0.03


@pytest.mark.parametrize("ending", ["", "os._exit(0)", "sys.exit(0)", "threading.Thread(target=work).start()"])
def test_interpreter_ends_while_threads_watch(ending: str) -> None:
    """A process that ends just after a call, or in the middle of one, ends with status 0 and says nothing."""
    code = (
        "import os, sys, threading, numpy as np, unpool\n"
        "x = np.ones((4, 16, 128, 128), np.float32)\n"
        "def work():\n"
        "    for _ in range(50): unpool.max_pool(x, kernel_shape=[2, 2], strides=[2, 2], threads=3)\n"
        f"work()\n{ending}\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def forked(check: Callable[[], bool]) -> int:
    """The exit status of a child that runs `check`: 0 when it held."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if check() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if hasattr(os, "fork"):

    @pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
    def test_works_in_a_forked_child() -> None:
        """A child forked after the parent's threads have worked computes the same with threads of its own."""
        expected = {work.__name__: work(np.float32, 2) for work in WORK}
        assert forked(lambda: all(work(np.float32, 2) == expected[work.__name__] for work in WORK)) == 0
        assert all(work(np.float32, 2) == expected[work.__name__] for work in WORK)


@pytest.mark.parametrize("threads", [0, -1, 2.0, "2", True])
def test_wrong_threads_are_refused(threads: object) -> None:
    """Threads is None or a positive int."""
    x = np.ones((1, 1, 2), np.float32)
    i = np.zeros((1, 1, 2), np.int64)
    with pytest.raises(unpool.UnpoolError, match=r"^MaxPool: threads .*, got "):
        unpool.max_pool(x, kernel_shape=[1], threads=threads)
    with pytest.raises(unpool.UnpoolError, match=r"^MaxUnpool: threads .*, got "):
        unpool.max_unpool(x, i, kernel_shape=[1], threads=threads)
    with pytest.raises(unpool.UnpoolError, match=r"^ConvTranspose: threads .*, got "):
        unpool.conv_transpose(x, x, threads=threads)
