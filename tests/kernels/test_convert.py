"""Arrays in another type and order of axes are those of NumPy."""

import ml_dtypes
import numpy as np
import pytest

from unpool.kernels.cpu import convert, copy_rows
from unpool.kernels.cpu.fold_axes import readonly

SIXTEEN = [np.float16, ml_dtypes.bfloat16]
RNG = np.random.default_rng(0)


def converted(x, dtype, images, rows, columns=1):
    y = np.empty(x.size, dtype)
    convert.launch(x.dtype, y.dtype, images, rows, columns).run((np.ascontiguousarray(x), y), None)
    return y


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_every_16_bit_number_is_widened(dtype):
    """NaN keeps its payload."""
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    assert np.array_equal(converted(x, np.float32, 1, x.size).view(np.uint32), x.astype(np.float32).view(np.uint32))


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_numbers_are_rounded(dtype):
    """Numbers of the type, middles of neighbours and what is beside them, to nearest even; NaN keeps its sign."""
    exact = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32).view(np.uint32)
    unit = 1 << (13 if dtype == np.float16 else 16)
    near = [exact + np.uint32(step) for step in (0, 1, unit // 2 - 1, unit // 2, unit // 2 + 1, 0xFFFFFFFF)]
    bits = np.concatenate([RNG.integers(0, 1 << 32, 1 << 18, np.uint32), *near])
    x = bits.view(np.float32)
    y = converted(x, dtype, 1, x.size)
    is_nan = np.isnan(x)
    with np.errstate(over="ignore"):
        assert np.array_equal(y[~is_nan].view(np.uint16), x[~is_nan].astype(dtype).view(np.uint16))
    assert np.isnan(y[is_nan]).all()
    assert np.array_equal(np.signbit(y[is_nan]), np.signbit(x[is_nan]))


@pytest.mark.parametrize(("source", "target"), [
    (np.float32, np.float32), (np.float64, np.float64), *[(each, np.float32) for each in SIXTEEN],
    *[(np.float32, each) for each in SIXTEEN],
])  # fmt: skip
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 37, 5), (3, 5, 37), (1, 3, 1000), (2, 1000, 3), (1, 30000, 1)])
def test_axes_change_places(source, target, shape):
    """Rows and columns of few and many elements."""
    x = RNG.standard_normal(shape).astype(source)
    y = converted(x, target, *shape)
    assert np.array_equal(y.reshape(shape[0], shape[2], shape[1]), x.astype(target).transpose(0, 2, 1))


@pytest.mark.parametrize("maps", [0, 2])
@pytest.mark.parametrize("box", [(1, 1, 1), (2, 1, 3), (2, 3, 0)])
def test_a_box_is_copied_into_planes(box, maps):
    """Beside it planes keep what they hold, or have the value of their map."""
    source, target, values = RNG.standard_normal((4, 2, 4, 5)), np.full((4, 3, 3, 7), 9.0), np.array([-1.0, -2.0])
    expected = target.copy()
    if maps:
        expected[:] = np.resize(values, 4)[:, None, None, None]
    here, there = (tuple(map(slice, at, np.add(at, box))) for at in ((0, 1, 2), (1, 0, 4)))
    expected[:, *there] = source[:, *here]
    rows = copy_rows.box_rows(((2, 4, 5), (3, 3, 7)), ((0, 1, 2), (1, 0, 4)), box)
    launch = copy_rows.launch(4, (40, 63, box[-1]), rows, maps)
    launch.run((), None, readonly(source), target.reshape(-1), readonly(values))
    assert np.array_equal(target, expected)
