"""Operations on the taps of neighbouring windows: read with and without edges, and NaN among them noticed."""

import numpy as np
import pytest
from numba import njit, types

from tests.cases.vectors import FLOATS, same, values, widths
from tests.support.guarded import beside_guard, survives
from unpool.kernels.cpu.max_pool.maxima import any_beyond, any_unordered
from unpool.kernels.cpu.max_pool.row_vectors import load_parts, load_window
from unpool.kernels.cpu.vector import select, splat, store, tile_store

every_float = pytest.mark.parametrize(("name", "lanes"), [(name, lanes) for name in FLOATS for lanes in widths(name)])
TAPS = 5


def reader(name: str, lanes: int, step: int, is_whole: int):
    """Stores all taps of `lanes` windows one after the other."""
    element, size = getattr(types, name), np.dtype(name).itemsize

    @njit("void(int64, int64, int64, int64)")
    def read(x, start, count, out):
        fill = splat(element(77), lanes)
        tile_store(load_window(x, start, count, fill, element, TAPS, step, is_whole), out, lanes * size, TAPS, 1)

    return read


@pytest.mark.sample(9)
@every_float
@pytest.mark.parametrize("step", [1, 2])
def test_load_window(name: str, lanes: int, step: int) -> None:
    """Tap t of window i is element i * step + t; beside the row it is the filling, and no memory is touched."""
    span = (lanes - 1) * step + TAPS
    read = span if step == 1 else -(-span // lanes) * lanes
    x = values(name, read)
    taken = np.stack([x[tap : tap + (lanes - 1) * step + 1 : step] for tap in range(TAPS)])
    out = np.empty((TAPS, lanes), name)
    whole, edged = (reader(name, lanes, step, is_whole) for is_whole in (1, 0))
    guarded = [beside_guard(x, at_end=is_end) for is_end in (False, True)]
    outs = [beside_guard(out, at_end=is_end) for is_end in (False, True)]
    for source in guarded:
        for target in outs:
            whole(source.ctypes.data, 0, read, target.ctypes.data)
            same(target, taken)
    assert survives(lambda: [whole(each.ctypes.data, 0, read, outs[0].ctypes.data) for each in guarded])
    for start in (-3, 0, 2):
        for count in (0, 1, read - 1):
            row = beside_guard(values(name, count), at_end=True) if count else np.empty(0, name)
            padded = np.full(read + 8, 77, name)
            padded[3 : 3 + count] = row
            edged(row.ctypes.data + start * row.itemsize, start, count, out.ctypes.data)
            first = padded[3 + start :]
            same(out, np.stack([first[tap : tap + (lanes - 1) * step + 1 : step] for tap in range(TAPS)]))


@pytest.mark.sample(11)
@every_float
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_nan_is_noticed(name: str, lanes: int, count: int, step: int) -> None:
    """Wherever in the windows the only NaN is; beside them it is not."""
    element = getattr(types, name)

    @njit("void(int64, int64, int64)")
    def look(x, size, noticed):
        taps = load_window(x, 0, size, splat(element(0), lanes), element, count, step, 0)
        mask = any_unordered(taps, step)
        store(noticed, select(mask, splat(types.int32(1), lanes), splat(types.int32(0), lanes)))

    span, noticed = (lanes - 1) * step + count, np.empty(lanes, np.int32)
    windows = {lane * step + tap for lane in range(lanes) for tap in range(count)}
    for place in range(span):
        x = np.zeros(span, name)
        x[place] = np.nan
        look(x.ctypes.data, span, noticed.ctypes.data)
        assert noticed.any() == (place in windows)


@every_float
def test_load_parts(name: str, lanes: int) -> None:
    """Vectors of a row, one behind the other; beside the row is the filling, and no memory is touched."""
    element, size, count = getattr(types, name), np.dtype(name).itemsize, 3
    span = lanes * count

    def reader_of(is_whole: int):
        @njit("void(int64, int64, int64, int64)")
        def read(x, start, row, out):
            parts = load_parts(x, start, row, splat(element(77), lanes), element, count, is_whole)
            tile_store(parts, out, lanes * size, count, 1)

        return read

    whole, edged, out = reader_of(1), reader_of(0), np.empty(span, name)
    x = beside_guard(values(name, span), at_end=True)
    whole(x.ctypes.data, 0, span, out.ctypes.data)
    same(out, x)
    for start in (-3, 0, 2):
        for row in (1, span - 1):
            x = beside_guard(values(name, row), at_end=True)
            padded = np.full(span + 8, 77, name)
            padded[3 : 3 + row] = x
            edged(x.ctypes.data + start * x.itemsize, start, row, out.ctypes.data)
            same(out, padded[3 + start : 3 + start + span])


@pytest.mark.parametrize("lanes", widths("float32"))
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("is_whole", [True, False])
def test_window_of_shorter_elements(lanes: int, step: int, is_whole: bool) -> None:
    """16 bits are the upper half of the element; beside the row is the filling; those beyond a limit are noticed."""
    whole = int(is_whole)

    @njit("void(int64, int64, int64, int64)")
    def look(x, size, out, noticed):
        taps = load_window(x, 0, size, splat(types.float32(-7), lanes), types.int16, TAPS, step, whole)
        tile_store(taps, out, lanes * 4, TAPS, 1)
        mask = any_beyond(taps, step, splat(types.float32(4), lanes))
        store(noticed, select(mask, splat(types.int32(1), lanes), splat(types.int32(0), lanes)))

    span = (lanes - 1) * step + TAPS
    read = span if step == 1 else -(-span // lanes) * lanes
    size = read if is_whole else span - 2
    out, noticed = np.empty((TAPS, lanes), np.float32), np.empty(lanes, np.int32)
    for far in (0.0, 4.0, -5.0, np.nan):
        wide = np.random.default_rng(1).uniform(-3, 3, size).astype(np.float32)
        wide[span // 2] = far
        bits = (wide.view(np.uint32) >> 16).astype(np.uint16)
        padded = np.full(read + 2, -7, np.float32)
        padded[:size] = (bits.astype(np.uint32) << 16).view(np.float32)
        x = beside_guard(bits, at_end=True)
        look(x.ctypes.data, size, out.ctypes.data, noticed.ctypes.data)
        np.testing.assert_array_equal(out, [padded[tap : tap + (lanes - 1) * step + 1 : step] for tap in range(TAPS)])
        assert noticed.any() == (not abs(far) <= 4 or not is_whole)
