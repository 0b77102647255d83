"""Every operation of the vector language that touches memory, beside memory that nobody may touch."""

from functools import cache

import numpy as np
import pytest
from numba import njit, types

from tests.cases.vectors import every_kind, same, values
from tests.support.guarded import beside_guard, survives
from unpool.kernels.cpu.vector import (
    address_of,
    fence,
    gather,
    gather_at,
    load,
    load_every,
    load_masked,
    load_rows,
    load_taps,
    prefetch,
    splat,
    splat_rows,
    store,
    store_masked,
    store_nontemporal,
    store_rows,
)

STEPS = (1, 2, 4, 0)


def flags(count: int, seed: int = 1) -> np.ndarray:
    """A mask as bytes."""
    return np.random.default_rng(seed).integers(0, 2, count).astype(np.uint8)


def unaligned(x: np.ndarray, gap: int = 1) -> np.ndarray:
    """A copy of x that starts `gap` bytes into a buffer."""
    memory = np.zeros(x.nbytes + gap, np.uint8)
    memory[gap:] = x.view(np.uint8)
    return memory


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


@pytest.mark.sample(7)
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


@pytest.mark.sample(3)
@every_kind
def test_load_masked(name: str, lanes: int) -> None:
    """Where the mask is clear the fill stands, also at an odd address."""
    x, mask = values(name, lanes), flags(lanes)
    out = np.empty_like(x)
    operate(LOAD_MASKED, lanes, unaligned(x)[1:], out, mask, fill=3)
    same(out, np.where(mask != 0, x, x.dtype.type(3)))


@pytest.mark.sample(3)
@every_kind
def test_store_masked(name: str, lanes: int) -> None:
    """Where the mask is clear memory keeps what it had."""
    x, mask = values(name, lanes), flags(lanes)
    out = values(name, lanes, seed=2)
    expected = np.where(mask != 0, x, out)
    operate(STORE_MASKED, lanes, unaligned(x)[1:], out, mask)
    same(out, expected)


@pytest.mark.parametrize("name", ["int16", "float32", "int64"])
@pytest.mark.parametrize("count", [1, 2])
def test_store_past_cache(name: str, count: int) -> None:
    """One or two whole lines arrive, and none beside them."""
    lanes, element = 64 * count // np.dtype(name).itemsize, getattr(types, name)

    @njit("void(int64, int64)")
    def run(x, out):
        store_nontemporal(out, load(x, element, lanes))
        fence()

    x, out = values(name, lanes), np.full(64 * 5, 7, np.uint8)
    out = out[-out.ctypes.data % 64 :][: 64 * 4]
    run(x.ctypes.data, out.ctypes.data + 64)
    same(out[64 : 64 + x.nbytes].view(name), x)
    assert np.all(out[:64] == 7)
    assert np.all(out[64 + x.nbytes :] == 7)


@pytest.mark.sample(11)
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


@pytest.mark.sample(3)
@every_kind
def test_gather_at(name: str, lanes: int) -> None:
    """Elements at a vector of distances in bytes, in any order and repeated."""
    x, mask = values(name, 4 * lanes), flags(lanes)
    places = np.random.default_rng(4).integers(0, x.size, lanes)
    out = np.empty(lanes, name)
    operate(GATHER_AT, lanes, x, out, mask, places * x.itemsize, fill=1)
    same(out, np.where(mask != 0, x[places], x.dtype.type(1)))


@pytest.mark.sample(11)
@every_kind
@pytest.mark.parametrize("step", STEPS)
def test_load_every(name: str, lanes: int, step: int) -> None:
    """Every element, every second, every fourth, or elements any distance apart, from any byte."""
    apart = step or 7
    x = values(name, lanes * apart)
    out = np.empty(lanes, name)
    operate(EVERY + STEPS.index(step), lanes, unaligned(x)[1:], out, distance=apart * x.itemsize)
    same(out, x[::apart])


@pytest.mark.sample(11)
@every_kind
@pytest.mark.parametrize("step", [1, 2, 4])
def test_load_taps(name: str, lanes: int, step: int) -> None:
    """Tap t of every tile, in the order of the taps, from any byte, and nothing behind the last tile."""
    element, size = getattr(types, name), lanes * np.dtype(name).itemsize

    @njit("void(int64, int64)")
    def run(x, out):
        taps = load_taps(x, element, lanes, step)
        for tap in range(step):
            store(out + tap * size, taps[tap])

    x, out = values(name, lanes * step), np.empty((step, lanes), name)
    run(unaligned(x)[1:].ctypes.data, out.ctypes.data)
    same(out, x.reshape(lanes, step).T)
    guarded = beside_guard(x, at_end=True)
    assert survives(lambda: run(guarded.ctypes.data, out.ctypes.data))


@pytest.mark.sample(3)
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


@pytest.mark.sample(3)
@every_kind
def test_rows(name: str, lanes: int) -> None:
    """Four rows are read and written at their distance, and four numbers fill a row each; nothing else is written."""
    element, size = getattr(types, name), np.dtype(name).itemsize
    apart, x = lanes + 3, values(name, 4 * (lanes + 3))

    @njit("void(int64, int64, int64)")
    def run(x, out, each):
        store_rows(out, apart * size, load_rows(x, apart * size, element, lanes, 4), 4)
        store(each, splat_rows(x, element, lanes, 4))

    out, each = np.zeros_like(x), np.empty(4 * lanes, name)
    run(x.ctypes.data, out.ctypes.data, each.ctypes.data)
    expected = x.reshape(4, apart).copy()
    expected[:, lanes:] = 0
    same(out, expected.reshape(-1))
    same(each, np.repeat(x[:4], lanes))


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
