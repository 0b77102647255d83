"""The running maximum of kernels that walk whole windows: the largest elements so far, and their places."""

from typing import Any, NamedTuple

import numpy as np

from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.max_pool.elements import key_is_larger, select_value, to_keys
from unpool.kernels.cpu.vector.registration import jit_inline, overload_by_type


class RunningMax(NamedTuple):
    """The largest elements so far, a vector of each."""

    value: Any  # elements as they are stored
    key: Any  # keys for comparisons, see `to_keys`
    place: Any  # their places, counted from the first tap of their window


@overload_by_type(inline=True)
def update_best(best, value, place, limit, nan, is_data):
    """The maximum after one more tap, at the same place in every lane.

    `limit` is infinity, as elements are stored; `nan` is FIRST, LAST or the literal IGNORED; `is_data` are the lanes
    whose tap is data, not padding, None where all are: the first such tap is always taken.
    """
    kind, lanes = best.types[best.fields.index("place")].element, value.lanes

    def compare(best, value, place, limit, nan, is_data):
        key = to_keys(value, limit)
        is_new = _on_data(key_is_larger(key, best.key, nan), best.place, is_data)
        key = vec.select(is_new, key, best.key)
        at = vec.select(is_new, vec.splat(kind(place), lanes), best.place)
        return RunningMax(select_value(is_new, value, best.value, key), key, at)

    return compare


@overload_by_type(inline=True)
def _on_data(is_new, place, is_data):
    """Lanes whose maximum changes, if only data may; a lane without a place has seen no data yet."""
    if isinstance(is_data, types.NoneType):
        return lambda is_new, place, is_data: is_new
    nowhere, lanes = np.dtype(str(place.element)).type(-1), place.lanes
    return lambda is_new, place, is_data: is_data & (is_new | (place == vec.splat(nowhere, lanes)))


def place_type(element: str, *, is_wide: bool):
    """The Numba integer for places counted from the first tap of a window, next to elements of a type."""
    return types.int64 if is_wide else getattr(types, f"int{_place_bits(np.dtype(element).itemsize)}")


@jit_inline
def is_wide(count: int, size: int) -> bool:
    """True if `count` places need more bits than usual, next to elements of `size` bytes."""
    return count >= 1 << (_place_bits(size) - 1)


@jit_inline
def _place_bits(size: int) -> int:
    return 16 if size == 2 else 32
