"""The largest tile whose run fits into a memory limit."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from unpool.errors import ShapeError
from unpool.memory_limits import available, rss
from unpool.runtime.tiles.grid import balance_length
from unpool.runtime.tiles.tiler import Tiler
from unpool.runtime.tiles.tiling import Tiling
from unpool.runtime.tiles.walk import Shape

FREE_SHARE = 0.5
"""Default share of the free memory that a run may take."""

FORECAST_MARGIN = 0.25
"""Share by which a run may exceed its forecast."""

MAX_SIZE = 2**40
"""A size that no image exceeds."""


class TilingFit(NamedTuple):
    """A tiling, a forecast of the bytes that a run of one of its tiles takes, and the size of its cells."""

    tiling: Tiling
    bytes: int
    tile: tuple[int, ...]


def fit_tiling(
    tiler: Tiler,
    shapes: Mapping[str, Shape],
    max_memory: int | None,
    buffer_bytes: Callable[[Tiling], int] | None = None,
) -> TilingFit:
    """The tiling with the largest tiles that fit: the whole image, or else cells of about equal length on all axes.

    All tiles read parts of one shape, so that backends can use their memory of the first one for all.

    Args:
        tiler: of the session.
        shapes: of all inputs that are fed.
        max_memory: limit of the memory of the process in bytes, with the inputs in memory and the outputs of the whole
            image; by default the memory in use, and half of what is free.
        buffer_bytes: memory in addition to the run of a tile; by default the outputs of the whole image.

    Raises:
        ShapeError: even the smallest tile exceeds the limit.
        UnsupportedError: the graph cannot be tiled exactly.
    """
    strides = tiler.strides(shapes)
    buffers = tiler.output_bytes if buffer_bytes is None else buffer_bytes
    whole = _fit(tiler, shapes, [MAX_SIZE] * len(strides))
    used = rss()
    budget = int(available() * FREE_SHARE) if max_memory is None else max_memory - used
    if _peak_bytes(whole, buffers) <= budget:
        return whole
    sizes = [axis.size for axis in whole.tiling.axes]
    unit = max(strides)
    low, high, best = 1, max(sizes) // unit, None
    while low <= high:
        middle = (low + high) // 2
        candidate = _fit(tiler, shapes, [middle * unit] * len(sizes))
        if _peak_bytes(candidate, buffers) <= budget:
            low, best = middle + 1, candidate
        else:
            high = middle - 1
    if best is None:
        needed = least_bytes(tiler, shapes, buffer_bytes)
        limit = used + max(0, budget) if max_memory is None else max_memory
        raise ShapeError(f"tiles: {memory_limit_message('max_memory', limit, used, needed)}")
    return _fit(tiler, shapes, [balance_length(*axis) for axis in zip(sizes, best.tile, strides, strict=True)])


def least_bytes(tiler: Tiler, shapes: Mapping[str, Shape], buffer_bytes: Callable[[Tiling], int] | None = None) -> int:
    """Bytes that a run in the smallest tiles takes in addition to the process; arguments as for `fit_tiling`.

    Raises:
        UnsupportedError: the graph cannot be tiled exactly.
    """
    strides = tiler.strides(shapes)
    smallest = _fit(tiler, shapes, [max(strides)] * len(strides))
    whole = _fit(tiler, shapes, [MAX_SIZE] * len(strides))
    buffers = tiler.output_bytes if buffer_bytes is None else buffer_bytes
    return min(_peak_bytes(smallest, buffers), _peak_bytes(whole, buffers))


def memory_limit_message(limit: str, max_memory: int, used: int, needed: int) -> str:
    """The sentence about a memory limit that a run would exceed.

    Args:
        limit: its name.
        max_memory: its bytes.
        used: bytes that the process has in use.
        needed: bytes that the run takes in addition.

    >>> memory_limit_message("--max-memory", 700 << 20, 600 << 20, 569 << 20)
    '--max-memory 700 MiB is too small: this run needs at least about 1.2 GiB (569 MiB more than is used already).'
    """
    least = used + needed
    text = f"{ceil(least / 2**20 / 10) * 10} MiB" if least < 2**30 else f"{ceil(least / 2**30 * 10) / 10} GiB"
    return (
        f"{limit} {max_memory / 2**20:.0f} MiB is too small: this run needs at least about {text} "
        f"({needed / 2**20:.0f} MiB more than is used already)."
    )


def _fit(tiler: Tiler, shapes: Mapping[str, Shape], tile: Sequence[int]) -> TilingFit:
    tiling = tiler.tiling(shapes, tile, is_even=True)
    return TilingFit(tiling, tiler.run_bytes(shapes, tiling.max_input_shapes()), tuple(tile))


def _peak_bytes(fit: TilingFit, buffers: Callable[[Tiling], int]) -> int:
    """Maximum of the bytes that a run takes, with its buffers."""
    return int(fit.bytes * (1 + FORECAST_MARGIN)) + buffers(fit.tiling)
