"""Operations on tiles, tuples of vectors: to and from memory, and lanes that alternate."""

import numpy as np
import pytest
from numba import njit, types

from tests.cases.vectors import FLOATS, same, values, widths
from tests.support.guarded import beside_guard, survives
from unpool.kernels.cpu.vector import (
    int64_at,
    interleave,
    load,
    store,
    tile_add_to,
    tile_alternate,
    tile_load,
    tile_load_every,
    tile_store,
    tile_store_every,
)

every_float = pytest.mark.parametrize(("name", "lanes"), [(name, lanes) for name in FLOATS for lanes in widths(name)])


@every_float
def test_rows(name: str, lanes: int) -> None:
    """Vectors any distance apart are read, and stored any distance apart, with nothing written in between."""
    element, rows = getattr(types, name), 5

    @njit("void(int64, int64, int64, int64)")
    def move(x, distance, out, between):
        tile_store(tile_load(x, distance, element, lanes, rows), out, between, rows, 1)

    x, out = values(name, rows * (lanes + 2)).reshape(rows, -1), np.full((rows, lanes + 3), 77, name)
    move(x.ctypes.data, x.strides[0], out.ctypes.data, out.strides[0])
    same(out[:, :lanes].copy(), x[:, :lanes].copy())
    assert np.all(out[:, lanes:] == 77)


@every_float
@pytest.mark.parametrize("step", [2, 3])
def test_alternating_lanes(name: str, lanes: int, step: int) -> None:
    """Every second or third element goes to its own vector, and back; rows of them are stored apart."""
    element, size = getattr(types, name), np.dtype(name).itemsize

    @njit("void(int64, int64, int64, int64)")
    def part(x, apart, mixed, distance):
        parts = tile_load_every(x, element, lanes, step)
        tile_store(parts, apart, lanes * size, step, 1)
        tile_store_every(parts + parts, mixed, distance, step)

    x, apart = values(name, lanes * step), np.empty((step, lanes), name)
    mixed = np.full((2, x.size + 3), 77, name)
    part(x.ctypes.data, apart.ctypes.data, mixed.ctypes.data, mixed.strides[0])
    same(apart, x.reshape(lanes, step).T.copy())
    same(mixed[:, : x.size].copy(), np.stack([x, x]))
    assert np.all(mixed[:, x.size :] == 77)

    before, after = (beside_guard(x, at_end=is_end) for is_end in (False, True))
    outs = [beside_guard(np.empty(2 * x.size, name), at_end=is_end) for is_end in (False, True)]
    for each, out in zip((before, after), outs, strict=True):
        assert survives(lambda each=each, out=out: part(each.ctypes.data, apart.ctypes.data, out.ctypes.data, x.nbytes))


@every_float
def test_interleave(name: str, lanes: int) -> None:
    """Two vectors become one in which their lanes alternate."""
    element = getattr(types, name)

    @njit("void(int64, int64, int64)")
    def mix(x, y, out):
        store(out, interleave(load(x, element, lanes), load(y, element, lanes)))

    x, y, out = values(name, lanes), values(name, lanes, seed=2), np.empty((lanes, 2), name)
    mix(x.ctypes.data, y.ctypes.data, out.ctypes.data)
    same(out, np.stack([x, y], axis=1))


@every_float
def test_add_to(name: str, lanes: int) -> None:
    """A tile is added to rows any distance apart, and to nothing between them."""
    element, rows, size = getattr(types, name), 3, np.dtype(name).itemsize
    count = 2 * rows

    @njit("void(int64, int64, int64)")
    def add(x, out, distance):
        tile_add_to(tile_load(x, lanes * size, element, lanes, count), out, distance, rows, 2)

    x = np.arange(rows * 2 * lanes).astype(name).reshape(rows, -1)
    out = np.full((rows, 2 * lanes + 1), 77, name)
    add(x.ctypes.data, out.ctypes.data, out.strides[0])
    np.testing.assert_array_equal(out[:, :-1], x + 77)
    assert np.all(out[:, -1] == 77)


@pytest.mark.parametrize(("name", "lanes"), [(name, lanes) for name in FLOATS for lanes in widths(name) if lanes != 3])
@pytest.mark.parametrize("step", [1, 2, 4, 8])
def test_rows_alternate(name: str, lanes: int, step: int) -> None:
    """Vector by vector, the lanes of all rows of a tile become neighbours."""
    element, wide, size = getattr(types, name), 2, lanes * np.dtype(name).itemsize
    count = wide * step

    @njit("void(int64, int64)")
    def mix(x, out):
        tile_store(tile_alternate(tile_load(x, size, element, lanes, count), step), out, size, count, 1)

    x, out = values(name, count * lanes).reshape(step, wide, lanes), np.empty((wide, lanes, step), name)
    mix(x.ctypes.data, out.ctypes.data)
    same(out, x.transpose(1, 2, 0).copy())


def test_int64_at() -> None:
    """The number at an address."""

    @njit("int64(int64)")
    def read(address):
        return int64_at(address)

    numbers = np.array([3, -(1 << 40)])
    assert read(numbers.ctypes.data + 8) == -(1 << 40)
