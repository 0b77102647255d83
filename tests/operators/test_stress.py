"""Everything that threads share, with a switch of threads after almost every line: results are those of one thread."""

import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest

import unpool
from tests.support import models
from tests.support.runners import bits
from unpool import execute, memory, shape_cache
from unpool.kernels.cpu.machine import threads as splitter

pytestmark = pytest.mark.slow

CALLERS = 12
F = np.float32


@pytest.fixture(autouse=True)
def hasty():
    """Threads take turns every microsecond."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(work: Callable[[int], object]) -> None:
    """Call `work(number)` in many threads that start together; the first exception is raised here."""
    failed: list[BaseException] = []
    barrier = threading.Barrier(CALLERS)

    def run(number: int) -> None:
        try:
            barrier.wait()
            work(number)
        except BaseException as problem:
            failed.append(problem)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def image(*shape: int) -> np.ndarray:
    """Numbers without order."""
    return np.random.default_rng(5).normal(size=shape).astype(F)


def test_prepared_calls_come_and_go(monkeypatch) -> None:
    """More shapes than are kept, of arrays of all kinds, from many threads."""
    monkeypatch.setattr(shape_cache, "MAX_SHORTCUTS", 3)
    import torch

    given = [image(1, 2, 4, width) for width in range(4, 12)]
    expected = [bits(unpool.max_pool(x, kernel_shape=[2, 2])) for x in given]

    def work(number: int) -> None:
        for turn in range(40):
            which = (number * 7 + turn * 3) % len(given)
            x = given[which] if turn % 2 else torch.from_numpy(given[which])
            assert bits(np.asarray(unpool.max_pool(x, kernel_shape=[2, 2]))) == expected[which]

    at_once(work)


def test_the_first_call_of_many(monkeypatch) -> None:
    """Nothing is prepared, no thread has started, and all want a different number of threads."""
    x = image(2, 16, 96, 96)
    expected = bits(unpool.max_pool(x, kernel_shape=[2, 2], threads=1))
    monkeypatch.setattr(splitter, "available_cores", lambda: 8)
    monkeypatch.setattr(splitter, "max_threads", lambda: 8)
    for _ in range(6):
        workers = splitter._Workers()
        monkeypatch.setattr(splitter, "_workers", workers)
        execute.clear_cache()

        def work(number: int) -> None:
            for turn in range(3):
                y = unpool.max_pool(x, kernel_shape=[2, 2], threads=2 + (number + turn) % 7)
                assert bits(y) == expected

        at_once(work)
        workers.stop()


def test_tasks_are_looked_up_once(monkeypatch) -> None:
    """What is known of a size of call may be gone in the line after a question whether it is there."""

    class Vanishing(dict):
        def __contains__(self, key: object) -> bool:
            return True

    x = image(2, 16, 96, 96)
    expected = bits(unpool.max_pool(x, kernel_shape=[2, 2], threads=2))
    monkeypatch.setattr(splitter._workers, "_tasks", Vanishing())
    assert bits(unpool.max_pool(x, kernel_shape=[2, 2], threads=2)) == expected


def test_blocks_come_and_go() -> None:
    """Outputs of several sizes, while the limit changes: no two of them share memory."""
    sizes = [memory.MIN_RECYCLED_BYTES // 4 + 16 * number for number in range(3)]
    FLOAT = np.dtype(F)

    def work(number: int) -> None:
        for turn in range(30):
            mine = [memory.allocate((sizes[(number + turn + each) % 3],), FLOAT, "test") for each in range(2)]
            for each, array in enumerate(mine):
                array[::1024] = 2 * number + each
            if number == 0:
                memory.set_pool_limit((turn % 3) * memory.MIN_RECYCLED_BYTES * 4)
            for each, array in enumerate(mine):
                assert (array[::1024] == 2 * number + each).all()

    try:
        at_once(work)
    finally:
        memory.set_pool_limit(memory.DEFAULT_LIMIT)


def test_all_operators_together() -> None:
    """Pools, unpools and transposed convolutions of many sizes, alone and shared, from many threads."""
    planes = [image(1, 8, 32 + 5 * each, 40) for each in range(5)]
    w = image(8, 6, 2, 2)
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}

    def all_of(which: int, threads: int | None) -> list[bytes]:
        x = planes[which]
        y, indices = unpool.max_pool(x, **window, return_indices=True, threads=threads)
        back = unpool.max_unpool(y, indices, x.shape, **window, threads=threads)
        return [bits(each) for each in (y, indices, back, unpool.conv_transpose(x, w, strides=[2, 2], threads=threads))]

    expected = [all_of(which, 1) for which in range(5)]

    def work(number: int) -> None:
        for turn in range(12):
            which = (number + turn) % 5
            assert all_of(which, (1, 2, None)[turn % 3]) == expected[which]

    at_once(work)


def test_one_session_for_all() -> None:
    """One session runs inputs of many shapes, and chooses outputs, in many threads."""
    text = f"""chain (float[1, c, h, w] x) => (float[1, c, a, b] y, float[1, c, d, e] z) {{
        y, i = MaxPool <{models.POOL}> (x)
        z = MaxUnpool <{models.POOL}> (y, i)
    }}"""
    model = models.model(text).SerializeToString()
    session = unpool.InferenceSession(model)
    given = [image(1, 1 + each, 8, 10) for each in range(6)]
    chosen = (["y"], ["z"], ["y", "z"], None)
    expected = {
        (which, number): [bits(each) for each in session.run(names, {"x": given[which]})]
        for which in range(6)
        for number, names in enumerate(chosen)
    }
    session = unpool.InferenceSession(model)

    def work(number: int) -> None:
        for turn in range(12):
            which, names = (number + turn) % 6, (number * 5 + turn) % 4
            outputs = session.run(chosen[names], {"x": given[which]})
            assert [bits(each) for each in outputs] == expected[which, names]

    at_once(work)
