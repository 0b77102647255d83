"""What is derived from weights is kept for unpool's own copies only, and found by any number of threads."""

import mmap
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import unpool
from tests.cases.kernel_conv_transpose import problem_of
from unpool.geometry import Axis, Window
from unpool.kernels.cpu.conv_transpose.dispatch import ConvTransposeDispatcher
from unpool.kernels.cpu.weights import own_weights

SHAPE = (16, 16, 3, 3)
X = np.random.default_rng(1).standard_normal((1, 16, 20, 20)).astype(np.float32)
Change = Callable[[], object]


def fresh() -> np.ndarray:
    """Weights for which packing pays."""
    return np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)


def older_view(_: Path) -> tuple[np.ndarray, Change]:
    """A view made before the array was locked may still write."""
    w = fresh()
    view = w[:]
    w.flags.writeable = False
    return w, lambda: np.multiply(view, 3, out=view)


def unlocked(_: Path) -> tuple[np.ndarray, Change]:
    """The owner of an array may unlock it."""
    w = fresh()
    w.flags.writeable = False

    def change() -> None:
        w.flags.writeable = True
        np.multiply(w, 3, out=w)
        w.flags.writeable = False

    return w, change


def lent_bytes(_: Path) -> tuple[np.ndarray, Change]:
    """A read-only view of a bytearray that its owner writes."""
    memory = bytearray(fresh().tobytes())
    writer = np.frombuffer(memory, np.float32)
    return np.ndarray(SHAPE, np.float32, memoryview(memory).toreadonly()), lambda: np.multiply(writer, 3, out=writer)


def mapped_file(folder: Path) -> tuple[np.ndarray, Change]:
    """A file that is mapped for reading here, and written elsewhere."""
    path = folder / "w"
    path.write_bytes(fresh().tobytes())
    with path.open("rb") as file:
        w = np.ndarray(SHAPE, np.float32, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    writer = np.memmap(path, np.float32, "r+")
    return w, lambda: np.multiply(writer, 3, out=writer)


def lent_tensor(_: Path) -> tuple[np.ndarray, Change]:
    """Memory that another library lends through DLPack."""
    producer = fresh()

    class Lender:
        def __dlpack__(self, **_: object) -> object:
            return producer.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return producer.__dlpack_device__()

    return np.from_dlpack(Lender()), lambda: np.multiply(producer, 3, out=producer)


@pytest.mark.parametrize("make", [older_view, unlocked, lent_bytes, mapped_file, lent_tensor])
def test_read_only_arrays_that_change_are_read_again(make: Callable[[Path], tuple[np.ndarray, Change]], tmp_path: Path):
    """Whoever may write to weights that unpool cannot, the next call sees it."""
    w, change = make(tmp_path)
    if w.flags.writeable:
        w.flags.writeable = False
    first = unpool.conv_transpose(X, w, strides=[2, 2])
    change()
    second = unpool.conv_transpose(X, w, strides=[2, 2])
    np.testing.assert_allclose(second, 3 * first, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("lock", [False, True])
def test_prepared_weights_are_a_copy(lock: bool) -> None:
    """Neither what the caller does to the array nor to a view of it reaches a prepared call."""
    w = fresh()
    view = w[:]
    w.flags.writeable = not lock
    grow = unpool.prepare_conv_transpose(w, strides=[2, 2])
    first = grow(X)
    view *= 3
    np.testing.assert_array_equal(grow(X), first)


def test_16_bit_weights_are_widened_once() -> None:
    """An algorithm that reads weights as they are gets one float32 copy of them, made by the first call."""
    x, b = np.ones((1, 16, 1, 1), np.float16), np.zeros(8, np.float32)
    w, y = own_weights(np.ones((16, 8, 2, 2), np.float16)), np.empty((1, 8, 2, 2), np.float16)
    axis = Axis(2, 1, Window(2))
    grow = ConvTransposeDispatcher(problem_of(x, w, (axis, axis), 1), x.dtype)
    grow(x, w, b, y, 1)
    found = w.packings.find("as float32", lambda: None)
    assert found.dtype == np.float32
    grow(x, w, b, y, 1)
    assert np.all(y == 16)
    assert w.packings.find("as float32", lambda: None) is found
    assert len(w.packings) == 1


def test_threads_share_weights_over_many_shapes() -> None:
    """Sixteen threads that ask for ever other shapes get right results, whatever is dropped meanwhile."""
    w = np.ones(SHAPE, np.float32)
    grow = unpool.prepare_conv_transpose(w, strides=[2, 2])
    xs = [np.ones((1, 16, 8, 12 + size), np.float32) for size in range(24)]
    failures: list[Exception] = []

    def ask(seed: int) -> None:
        try:
            for number in np.random.default_rng(seed).integers(len(xs), size=300):
                assert grow(xs[number], threads=1).max() == 16 * 4
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(16)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures
