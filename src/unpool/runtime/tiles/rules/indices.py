"""Indices between a MaxPool and a MaxUnpool: torch counts inside a plane, so its exporters write Mod, and then Add.

The proof: an index is plane * size + place, of a plane of `size` elements, so Mod by `size` gives the place, and Add of
plane * size gives the index back, in a tile with the size of its own planes.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx

from unpool.geometry import shrinking_walk
from unpool.operators.max_pool import MaxPoolCall
from unpool.runtime.tiles.walk import Walk, refusal


@dataclass(frozen=True)
class PoolIndices:
    """Indices that a MaxPool found; with `is_plane` they count inside their plane, otherwise in the whole tensor."""

    call: MaxPoolCall
    is_plane: bool = False

    @property
    def plane(self) -> int:
        """Elements of a plane of what was pooled."""
        return prod(self.call.large.spatial)


def counted_anew(walk: Walk, node: onnx.NodeProto) -> None:
    """Mod and Add of indices: place = index mod size, index = place + plane * size, for planes of `size` elements.

    Raises:
        UnsupportedError: it does anything else with indices.
    """
    name = next(name for name in node.input if name in walk.pools)
    found: PoolIndices = walk.pools[name]
    others = [walk.known(other) for other in node.input if other != name]
    number = others[0] if len(others) == 1 else None
    if node.op_type == "Mod" and number is not None and _takes_offsets(found, number) and node.input[0] == name:
        made = PoolIndices(found.call, is_plane=True)
    elif node.op_type == "Add" and number is not None and found.is_plane and _adds_offsets(found, number):
        made = PoolIndices(found.call)
    else:
        raise refusal(node, "computes with indices, which count from the corner of a tile")
    walk.put(node, node.output[0], walk.fields[name], {name: {}})
    walk.pools[node.output[0]] = made


def _takes_offsets(found: PoolIndices, divisor: np.ndarray[Any, Any]) -> bool:
    """Whether the remainder is the index inside a plane; that of -1, of a window without data, would be none."""
    never_empty = all((shrinking_walk(axis).count > 0).all() for axis in found.call.axes)
    return never_empty and divisor.size == 1 and int(divisor.reshape(-1)[0]) == found.plane


def _adds_offsets(found: PoolIndices, offsets: np.ndarray[Any, Any]) -> bool:
    """Whether every plane gets its own offset in the tensor that was pooled."""
    large = found.call.large
    shape = (large.batch, large.channels, *(1,) * len(large.spatial))
    expected = np.arange(large.batch * large.channels).reshape(shape) * found.plane
    return offsets.ndim == len(shape) and np.array_equal(np.broadcast_to(offsets, shape), expected)
