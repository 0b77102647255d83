"""The caller's dask arrays: checked, brought into the order (N, C, D1..Dk), and given back in that of the caller."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import dask.array as da
import numpy as np

from unpool.dask.cuts import Cut
from unpool.errors import ShapeError, UnpoolError


def known(x: Any, name: str) -> Any:
    """A dask array whose sizes are known.

    Raises:
        UnpoolError: another kind of array.
        ShapeError: the sizes of its chunks are only known when they are computed.
    """
    if not isinstance(x, da.Array):
        raise UnpoolError(f"{name}: expected a dask array, got {type(x).__name__}. Use dask.array.from_array(...).")
    if math.isnan(math.prod(x.shape)):
        raise ShapeError(
            f"{name}: expected chunks of known sizes, got shape {x.shape}. Call its compute_chunk_sizes() first."
        )
    return x


def channels_first(x: Any, layout: str) -> Any:
    """(N, C, D1..Dk)."""
    return da.moveaxis(x, -1, 1) if layout == "NHWC" else x


def in_layout(y: Any, layout: str) -> Any:
    """The layout of the caller."""
    return da.moveaxis(y, 1, -1) if layout == "NHWC" else y


def by_block(
    function: Callable[..., Any], arrays: Sequence[Any], chunks: Sequence[Sequence[int]], dtype: Any, **words: Any
) -> Any:
    """An array each of whose chunks is what a function gives for the chunks of `arrays` with the same number.

    Args:
        function: of the chunks, of `block_id` and of `words`; tasks have its name.
        arrays: with as many chunks as there shall be; those without axes go to every call.
        chunks: sizes of the chunks that are made.
        dtype: of what is made; `object` for other things than arrays, which must be taken apart before they are seen.
        words: the same for all chunks.
    """
    return da.map_blocks(
        function,
        *arrays,
        chunks=tuple(map(tuple, chunks)),
        dtype=dtype,
        meta=np.empty((0,) * len(chunks), dtype),
        token=f"unpool.{function.__name__}",
        **words,
    )


def sizes(cuts: Sequence[Cut]) -> list[tuple[int, ...]]:
    """The chunks that cuts make."""
    return [cut.sizes for cut in cuts]
