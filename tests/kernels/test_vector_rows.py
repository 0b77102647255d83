"""Operations of the vector language that interleave results and write them to the end of a row."""

from functools import cache

import numpy as np
import pytest
from numba import njit, types

from tests.cases.vectors import FLOATS, every_kind, same, values, widths
from tests.support.guarded import beside_guard
from unpool.kernels.cpu.vector import (
    address_of,
    first_lanes,
    load,
    load_like,
    reinterpret,
    splat,
    store,
    store_masked,
    tile_add,
    tile_interleave,
    tile_store,
    tile_store_first,
)

STEPS = (1, 2, 4, 8)
KINDS = [(name, lanes) for name in FLOATS for lanes in widths(name) if lanes % 2 == 0]


@cache
def interleaver(name: str, lanes: int, step: int):
    """Interleaves `step` vectors, adds a number, and stores all or the first elements."""
    element, number = getattr(types, name), np.dtype(name).type
    size = np.dtype(name).itemsize

    @njit
    def run(x, places, y, more, count):
        like = splat(number(more), lanes)
        total = tile_add(tile_interleave(address_of(x), address_of(places), like, step), like)
        if count < 0:
            tile_store(total, address_of(y), lanes * size, step, 1)
        else:
            tile_store_first(total, address_of(y), count)

    assert element.bitwidth == 8 * size
    return run


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("name", "lanes"), KINDS)
def test_interleave(name: str, lanes: int, step: int) -> None:
    """Vectors that lie anywhere alternate lane by lane."""
    x = np.arange(step * lanes * 3, dtype=name)
    rows = np.random.default_rng(step).permutation(step) * 3 * lanes + 1
    y = np.empty(step * lanes, name)
    interleaver(name, lanes, step)(x, rows * x.itemsize, y, 5, -1)
    same(y, (np.stack([x[row : row + lanes] for row in rows], axis=1).reshape(-1) + 5).astype(name))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("name", "lanes"), KINDS)
def test_store_first(name: str, lanes: int, step: int) -> None:
    """Only the first elements are written, up to the last byte of memory."""
    x, places = np.arange(step * lanes, dtype=name), np.arange(step) * lanes * np.dtype(name).itemsize
    expected = x.reshape(step, lanes).T.reshape(-1)
    for count in range(1, step * lanes + 1):
        y = beside_guard(np.full(count, -1, name), at_end=True)
        interleaver(name, lanes, step)(x, places, y, 0, count)
        same(y, expected[:count])


@pytest.mark.sample(3)
@every_kind
def test_first_lanes(name: str, lanes: int) -> None:
    """Masks of any count; vectors loaded as others are."""
    element, number = getattr(types, name), np.dtype(name).type

    @njit
    def run(x, y, count):
        value = load_like(address_of(x), splat(number(0), lanes))
        store_masked(address_of(y), value, first_lanes(count, value))

    assert element.bitwidth > 0
    x = values(name, lanes)
    for count in (-1, 0, 1, lanes - 1, lanes, lanes + 9):
        y = np.zeros(lanes, name)
        run(x, y, count)
        same(y, np.where(np.arange(lanes) < count, x, number(0)))


def test_reinterpret() -> None:
    """Bits stay; only their meaning changes."""

    @njit
    def run(x, y):
        store(address_of(y), reinterpret(load(address_of(x), types.float32, 8), types.int32))

    x, y = values("float32", 8), np.empty(8, np.int32)
    run(x, y)
    same(y, x.view(np.int32))
