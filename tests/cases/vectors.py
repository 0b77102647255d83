"""Element types, lane counts and values that the tests of the vector language share."""

from collections.abc import Iterator

import numpy as np
import pytest

from unpool.kernels.cpu.machine.host import vector_bytes

INTEGERS = ("int8", "uint8", "int16", "int32", "int64")
FLOATS = ("float32", "float64")


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


def same(got: np.ndarray, expected: np.ndarray) -> None:
    """Equal by bits."""
    assert got.tobytes() == expected.tobytes(), f"{got}\nfor\n{expected}"
