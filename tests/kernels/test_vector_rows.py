"""Operations of the vector language that interleave results and mask them."""

import numpy as np
import pytest
from numba import njit, types

from tests.cases.vectors import FLOATS, every_kind, same, values, widths
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
)


@pytest.mark.parametrize("step", [1, 2, 4, 8])
@pytest.mark.parametrize(
    ("name", "lanes"), [(name, lanes) for name in FLOATS for lanes in widths(name) if lanes % 2 == 0]
)
def test_interleave(name: str, lanes: int, step: int) -> None:
    """Vectors that lie anywhere alternate lane by lane."""
    number, size = np.dtype(name).type, np.dtype(name).itemsize

    @njit
    def run(x, places, y, more):
        like = splat(number(more), lanes)
        total = tile_add(tile_interleave(address_of(x), address_of(places), like, step), like)
        tile_store(total, address_of(y), lanes * size, step, 1)

    x = np.arange(step * lanes * 3, dtype=name)
    rows = np.random.default_rng(step).permutation(step) * 3 * lanes + 1
    y = np.empty(step * lanes, name)
    run(x, rows * x.itemsize, y, 5)
    same(y, (np.stack([x[row : row + lanes] for row in rows], axis=1).reshape(-1) + 5).astype(name))


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
