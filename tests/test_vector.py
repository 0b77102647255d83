"""Every operation of the vector language against NumPy, on registers that are narrower, equal and wider."""

import operator
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from numba import njit, types

from guarded import beside_guard, survives
from unpool.kernels.cpu.host import vector_bytes
from unpool.kernels.cpu.vector import (
    Vector,
    address_of,
    convert,
    count_up,
    exceeds,
    gather,
    gather_at,
    load,
    load_every,
    load_masked,
    prefetch,
    select,
    splat,
    store,
    store_masked,
)

INTEGERS = ("int8", "uint8", "int16", "int32", "int64")
FLOATS = ("float32", "float64")
STEPS = (1, 2, 4, 0)


def widths(name: str) -> tuple[int, ...]:
    """Lane counts: odd, half a register, one register, two registers."""
    register = vector_bytes() // np.dtype(name).itemsize
    return tuple(sorted({3, max(1, register // 2), register, 2 * register}))


KINDS = [(name, lanes) for name in (*INTEGERS, *FLOATS) for lanes in widths(name)]
every_kind = pytest.mark.parametrize(("name", "lanes"), KINDS, ids=[f"{name}x{lanes}" for name, lanes in KINDS])


def hard_values(name: str) -> np.ndarray:
    """Extremes and their neighbours; for floats NaN, infinities and both zeros too."""
    if name in FLOATS:
        return np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1, -1, 1.5, 2], name)
    info = np.iinfo(name)
    return np.array([info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3], name)


def values(name: str, count: int, seed: int = 0) -> np.ndarray:
    """Hard values in random order."""
    return np.random.default_rng(seed).choice(hard_values(name), count)


def pairs(name: str, lanes: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Vectors that meet with every pair of hard values."""
    hard = hard_values(name)
    x, y = np.repeat(hard, hard.size), np.tile(hard, hard.size)
    for first in range(0, x.size, lanes):
        places = np.arange(first, first + lanes) % x.size
        yield x[places], y[places]


def flags(count: int, seed: int = 1) -> np.ndarray:
    """A mask as bytes."""
    return np.random.default_rng(seed).integers(0, 2, count).astype(np.uint8)


def unaligned(x: np.ndarray, gap: int = 1) -> np.ndarray:
    """A copy of x that starts `gap` bytes into a buffer."""
    memory = np.zeros(x.nbytes + gap, np.uint8)
    memory[gap:] = x.view(np.uint8)
    return memory


def same(got: np.ndarray, expected: np.ndarray) -> None:
    """Equal by bits."""
    assert got.tobytes() == expected.tobytes(), f"{got}\nfor\n{expected}"


@cache
def memory_operations(name: str, lanes: int):
    """One compiled function for what touches memory; `what` chooses the operation."""
    element, number = getattr(types, name), np.dtype(name).type
    size = np.dtype(name).itemsize

    @njit(f"void(int64, int64, int64, int64, int64, int64, {name})")
    def run(what, x, mask, out, offsets, distance, scalar):
        is_set = load(mask, types.uint8, lanes) != splat(np.uint8(0), lanes)
        fill = splat(number(scalar), lanes)
        if what == 0:
            store(out, load(x, element, lanes))
        elif what == 1:
            store(out, load_masked(x, is_set, fill))
        elif what == 2:
            store_masked(out, load(x, element, lanes), is_set)
        elif what == 3:
            store(out, gather(x, distance, is_set, fill))
        elif what == 4:
            store(out, gather_at(x, load(offsets, types.int64, lanes), is_set, fill))
        elif what == 5:
            prefetch(x + distance)
            store(out, load_every(x, element, lanes, 1, size))
        elif what == 6:
            store(out, load_every(x, element, lanes, 2, 2 * size))
        elif what == 7:
            store(out, load_every(x, element, lanes, 4, 4 * size))
        else:
            store(out, load_every(x, element, lanes, 0, distance))

    return run


LOAD, LOAD_MASKED, STORE_MASKED, GATHER, GATHER_AT, EVERY = range(6)


def operate(
    what: int,
    lanes: int,
    x: np.ndarray,
    out: np.ndarray,
    mask: np.ndarray | None = None,
    offsets: np.ndarray | None = None,
    *,
    distance: int = 0,
    fill: float = 0,
) -> None:
    """Run one memory operation from the first byte of x to the first byte of out."""
    mask = np.ones(lanes, np.uint8) if mask is None else mask
    offsets = np.zeros(lanes, np.int64) if offsets is None else offsets
    name = out.dtype.name
    run = memory_operations(name, lanes)
    run(
        what, x.ctypes.data, mask.ctypes.data, out.ctypes.data, offsets.ctypes.data, distance, np.dtype(name).type(fill)
    )


@every_kind
@pytest.mark.parametrize("gap", [0, 1])
def test_load_and_store(name: str, lanes: int, gap: int) -> None:
    """Whole vectors come from and go to any byte, and no byte beside them changes."""
    x = values(name, lanes)
    out = np.full(x.nbytes + 16, 7, np.uint8)
    target = out[8 + gap : 8 + gap + x.nbytes]
    memory = unaligned(x, gap)
    run = memory_operations(name, lanes)
    ones = np.ones(lanes, np.uint8)
    run(LOAD, memory.ctypes.data + gap, ones.ctypes.data, target.ctypes.data, 0, 0, x.dtype.type(0))
    same(target, x)
    assert np.all(out[: 8 + gap] == 7)
    assert np.all(out[8 + gap + x.nbytes :] == 7)


@every_kind
def test_load_masked(name: str, lanes: int) -> None:
    """Where the mask is clear the fill stands, also at an odd address."""
    x, mask = values(name, lanes), flags(lanes)
    out = np.empty_like(x)
    operate(LOAD_MASKED, lanes, unaligned(x)[1:], out, mask, fill=3)
    same(out, np.where(mask != 0, x, x.dtype.type(3)))


@every_kind
def test_store_masked(name: str, lanes: int) -> None:
    """Where the mask is clear memory keeps what it had."""
    x, mask = values(name, lanes), flags(lanes)
    out = values(name, lanes, seed=2)
    expected = np.where(mask != 0, x, out)
    operate(STORE_MASKED, lanes, unaligned(x)[1:], out, mask)
    same(out, expected)


@every_kind
@pytest.mark.parametrize("apart", [1, 3, 5])
def test_gather(name: str, lanes: int, apart: int) -> None:
    """Elements any distance apart, forward or backward, and the fill where the mask is clear."""
    x, mask = values(name, lanes * apart), flags(lanes)
    out = np.empty(lanes, name)
    operate(GATHER, lanes, x, out, mask, distance=apart * x.itemsize, fill=2)
    same(out, np.where(mask != 0, x[::apart], x.dtype.type(2)))
    last = (lanes - 1) * apart
    operate(GATHER, lanes, x[last:], out, mask, distance=-apart * x.itemsize, fill=2)
    same(out, np.where(mask != 0, x[last::-apart], x.dtype.type(2)))


@every_kind
def test_gather_at(name: str, lanes: int) -> None:
    """Elements at a vector of distances in bytes, in any order and repeated."""
    x, mask = values(name, 4 * lanes), flags(lanes)
    places = np.random.default_rng(4).integers(0, x.size, lanes)
    out = np.empty(lanes, name)
    operate(GATHER_AT, lanes, x, out, mask, places * x.itemsize, fill=1)
    same(out, np.where(mask != 0, x[places], x.dtype.type(1)))


@every_kind
@pytest.mark.parametrize("step", STEPS)
def test_load_every(name: str, lanes: int, step: int) -> None:
    """Every element, every second, every fourth, or elements any distance apart, from any byte."""
    apart = step or 7
    x = values(name, lanes * apart)
    out = np.empty(lanes, name)
    operate(EVERY + STEPS.index(step), lanes, unaligned(x)[1:], out, distance=apart * x.itemsize)
    same(out, x[::apart])


@every_kind
def test_what_is_not_asked_for_is_not_touched(name: str, lanes: int) -> None:
    """Beside a protected page, loads end with their last element, and clear lanes and prefetches touch nothing."""
    half = lanes // 2
    mask = (np.arange(lanes) < half).astype(np.uint8)
    places = np.where(mask != 0, np.arange(lanes), 10**6) * np.dtype(name).itemsize
    before, after = (beside_guard(values(name, 4 * lanes), at_end=is_end) for is_end in (False, True))
    out, guarded_out = np.empty(lanes, name), beside_guard(np.empty(half, name), at_end=True)

    def all_of_them() -> None:
        operate(LOAD, lanes, before, out)
        operate(LOAD, lanes, after[-lanes:], out)
        operate(LOAD_MASKED, lanes, after[after.size - half :], out, mask)
        operate(GATHER, lanes, after[after.size - half :], out, mask, distance=after.itemsize)
        operate(GATHER_AT, lanes, after[after.size - half :], out, mask, places)
        operate(STORE_MASKED, lanes, before, guarded_out, mask)
        operate(EVERY, lanes, after[-lanes:], out, distance=after.nbytes)
        operate(EVERY + 1, lanes, after[-2 * lanes :], out)
        operate(EVERY + 2, lanes, after, out)
        operate(EVERY + 3, lanes, after[-3 * (lanes - 1) - 1 :], out, distance=3 * after.itemsize)

    assert survives(all_of_them)


def test_guards_end_the_process() -> None:
    """The protected page is real: reading one element beyond it does not come back."""
    x = beside_guard(values("int32", 8), at_end=True)
    operate(LOAD, 8, x, np.empty(8, np.int32))
    assert not survives(lambda: operate(LOAD, 8, x[1:], np.empty(8, np.int32)))


def test_address_of() -> None:
    """The address is that of the first element, also of a view."""
    where = njit(lambda array: address_of(array))
    x = np.arange(12, dtype=np.int32)
    assert where(x) == x.ctypes.data
    assert where(x[3:]) == x.ctypes.data + 12


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


@pytest.mark.parametrize("name", [name for name in INTEGERS if name != "uint8"])
def test_shifts_of_signed_integers_are_arithmetic(name: str) -> None:
    """The sign moves in from the left."""
    lanes = widths(name)[-1]
    x = values(name, lanes)
    counts = (np.arange(lanes) % (8 * x.itemsize)).astype(name)
    element = getattr(types, name)
    shift = njit("void(int64, int64, int64)")(
        lambda x, y, out: store(out, load(x, element, lanes) >> load(y, element, lanes))
    )
    out = np.empty_like(x)
    shift(x.ctypes.data, counts.ctypes.data, out.ctypes.data)
    np.testing.assert_array_equal(out, x >> counts)


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
        store(out + 5 * lanes, select(exceeds(a, b, 0), yes, no))
        store(out + 6 * lanes, select(exceeds(a, b, 1), yes, no))
        store(out + 7 * lanes, select((a > b) & ~(a >= b) | (a == b) ^ (a < b), yes, no))
        store(chosen, select(a > b, a, b))
        store(chosen + size, select(~(a > b), a, b))

    return run


def compared(name: str, lanes: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Pairs of vectors with what the comparisons and the selections give for them."""
    for x, y in pairs(name, lanes):
        out, chosen = np.empty((8, lanes), np.uint8), np.empty((2, lanes), name)
        comparisons(name, lanes)(x.ctypes.data, y.ctypes.data, out.ctypes.data, chosen.ctypes.data)
        yield x, y, out != 0, chosen


@every_kind
def test_comparisons(name: str, lanes: int) -> None:
    """Comparisons are NumPy's: signed or unsigned as the type, false for NaN but for !=."""
    for x, y, out, chosen in compared(name, lanes):
        for row, compare in enumerate(COMPARISONS):
            np.testing.assert_array_equal(out[row], compare(x, y), err_msg=compare.__name__)
        np.testing.assert_array_equal(out[7], (x == y) ^ (x < y))
        same(chosen[0], np.where(x > y, x, y))
        same(chosen[1], np.where(x > y, y, x))


@every_kind
def test_exceeds(name: str, lanes: int) -> None:
    """NaN beats numbers, the first of equals stays; of two NaN the first stays, or with `last` the second wins."""
    for x, y, out, _ in compared(name, lanes):
        np.testing.assert_array_equal(out[5], (x > y) | (x != x) & (y == y))
        np.testing.assert_array_equal(out[6], (x > y) | (x != x))


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


def test_vector_types_are_told_apart() -> None:
    """Element and lanes make the type; two of one kind are one type."""
    assert Vector(types.int32, 8) == Vector(types.int32, 8)
    assert Vector(types.int32, 8) != Vector(types.int32, 4)
    assert Vector(types.int32, 8) != Vector(types.uint8, 8)
    assert (Vector(types.float64, 4).suffix, Vector(types.boolean, 4).suffix) == ("v4f64", "v4i1")
