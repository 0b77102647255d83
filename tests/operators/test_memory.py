"""Large outputs are made of memory that is used again, and never while somebody still sees it."""

import _thread
import signal
import subprocess
import sys
import threading
import time

import ml_dtypes
import numpy as np
import pytest

import unpool
from unpool import memory

LARGE = (memory.MIN_RECYCLED_BYTES // 4 + 8,)
FLOAT = np.dtype(np.float32)


@pytest.fixture(autouse=True)
def nothing_kept():
    """Every test starts and ends with an empty list and the default limit."""
    memory.set_pool_limit(0)
    memory.set_pool_limit(memory.DEFAULT_LIMIT)
    yield
    memory.set_pool_limit(0)
    memory.set_pool_limit(memory.DEFAULT_LIMIT)


def address(array):
    """Where an array's memory is."""
    return array.__array_interface__["data"][0]


def test_a_block_is_used_again_once_it_is_free():
    """The next output of the same size takes the block of one that is gone, whatever its type and shape."""
    first = memory.allocate(LARGE, FLOAT, "test")
    place = address(first)
    del first
    second = memory.allocate((2, LARGE[0]), np.dtype(ml_dtypes.bfloat16), "test")

    assert address(second) == place
    assert second.dtype == ml_dtypes.bfloat16
    assert second.flags.writeable
    assert second.flags.c_contiguous


@pytest.mark.parametrize("keep", [lambda a: a[3:5], memoryview, lambda a: a.view(np.int32).reshape(2, -1).T])
def test_a_view_keeps_the_block(keep):
    """As long as any view lives, nobody else gets the memory."""
    first = memory.allocate(LARGE, FLOAT, "test")
    place, view = address(first), keep(first)
    del first

    assert address(memory.allocate(LARGE, FLOAT, "test")) != place
    del view


def test_torch_keeps_the_block():
    """A tensor on an output is a view like any other."""
    import torch

    first = memory.allocate(LARGE, FLOAT, "test")
    place, tensor = address(first), torch.from_numpy(first)
    del first

    assert address(memory.allocate(LARGE, FLOAT, "test")) != place
    assert tensor.data_ptr() == place


def test_limits():
    """Nothing is kept under a limit of 0, and never more than the limit."""
    memory.set_pool_limit(0)
    del (made := [memory.allocate(LARGE, FLOAT, "test")])[:]
    assert not memory._pool.blocks
    memory.set_pool_limit(3 * memory.MIN_RECYCLED_BYTES)
    made.extend(memory.allocate(LARGE, FLOAT, "test") for _ in range(5))
    made.clear()

    assert 0 < sum(block.nbytes for block in memory._pool.blocks) <= 3 * memory.MIN_RECYCLED_BYTES


def test_those_used_longest_ago_go_first():
    """Taking a block out of the middle leaves the order of the others as it was."""
    for number in range(4):
        del (made := [memory.allocate((LARGE[0] + 1000 * number,), FLOAT, "test")])[:]
    del made
    first, second, third, fourth = sizes = [block.nbytes for block in memory._pool.blocks]
    assert sizes == sorted(sizes)
    used = memory.allocate((second // 4,), FLOAT, "test")
    assert [block.nbytes for block in memory._pool.blocks] == [first, third, fourth]
    memory.set_pool_limit(third + fourth)
    assert [block.nbytes for block in memory._pool.blocks] == [third, fourth]
    del used
    assert [block.nbytes for block in memory._pool.blocks] == [fourth, second]


def test_an_interrupt_while_an_output_ends(monkeypatch):
    """Ctrl-C that arrives while memory is given back is raised in the caller's lines, not lost."""

    def give(block):
        raise KeyboardInterrupt

    monkeypatch.setattr(memory._pool, "give", give)
    made = memory.allocate(LARGE, FLOAT, "test")

    def end():
        nonlocal made
        made = None
        for _ in range(1000):
            pass

    with pytest.raises(KeyboardInterrupt):
        end()


def test_interrupts_at_any_moment(monkeypatch):
    """Ctrl-C again and again while outputs come and go: none is lost, and no two outputs share memory."""
    lost, caught, is_over, is_armed = [], 0, False, False
    monkeypatch.setattr(sys, "unraisablehook", lambda event: lost.append(event.exc_type))

    def handle(number, frame):
        if is_armed:
            raise KeyboardInterrupt

    def interrupt():
        while not is_over:
            time.sleep(0.001)
            _thread.interrupt_main()

    interrupter = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, handle)
    interrupter.start()
    try:
        while caught + len(lost) < 100:
            try:
                is_armed = True
                while True:
                    first = memory.allocate(LARGE, FLOAT, "test")
                    second = memory.allocate(LARGE, FLOAT, "test")
                    assert address(first) != address(second)
            except KeyboardInterrupt:
                is_armed = False
                caught += 1
    finally:
        is_over, is_armed = True, False
        interrupter.join()
        signal.signal(signal.SIGINT, before)

    assert not lost


@pytest.mark.parametrize("size", [-1, 1.5, True, None])
def test_wrong_limits_are_refused(size):
    """A limit is a number of bytes."""
    with pytest.raises(unpool.UnpoolError, match=r"set_pool_limit: size .* got"):
        memory.set_pool_limit(size)


def test_the_environment_turns_it_off():
    """UNPOOL_RECYCLE_BYTES=0 keeps nothing from the start."""
    code = (
        "from unpool import memory; import numpy as np;"
        "memory.allocate((1 << 23,), np.dtype('float32'), 'x'); print(memory._pool.limit, len(memory._pool.blocks))"
    )
    environment = {"UNPOOL_RECYCLE_BYTES": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["0", "0"]


def test_many_threads_never_share_a_block():
    """Concurrent outputs are different memory, however often blocks come and go."""
    wrong = []

    def work(number):
        for _ in range(30):
            mine = memory.allocate(LARGE, FLOAT, "test")
            mine[:] = number
            if not (mine[::4096] == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


def test_results_on_used_memory_are_the_same():
    """What was in a block before does not show in an output: unpooled zeros are zeros."""
    x = np.random.default_rng(0).standard_normal((1, 8, 512, 512)).astype(np.float32)
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    y, indices = unpool.max_pool(x, **window, return_indices=True)
    first = unpool.max_unpool(y, indices, **window).copy()
    dirty = memory.allocate(first.shape, first.dtype, "test")
    dirty[...] = np.nan
    del dirty

    np.testing.assert_array_equal(unpool.max_unpool(y, indices, **window), first)
