"""Float16 and bfloat16 in registers: every value is widened exactly, every sum rounded to the nearest even."""

from functools import cache

import ml_dtypes
import numpy as np
import pytest
from numba import njit, types

from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.vector import BITS, address_of, load, narrow, splat, store, widen

DTYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
LANES = vector_bytes() // 4


@cache
def converters(name: str):
    """Loops over whole vectors: widening, and narrowing."""
    element, number = getattr(types, BITS[name].name), BITS[name].type

    @njit
    def widen_all(x, y):
        for place in range(0, x.size, LANES):
            store(address_of(y) + place * 4, widen(load(address_of(x) + place * 2, element, LANES)))

    @njit
    def narrow_all(x, y):
        for place in range(0, x.size, LANES):
            value = narrow(load(address_of(x) + place * 4, types.float32, LANES), splat(number(0), LANES))
            store(address_of(y) + place * 2, value)

    return widen_all, narrow_all


def narrowed(name: str, x: np.ndarray) -> np.ndarray:
    """The numbers rounded by the kernel."""
    y = np.empty(x.size, BITS[name])
    converters(name)[1](x, y)
    return y.view(DTYPES[name])


@pytest.mark.parametrize("name", DTYPES)
def test_every_value_is_widened_exactly(name: str) -> None:
    """All 65536 bit patterns, subnormals, infinities and NaN among them."""
    bits = np.arange(1 << 16).astype(np.uint16).view(BITS[name])
    y = np.empty(bits.size, np.float32)
    converters(name)[0](bits, y)
    np.testing.assert_array_equal(y, bits.view(DTYPES[name]).astype(np.float32))
    known = ~np.isnan(y)
    assert np.array_equal(np.signbit(y)[known], (bits.view(np.uint16) >> 15).astype(bool)[known])


@pytest.mark.parametrize("name", DTYPES)
def test_rounding_is_to_nearest_even(name: str) -> None:
    """Every number of the type, the middles between neighbours, and what lies just beside them."""
    bits = np.arange(1 << 16).astype(np.uint16).view(BITS[name])
    exact = bits.view(DTYPES[name]).astype(np.float32)
    unit = 1 << (13 if name == "float16" else 16)
    near = (exact.view(np.int32)[:, None] + np.array([-1, 0, 1, unit // 2 - 1, unit // 2, unit // 2 + 1])).astype(
        np.int32
    )
    any_bits = np.random.default_rng(5).integers(0, 1 << 32, 1 << 18).astype(np.uint32)
    with np.errstate(all="ignore"):
        for x in (near.reshape(-1).view(np.float32), any_bits.view(np.float32)):
            expected = x.astype(DTYPES[name])
            got = narrowed(name, x)
            known = ~np.isnan(x)
            assert np.isnan(got[~known].astype(np.float32)).all()
            np.testing.assert_array_equal(got.view(np.uint16)[known], expected.view(np.uint16)[known])
