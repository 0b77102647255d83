"""Every operation of the vector language on registers against NumPy: narrower, equal and wider than the CPU's."""

import operator
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from numba import njit, types

from tests.cases.vectors import FLOATS, INTEGERS, every_kind, pairs, same, values, widths
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.vector import (
    any_of,
    convert,
    count_set,
    count_up,
    every_second,
    load,
    repeat,
    select,
    splat,
    store,
    tile_add_product,
    tile_store,
    tile_zero,
    total_of,
    unordered,
)

SUMS = (operator.add, operator.sub, operator.mul)
BITS = (operator.and_, operator.or_, operator.xor)
COMPARISONS = (operator.gt, operator.lt, operator.ge, operator.eq, operator.ne)


@cache
def arithmetic(name: str, lanes: int):
    """All operators that give elements, one result after the other."""
    element, size = getattr(types, name), lanes * np.dtype(name).itemsize
    if name in FLOATS:

        @njit("void(int64, int64, int64)")
        def run(x, y, out):
            a, b = load(x, element, lanes), load(y, element, lanes)
            store(out, a + b)
            store(out + size, a - b)
            store(out + 2 * size, a * b)

        return run

    @njit("void(int64, int64, int64)")
    def run_integers(x, y, out):
        a, b = load(x, element, lanes), load(y, element, lanes)
        store(out, a + b)
        store(out + size, a - b)
        store(out + 2 * size, a * b)
        store(out + 3 * size, a & b)
        store(out + 4 * size, a | b)
        store(out + 5 * size, a ^ b)
        store(out + 6 * size, ~a)

    return run_integers


@pytest.mark.sample(3)
@every_kind
def test_arithmetic(name: str, lanes: int) -> None:
    """Sums, differences and products wrap as the element type does; bits combine lane by lane."""
    signs = SUMS if name in FLOATS else (*SUMS, *BITS)
    for x, y in pairs(name, lanes):
        out = np.empty((7, lanes), name)
        arithmetic(name, lanes)(x.ctypes.data, y.ctypes.data, out.ctypes.data)
        for row, sign in enumerate(signs):
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(out[row], sign(x, y), err_msg=sign.__name__)
        if name not in FLOATS:
            np.testing.assert_array_equal(out[6], ~x)


@pytest.mark.parametrize("shift", [operator.lshift, operator.rshift])
@pytest.mark.parametrize("name", [name for name in INTEGERS if name != "uint8"])
def test_shifts(name: str, shift) -> None:
    """Zeros move in from the right, and the sign from the left."""
    lanes = widths(name)[-1]
    x = values(name, lanes)
    counts = (np.arange(lanes) % (8 * x.itemsize)).astype(name)
    element = getattr(types, name)
    run = njit("void(int64, int64, int64)")(
        lambda x, y, out: store(out, shift(load(x, element, lanes), load(y, element, lanes)))
    )
    out = np.empty_like(x)
    run(x.ctypes.data, counts.ctypes.data, out.ctypes.data)
    np.testing.assert_array_equal(out, shift(x, counts))


@pytest.mark.parametrize("name", FLOATS)
def test_unordered_and_any_of(name: str) -> None:
    """A lane is set where either number is NaN, and one such lane is enough."""
    lanes, element = widths(name)[-1], getattr(types, name)

    @njit("boolean(int64, int64, int64)")
    def run(x, y, out):
        mask = unordered(load(x, element, lanes), load(y, element, lanes))
        store(out, select(mask, splat(np.uint8(1), lanes), splat(np.uint8(0), lanes)))
        return any_of(mask)

    for x, y in pairs(name, lanes):
        out = np.empty(lanes, np.uint8)
        is_any = run(x.ctypes.data, y.ctypes.data, out.ctypes.data)
        np.testing.assert_array_equal(out != 0, np.isnan(x) | np.isnan(y))
        assert is_any == bool(out.any())
    ones = np.ones(lanes, name)
    assert not run(ones.ctypes.data, ones.ctypes.data, out.ctypes.data)


@pytest.mark.sample(3)
@every_kind
def test_lanes_move(name: str, lanes: int) -> None:
    """Every second lane of two vectors from either start, and the lanes repeated."""
    element, size = getattr(types, name), lanes * np.dtype(name).itemsize

    @njit("void(int64, int64, int64)")
    def run(x, y, out):
        a, b = load(x, element, lanes), load(y, element, lanes)
        store(out, every_second(a, b, 0))
        store(out + size, every_second(a, b, 1))
        store(out + 2 * size, repeat(a, 2))

    x, y, out = values(name, lanes, 1), values(name, lanes, 2), np.empty(4 * lanes, name)
    run(x.ctypes.data, y.ctypes.data, out.ctypes.data)
    both = np.concatenate([x, y])
    same(out, np.concatenate([both[::2], both[1::2], x, x]))


@cache
def comparisons(name: str, lanes: int):
    """All comparisons, what is made of masks, and selections, each as bytes or elements."""
    element, size = getattr(types, name), lanes * np.dtype(name).itemsize

    @njit("void(int64, int64, int64, int64)")
    def run(x, y, out, chosen):
        a, b = load(x, element, lanes), load(y, element, lanes)
        yes, no = splat(np.uint8(1), lanes), splat(np.uint8(0), lanes)
        store(out, select(a > b, yes, no))
        store(out + lanes, select(a < b, yes, no))
        store(out + 2 * lanes, select(a >= b, yes, no))
        store(out + 3 * lanes, select(a == b, yes, no))
        store(out + 4 * lanes, select(a != b, yes, no))
        store(out + 5 * lanes, select((a > b) & ~(a >= b) | (a == b) ^ (a < b), yes, no))
        store(chosen, select(a > b, a, b))
        store(chosen + size, select(~(a > b), a, b))

    return run


def compared(name: str, lanes: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Pairs of vectors with what the comparisons and the selections give for them."""
    for x, y in pairs(name, lanes):
        out, chosen = np.empty((6, lanes), np.uint8), np.empty((2, lanes), name)
        comparisons(name, lanes)(x.ctypes.data, y.ctypes.data, out.ctypes.data, chosen.ctypes.data)
        yield x, y, out != 0, chosen


@pytest.mark.sample(3)
@every_kind
def test_comparisons(name: str, lanes: int) -> None:
    """Comparisons are NumPy's: signed or unsigned as the type, false for NaN but for !=."""
    for x, y, out, chosen in compared(name, lanes):
        for row, compare in enumerate(COMPARISONS):
            np.testing.assert_array_equal(out[row], compare(x, y), err_msg=compare.__name__)
        np.testing.assert_array_equal(out[5], (x == y) ^ (x < y))
        same(chosen[0], np.where(x > y, x, y))
        same(chosen[1], np.where(x > y, y, x))


@cache
def conversions(name: str, lanes: int):
    """A vector as every integer type, one register file after the other."""
    element = getattr(types, name)

    @njit("void(int64, int64)")
    def run(x, out):
        value = load(x, element, lanes)
        store(out, convert(value, types.int8))
        store(out + lanes, convert(value, types.uint8))
        store(out + 2 * lanes, convert(value, types.int16))
        store(out + 4 * lanes, convert(value, types.int32))
        store(out + 8 * lanes, convert(value, types.int64))

    return run


@pytest.mark.parametrize("lanes", [3, 16])
@pytest.mark.parametrize("name", INTEGERS)
def test_convert(name: str, lanes: int) -> None:
    """Integers widen by their sign, narrow by cutting, and keep their bits between types of one width."""
    x, out = values(name, lanes), np.empty(16 * lanes, np.uint8)
    conversions(name, lanes)(x.ctypes.data, out.ctypes.data)
    first = 0
    for target in INTEGERS:
        expected = x.astype(target)
        np.testing.assert_array_equal(out[first : first + expected.nbytes].view(target), expected, err_msg=target)
        first += expected.nbytes


@pytest.mark.parametrize("name", FLOATS)
def test_convert_keeps_the_bits_of_floats(name: str) -> None:
    """A float vector and the integer vector of its width are the same register."""
    x, lanes, bits = values(name, 8), 8, f"int{8 * np.dtype(name).itemsize}"
    element, whole = getattr(types, name), getattr(types, bits)

    @njit("void(int64, int64, int64)")
    def there_and_back(x, out, back):
        value = convert(load(x, element, lanes), whole)
        store(out, value)
        store(back, convert(value, element))

    out, back = np.empty(lanes, bits), np.empty(lanes, name)
    there_and_back(x.ctypes.data, out.ctypes.data, back.ctypes.data)
    same(out, x)
    same(back, x)


@pytest.mark.parametrize("name", [*INTEGERS, *FLOATS])
def test_splat_and_count_up(name: str) -> None:
    """One number in every lane; 0, step, 2 * step, ... with the wrap of the type."""
    lanes, element, number = 5, getattr(types, name), np.dtype(name).type

    @njit(f"void({name}, int64)")
    def run(scalar, out):
        store(out, splat(number(scalar), lanes) + count_up(element, lanes, 3))

    out = np.empty(lanes, name)
    run(number(4), out.ctypes.data)
    np.testing.assert_array_equal(out, number(4) + np.arange(0, 15, 3).astype(name))


@pytest.mark.parametrize("name", ["float32", "int8"])
def test_total_of(name: str) -> None:
    """A sum of floats is NaN where one of them is; of integers it stays what it was."""
    element, lanes = getattr(types, name), 16

    @njit("void(int64, int64, int64)")
    def add(x, y, out):
        store(out, total_of(load(x, element, lanes), load(y, element, lanes)))

    x, y, out = np.arange(lanes).astype(name), np.ones(lanes, name), np.empty(lanes, name)
    if name == "float32":
        x[3] = y[5] = np.nan
    add(x.ctypes.data, y.ctypes.data, out.ctypes.data)
    same(out, x + y if name == "float32" else x)


@pytest.mark.parametrize("lanes", [3, 8, 16, 64])
def test_count_set(lanes: int) -> None:
    """As many as there are set lanes, none and all of them too."""

    @njit("int64(int64)")
    def run(x):
        return count_set(load(x, types.uint8, lanes) != splat(np.uint8(0), lanes))

    for x in (np.zeros(lanes, np.uint8), np.ones(lanes, np.uint8), np.arange(lanes, dtype=np.uint8) % 3):
        assert run(x.ctypes.data) == np.count_nonzero(x)


TILES = [(name, rows, vectors) for name in FLOATS for rows, vectors in ((1, 1), (3, 2), (8, 3), (2, 5))]


@pytest.mark.parametrize(("name", "rows", "vectors"), TILES)
def test_tiles(name: str, rows: int, vectors: int) -> None:
    """A tile of sums is a matrix product, stored row by row any distance apart, with nothing written in between."""
    lanes, depth, element = vector_bytes() // np.dtype(name).itemsize, 7, getattr(types, name)
    size, count, wide = np.dtype(name).itemsize, rows * vectors, vectors * lanes

    @njit("void(int64, int64, int64, int64)")
    def multiply(a, b, out, distance):
        total = tile_zero(element, lanes, count)
        for step in range(depth):
            left, right = a + step * rows * size, b + step * wide * size
            total = tile_add_product(total, left, right, element, lanes, rows, vectors)
        tile_store(total, out, distance, rows, vectors)

    rng = np.random.default_rng(8)
    a, b = (rng.integers(-9, 10, (depth, each)).astype(name) for each in (rows, wide))
    out = np.full((rows, wide + 3), 77, name)
    multiply(a.ctypes.data, b.ctypes.data, out.ctypes.data, out.strides[0])
    np.testing.assert_array_equal(out[:, :wide], a.T @ b)
    assert np.all(out[:, wide:] == 77)
