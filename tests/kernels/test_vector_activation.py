"""Activations of scalars, vectors and tiles."""

import numpy as np
import pytest
from numba import njit, types

from tests.cases.vectors import FLOATS, values, widths
from unpool.kernels.cpu.vector import (
    ActivationParams,
    activate_sums,
    activation_dtype,
    load,
    splat_activation,
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
        activation = splat_activation(given[0], lanes)
        tile_store(activate_sums(tile_load(x.ctypes.data, size, element, lanes, 2), activation), tile, size, 2, 1)
        for part in range(2):
            store(vector + part * size, activate_sums(load(x.ctypes.data + part * size, element, lanes), activation))
        for lane in range(2 * lanes):
            numbers[lane] = activate_sums(x[lane], given[0])

    x = values(name, 2 * lanes)
    numbers, vector, tile = (np.empty_like(x) for _ in range(3))
    given = np.array([tuple(ActivationParams(is_active, 0.5, -3, 1.5))], activation_dtype(kind))
    act(given, x, numbers, vector.ctypes.data, tile.ctypes.data)
    expected = np.clip(np.where(x < 0, x * kind.type(0.5), x), -3, 1.5) if is_active else x
    for found in (numbers, vector, tile):
        np.testing.assert_array_equal(found, expected)
