"""Random inputs, and indices that count in the whole tensor."""

from collections.abc import Sequence

import numpy as np

import unpool
from benchmarks.case import Case


def random_values(case: Case, rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    """Normal numbers, or for integers all that the type has, in the type of the case."""
    if case.numpy_type.kind in "iu":
        return rng.integers(0, 256, shape).astype(case.numpy_type)
    return rng.standard_normal(shape, np.float32).astype(case.numpy_type, copy=False)


def whole_tensor(places: np.ndarray, spatial: Sequence[int]) -> np.ndarray:
    """Indices that count inside their own plane as indices into the whole tensor."""
    found: np.ndarray = unpool.to_onnx_indices(np.ascontiguousarray(places), spatial)
    return found
