"""Activations of scalars, vectors and tiles."""

import numpy as np
import pytest
from numba import njit, types

from tests.cases.vectors import FLOATS, values, widths
from unpool.kernels.cpu.vector import (
    Activation,
    activated,
    activation_in_lanes,
    activation_type,
    load,
    store,
    tile_load,
    tile_store,
)

every_float = pytest.mark.parametrize(("name", "lanes"), [(name, lanes) for name in FLOATS for lanes in widths(name)])


@every_float
@pytest.mark.parametrize("is_active", [False, True])
def test_activate(name: str, lanes: int, is_active: bool) -> None:
    """Negative numbers are weakened, then all are brought between two bounds, but for NaN; or nothing is done."""
    element, kind = getattr(types, name), np.dtype(name)
    size = lanes * kind.itemsize

    @njit
    def act(given, x, numbers, vector, tile):
        activation = activation_in_lanes(given[0], lanes)
        tile_store(activated(tile_load(x.ctypes.data, size, element, lanes, 2), activation), tile, size, 2, 1)
        for part in range(2):
            store(vector + part * size, activated(load(x.ctypes.data + part * size, element, lanes), activation))
        for lane in range(2 * lanes):
            numbers[lane] = activated(x[lane], given[0])

    x = values(name, 2 * lanes)
    numbers, vector, tile = (np.empty_like(x) for _ in range(3))
    given = np.array([tuple(Activation(is_active, 0.5, -3, 1.5))], activation_type(kind))
    act(given, x, numbers, vector.ctypes.data, tile.ctypes.data)
    expected = np.clip(np.where(x < 0, x * kind.type(0.5), x), -3, 1.5) if is_active else x
    for found in (numbers, vector, tile):
        np.testing.assert_array_equal(found, expected)
