"""Results do not depend on the number of threads, on who else calls, or on a fork."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

import unpool
from runners import bits

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
    x = large(kind, 1, 1, 601, 907)
    return [
        bits(unpool.max_pool(x, kernel_shape=[2, 2], threads=threads, layout=layout)) for layout in ("NCHW", "NHWC")
    ]


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
    from unpool.kernels.cpu import threads as splitter

    seen: list[tuple[int, int]] = []

    def note(first: int, stop: int) -> None:
        seen.append((first, stop))

    splitter.split(note, 16, 2 * 8 * 141 * 157, 2)
    assert sorted(seen) == [(0, 8), (8, 16)]


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
