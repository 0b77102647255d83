"""The largest tile whose run fits into some memory."""

from collections.abc import Mapping
from typing import NamedTuple

from unpool.allowance import at_hand, taken
from unpool.errors import ShapeError
from unpool.runtime.tiles.tiler import Tiler
from unpool.runtime.tiles.tiling import Tiling
from unpool.runtime.tiles.walk import Shape

SHARE = 0.5
"""Of the memory that is free, what a run may take unless the caller says how much."""


class Fitted(NamedTuple):
    """A tiling, and how many bytes a run of one of its tiles takes, as far as that can be foretold."""

    tiling: Tiling
    bytes: int


def fitted(tiler: Tiler, shapes: Mapping[str, Shape], most: int | None) -> Fitted:
    """The tiling with the largest tiles that fit: the whole image, or else cells that are equally long on all axes.

    Args:
        tiler: of the session.
        shapes: of all inputs that are fed.
        most: bytes that the process may have, with the inputs that it holds and the outputs of the whole image; by
            default it may take half of what is free.

    Raises:
        ShapeError: even the smallest tile takes more.
        UnsupportedError: the graph cannot be tiled exactly.
    """
    strides = tiler.strides(shapes)
    whole = _cut(tiler, shapes, [2**40] * len(strides))
    outputs = tiler.output_bytes(whole.tiling)
    budget = int(at_hand() * SHARE) if most is None else most - taken()
    if whole.bytes + outputs <= budget:
        return whole
    sizes = [axis.size for axis in whole.tiling.axes]
    unit = max(strides)
    low, high, best = 1, max(sizes) // unit, None
    while low <= high:
        middle = (low + high) // 2
        found = _cut(tiler, shapes, [middle * unit] * len(sizes))
        if found.bytes + outputs <= budget:
            low, best = middle + 1, found
        else:
            high = middle - 1
    if best is None:
        smallest = _cut(tiler, shapes, [unit] * len(sizes))
        raise ShapeError(
            f"tiles: expected memory for {_mib(smallest.bytes)} of a tile and {_mib(outputs)} of outputs, "
            f"got {_mib(max(0, budget))} beside what the process has. Allow more."
        )
    return best


def _cut(tiler: Tiler, shapes: Mapping[str, Shape], tile: list[int]) -> Fitted:
    tiling = tiler.tiling(shapes, tile)
    return Fitted(tiling, tiler.run_bytes(shapes, tiling.largest()))


def _mib(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"
