"""The running maximum of the kernels that walk whole windows, tap by tap: one comparison, for every lane of a block."""

from typing import Any, NamedTuple

import numpy as np
from numba import types

from unpool.kernels.cpu.vector import select, splat
from unpool.kernels.cpu.vector.by_type import by_type
from unpool.kernels.cpu.vector.order import beats, follow, order


class Best(NamedTuple):
    """The largest elements so far, a vector of each.

    Attributes:
        value: elements as they are stored.
        key: what they are compared by, see `order`.
        place: where they were found, counted from the first tap of their window on.
    """

    value: Any
    key: Any
    place: Any


@by_type(inline=True)
def take(best, value, place, limit, nan, is_data):
    """The maximum after one more tap.

    Args:
        best: before it.
        value: elements of the tap.
        place: of the tap, the same in every lane.
        limit: infinity, as elements are stored.
        nan: FIRST or LAST, which NaN is a maximum; the literal IGNORED where NaN is only noticed.
        is_data: lanes whose tap is no padding: of these the first one is taken, however small. None where all are.
    """
    kind, lanes = best.types[best.fields.index("place")].element, value.lanes

    def compare(best, value, place, limit, nan, is_data):
        key = order(value, limit)
        wins = _on_data(beats(key, best.key, nan), best.place, is_data)
        key = select(wins, key, best.key)
        return Best(follow(wins, value, best.value, key), key, select(wins, splat(kind(place), lanes), best.place))

    return compare


@by_type(inline=True)
def _on_data(wins, place, is_data):
    """Lanes that win, if only data may; a lane without a place has met none yet."""
    if isinstance(is_data, types.NoneType):
        return lambda wins, place, is_data: wins
    nowhere, lanes = np.dtype(str(place.element)).type(-1), place.lanes
    return lambda wins, place, is_data: is_data & (wins | (place == splat(nowhere, lanes)))


def place_type(element: str, *, is_wide: bool):
    """The Numba integer that counts places from the first tap of a window on, beside elements of a type."""
    return types.int64 if is_wide else getattr(types, f"int{_place_bits(np.dtype(element).itemsize)}")


def is_wide(count: int, size: int) -> bool:
    """Whether so many places need more bits than usual beside elements of so many bytes."""
    return count >= 1 << (_place_bits(size) - 1)


def _place_bits(size: int) -> int:
    """As many of 16 bits fit a register as 16-bit elements do."""
    return 16 if size == 2 else 32
