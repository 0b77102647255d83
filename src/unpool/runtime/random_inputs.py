"""Random tensors for inputs that nobody gave."""

from collections.abc import Sequence

import numpy as np

from unpool.dtypes import AnyArray
from unpool.errors import UnsupportedError
from unpool.runtime.shapes import dtype
from unpool.runtime.signature import ValueInfo
from unpool.runtime.type_names import parse


def random_array(info: ValueInfo, shape: Sequence[int], rng: np.random.Generator) -> AnyArray:
    """Normal numbers for floats, 0 to 255 for uint8, and 0 or 1 for other integers and booleans.

    Args:
        info: an input of a session.
        shape: sizes for its axes.
        rng: where the numbers come from.

    Raises:
        UnsupportedError: the input is no tensor of numbers.
    """
    kind = dtype(parse(info.type))
    if kind is None or kind == np.dtype(object):
        raise UnsupportedError(
            f"input {info.name!r}: expected a tensor of numbers, for which random ones can stand, got {info.type}. "
            "Give the input itself."
        )
    if kind.kind in "iub":
        return rng.integers(0, 256 if kind == np.uint8 else 2, shape).astype(kind)
    return rng.standard_normal(shape).astype(kind)
