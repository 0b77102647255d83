"""Arguments for a list of integers of a node: integers of any library, or one integer for all axes."""

import operator
from typing import Any

PLAIN = frozenset({type(None), int, float, bool, str})
"""Types whose values `marshal` tells apart by their bytes."""

_PER_AXIS = {"kernel_shape": 1, "strides": 1, "dilations": 1, "output_padding": 1, "output_shape": 1, "pads": 2}


def plain(value: Any) -> Any:
    """Lists, tuples and their kin as tuples, integers of any library as Python's; anything else as it is.

    >>> import numpy as np
    >>> plain(np.int32(2)), plain([np.uint8(2), 3]), plain([2.5, "x"])
    (2, (2, 3), (2.5, 'x'))
    """
    if type(value) in PLAIN:
        return value
    if isinstance(value, (list, tuple)):
        return tuple(map(_item, value))
    return _item(value)


def is_plain(value: Any) -> bool:
    """True if a value is of PLAIN, or a list or tuple of such."""
    if type(value) in (list, tuple):
        return all(type(each) in PLAIN for each in value)
    return type(value) in PLAIN


def listed(value: Any) -> Any:
    """An array of one axis as the list of its elements, where it can be read; anything else as it is."""
    try:
        return value.tolist() if getattr(value, "ndim", 0) == 1 else value
    except Exception:
        return value


def for_all_axes(name: str, value: Any, rank: int) -> Any:
    """One integer as the list that says the same of each of `rank` spatial axes, for attributes that are such lists.

    >>> for_all_axes("pads", 1, 2), for_all_axes("group", 1, 2)
    ((1, 1, 1, 1), 1)
    """
    return (value,) * (rank * _PER_AXIS[name]) if type(value) is int and name in _PER_AXIS else value


def _item(value: Any) -> Any:
    if type(value) in PLAIN or getattr(value, "ndim", 0) != 0:
        return value
    try:
        return operator.index(value)
    except Exception:
        return value
