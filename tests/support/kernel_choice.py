"""Which pooling kernels the tests compile: all of float32, and of the other types half, in which every two of type,
stride and indices meet.
"""

from typing import Any

import ml_dtypes
import numpy as np

INDEXED_IF_STRIDED = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def is_chosen(kind: Any, stride: int, has_indices: bool) -> bool:
    """Whether a kernel is one of them; the stride is that along the lanes, 1 for channels last."""
    return np.dtype(kind) == np.float32 or has_indices == ((stride != 1) == (np.dtype(kind) in INDEXED_IF_STRIDED))
