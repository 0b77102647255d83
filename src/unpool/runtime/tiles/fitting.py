"""The largest tile whose run fits into some memory."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from unpool.errors import ShapeError
from unpool.memory_limits import available, rss
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
    used = rss()
    budget = int(available() * SHARE) if most is None else most - used
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
        needed = least_bytes(tiler, shapes, beside)
        limit = used + max(0, budget) if most is None else most
        raise ShapeError(f"tiles: {too_small('max_memory', limit, used, needed)}")
    return _cut(tiler, shapes, [balanced(*axis) for axis in zip(sizes, best.tile, strides, strict=True)])


def least_bytes(tiler: Tiler, shapes: Mapping[str, Shape], beside: Callable[[Tiling], int] | None = None) -> int:
    """Bytes that a run in the smallest tiles takes beside what the process has; arguments as those of `fitted`.

    Raises:
        UnsupportedError: the graph cannot be tiled exactly.
    """
    strides = tiler.strides(shapes)
    smallest = _cut(tiler, shapes, [max(strides)] * len(strides))
    whole = _cut(tiler, shapes, [WHOLE] * len(strides))
    held = tiler.output_bytes if beside is None else beside
    return min(_most(smallest, held), _most(whole, held))


def too_small(limit: str, most: int, used: int, needed: int) -> str:
    """The sentence about a limit of memory that a run cannot keep.

    Args:
        limit: its name.
        most: bytes that it allows.
        used: bytes that the process has already.
        needed: bytes that the run takes beside them.

    >>> too_small("--max-memory", 700 << 20, 600 << 20, 569 << 20)
    '--max-memory 700 MiB is too small: this run needs at least about 1.2 GiB (569 MiB more than is used already).'
    """
    least = used + needed
    rounded = f"{ceil(least / 2**20 / 10) * 10} MiB" if least < 2**30 else f"{ceil(least / 2**30 * 10) / 10} GiB"
    return (
        f"{limit} {_mib(most)} is too small: this run needs at least about {rounded} "
        f"({_mib(needed)} more than is used already)."
    )


def _cut(tiler: Tiler, shapes: Mapping[str, Shape], tile: Sequence[int]) -> Fitted:
    tiling = tiler.tiling(shapes, tile, is_even=True)
    return Fitted(tiling, tiler.run_bytes(shapes, tiling.largest()), tuple(tile))


def _most(found: Fitted, held: Callable[[Tiling], int]) -> int:
    """Bytes that a run takes at most, with all that is held beside a tile."""
    return int(found.bytes * (1 + TOLERANCE)) + held(found.tiling)


def _mib(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"
