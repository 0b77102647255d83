"""The largest tile whose run fits into some memory."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from unpool.allowance import at_hand, taken
from unpool.errors import ShapeError
from unpool.runtime.tiles.grid import balanced
from unpool.runtime.tiles.tiler import Tiler
from unpool.runtime.tiles.tiling import Tiling
from unpool.runtime.tiles.walk import Shape

SHARE = 0.5
"""Of the memory that is free, what a run may take unless the caller says how much."""

WHOLE = 2**40
"""A size that no image has."""


TOLERANCE = 0.25
"""By what share of a forecast a run may take more."""


class Fitted(NamedTuple):
    """A tiling, a forecast of the bytes that a run of one of its tiles takes, and the size of its cells."""

    tiling: Tiling
    bytes: int
    tile: tuple[int, ...]


def fitted(
    tiler: Tiler, shapes: Mapping[str, Shape], most: int | None, beside: Callable[[Tiling], int] | None = None
) -> Fitted:
    """The tiling with the largest tiles that fit: the whole image, or else cells about as long on all axes.

    All tiles read parts of one shape: what runners take for the first one serves all.

    Args:
        tiler: of the session.
        shapes: of all inputs that are fed.
        most: bytes that the process may have, with the inputs that it holds and the outputs of the whole image; by
            default it may take half of what is free.
        beside: bytes that are held beside a tile; by default the outputs of the whole image.

    Raises:
        ShapeError: even the smallest tile takes more.
        UnsupportedError: the graph cannot be tiled exactly.
    """
    strides = tiler.strides(shapes)
    held = tiler.output_bytes if beside is None else beside
    whole = _cut(tiler, shapes, [WHOLE] * len(strides))
    budget = int(at_hand() * SHARE) if most is None else most - taken()
    if _most(whole, held) <= budget:
        return whole
    sizes = [axis.size for axis in whole.tiling.axes]
    unit = max(strides)
    low, high, best = 1, max(sizes) // unit, None
    while low <= high:
        middle = (low + high) // 2
        found = _cut(tiler, shapes, [middle * unit] * len(sizes))
        if _most(found, held) <= budget:
            low, best = middle + 1, found
        else:
            high = middle - 1
    if best is None:
        smallest = _cut(tiler, shapes, [unit] * len(sizes))
        raise ShapeError(
            f"tiles: expected memory for {_mib(_most(smallest, held))} of a tile and of what is held beside it, "
            f"got {_mib(max(0, budget))} more than the process has. Allow more."
        )
    return _cut(tiler, shapes, [balanced(*axis) for axis in zip(sizes, best.tile, strides, strict=True)])


def _cut(tiler: Tiler, shapes: Mapping[str, Shape], tile: Sequence[int]) -> Fitted:
    tiling = tiler.tiling(shapes, tile, is_even=True)
    return Fitted(tiling, tiler.run_bytes(shapes, tiling.largest()), tuple(tile))


def _most(found: Fitted, held: Callable[[Tiling], int]) -> int:
    """Bytes that a run takes at most, with all that is held beside a tile."""
    return int(found.bytes * (1 + TOLERANCE)) + held(found.tiling)


def _mib(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"
