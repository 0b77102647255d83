"""Element types, lane counts and values of vectors."""

import numpy as np

from unpool.kernels.cpu.machine.host import vector_bytes

FLOATS = ("float32", "float64")


def widths(name: str) -> tuple[int, ...]:
    """Lane counts: odd, half a register, one register, two registers."""
    register = vector_bytes() // np.dtype(name).itemsize
    return tuple(sorted({3, max(1, register // 2), register, 2 * register}))


def values(name: str, count: int, seed: int = 0) -> np.ndarray:
    """NaN, infinities, both zeros, and some numbers."""
    hard = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1, -1, 1.5, 2], name)
    return np.random.default_rng(seed).choice(hard, count)


def same(got: np.ndarray, expected: np.ndarray) -> None:
    assert got.tobytes() == expected.tobytes(), f"{got}\nfor\n{expected}"
