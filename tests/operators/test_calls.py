"""A call that was prepared before does what it did the first time, and takes nothing for what it is not."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch

import unpool
from tests.support.runners import bits
from unpool import calls, shape_cache
from unpool.kernels.cpu.vector import address_of

POOL = {"kernel_shape": [2, 2], "strides": [2, 2]}


def ramp(*shape: int, kind: type = np.float32) -> np.ndarray:
    """0, 1, 2, ..."""
    return np.arange(np.prod(shape)).reshape(shape).astype(kind)


def test_second_call_is_prepared() -> None:
    """Equal arguments, shapes and types are prepared once, whatever the kind of array."""
    shape_cache.shortcuts.clear()
    x = ramp(1, 2, 5, 5)
    first = unpool.max_pool(x, **POOL, return_indices=True)
    second = unpool.max_pool(x + 0, **POOL, return_indices=True)
    third = unpool.max_pool(torch.from_numpy(x), **POOL, return_indices=True)

    assert len(shape_cache.shortcuts) == 1
    assert [bits(each) for each in first] == [bits(each) for each in second]
    assert [bits(each.numpy()) for each in third] == [bits(each) for each in first]


def test_outputs_are_new() -> None:
    """A prepared call never hands out the memory of an earlier result."""
    results = [unpool.max_pool(ramp(1, 1, 4, 4) + n, **POOL) for n in range(5)]
    assert [int(y[0, 0, 0, 0]) for y in results] == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("strides", [[2.0, 2.0], [True, True], [2, True], ["2", "2"], [Fraction(2), Fraction(2)], 2.0])
def test_equal_is_not_the_same(strides: object) -> None:
    """Values that only compare equal to those of an earlier call are refused as they would have been before."""
    x = ramp(1, 1, 4, 4)
    unpool.max_pool(x, kernel_shape=[2, 2], strides=[2, 2])
    unpool.max_pool(x, kernel_shape=[2, 2], strides=[1, 1])
    with pytest.raises(unpool.UnpoolError, match="MaxPool: strides expects "):
        unpool.max_pool(x, kernel_shape=[2, 2], strides=strides)


def test_arrays_as_attributes() -> None:
    """A window given as an array is understood, and its bytes are not taken for other values."""
    x = ramp(1, 1, 4, 4)
    y = unpool.max_pool(x, kernel_shape=np.array([2, 2]), strides=np.array([2, 2]))
    assert y.ravel().tolist() == [5, 7, 13, 15]
    with pytest.raises(unpool.UnpoolError, match="kernel_shape needs values from 1"):
        unpool.max_pool(x, kernel_shape=np.array([2, 0, 2, 0], np.int32), strides=np.array([2, 2]))


def test_type_shape_and_order_are_told_apart() -> None:
    """One window, many arrays: every type, shape and memory order gets its own result."""
    for kind in (np.float32, np.float16, ml_dtypes.bfloat16, np.float64, np.int8, np.uint8):
        for shape in ((1, 1, 4, 6), (2, 1, 6, 4)):
            x = ramp(*shape, kind=kind)
            expected = bits(unpool.max_pool(x.astype(np.float64), **POOL).astype(kind))
            turned = np.asfortranarray(x)
            spread = np.zeros((*shape[:3], 2 * shape[3]), kind)[..., ::2]
            spread[...] = x
            raw = np.zeros(x.nbytes + 1, np.uint8)[1:]
            raw[:] = np.frombuffer(x.tobytes(), np.uint8)
            frozen = x.copy()
            frozen.flags.writeable = False
            for same in (x, turned, spread, raw.view(kind).reshape(shape), frozen):
                assert bits(unpool.max_pool(same, **POOL)) == expected


def test_output_shape_counts() -> None:
    """MaxUnpool's third input is part of what is prepared, as a list and as an array."""
    x, i = np.ones((1, 1, 2), np.float32), np.array([[[0, 3]]])
    for size in (5, 6, 7, 5):
        for shape in ([1, 1, size], np.array([1, 1, size])):
            assert unpool.max_unpool(x, i, shape, kernel_shape=[2], strides=[2]).shape == (1, 1, size)
    with pytest.raises(unpool.UnpoolError, match="output_shape expects int64"):
        unpool.max_unpool(x, i, np.array([1, 1, 5], np.int32), kernel_shape=[2], strides=[2])


def test_failures_are_not_kept() -> None:
    """A refused call is refused again, and leaves nothing behind."""
    shape_cache.shortcuts.clear()
    x = ramp(1, 1, 4, 4)
    for _ in range(2):
        with pytest.raises(unpool.ShapeError, match="needs room for a window"):
            unpool.max_pool(x, kernel_shape=[6, 6])
    assert not shape_cache.shortcuts


def test_an_error_stands_alone() -> None:
    """A traceback shows what was wrong, not that the call was looked for among prepared ones."""
    with pytest.raises(unpool.ShapeError) as caught:
        unpool.max_pool(ramp(1, 1, 4, 4), kernel_shape=[6, 6])
    assert caught.value.__context__ is None


def test_few_are_kept() -> None:
    """What is remembered does not grow without end."""
    for size in range(shape_cache.MAX_SHORTCUTS + 10):
        unpool.max_pool(np.ones((1, 1, size + 1), np.float32), kernel_shape=[1])
    assert len(shape_cache.shortcuts) <= shape_cache.MAX_SHORTCUTS


def test_handles_lead_to_the_data() -> None:
    """Compiled code finds an array's memory by `id`, also that of a view that starts elsewhere."""
    from numba import njit

    where = njit(lambda handle: address_of(handle))
    for x in (np.ones(3), np.ones((4, 5), np.int8)[1:, 2:], np.empty((0, 3))):
        assert where(id(x)) == x.ctypes.data


def test_what_is_known_may_vanish(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may forget everything between any two lines: the call is prepared again."""

    class Vanishing(dict):
        def __contains__(self, key: object) -> bool:
            return True

    monkeypatch.setattr(calls, "shortcuts", Vanishing())
    for _ in range(2):
        assert unpool.max_pool(torch.ones(1, 1, 4, 4), **POOL).tolist() == [[[[1, 1], [1, 1]]]]
