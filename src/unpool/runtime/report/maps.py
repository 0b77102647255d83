"""Feature maps before and after a pooling or an unpooling, with the positions that were chosen."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from unpool import functional
from unpool.dtypes import AnyArray
from unpool.operators.resolve import Spec
from unpool.runtime.backends.build import FUSED_UNPOOL
from unpool.runtime.graph.nodes import attributes, domain, node_name
from unpool.runtime.graph.semantics import Semantics, spec_of
from unpool.runtime.report.pictures import Area, close_up, whole
from unpool.runtime.session.executor import StepTrace
from unpool.runtime.session.inspect import PreparedGraph

POOLS = ("MaxPool", "MaxUnpool")
NEAR = 20
"""Elements along the side of a close-up at most."""


@dataclass(frozen=True)
class FeatureMap:
    """One plane of a value.

    Attributes:
        name: of the value.
        shape: of the whole value.
        low: its smallest finite element, in this plane.
        high: its largest one.
        area: what the close-up shows.
        whole: the plane, as a data URI.
        near: the close-up, as a data URI.
        marked: chosen positions in the whole plane; None where none can be: this is the small side.
    """

    name: str
    shape: tuple[int, ...]
    low: float
    high: float
    area: Area
    whole: str
    near: str
    marked: int | None


@dataclass(frozen=True)
class MapPair:
    """What a pooling or an unpooling read and made.

    Attributes:
        node: its name.
        operator: "MaxPool" or "MaxUnpool".
        channel: that is shown, of the first image: the one whose small side varies most.
        depth: the position along the axes before the last two, which is shown of volumes.
        before: what it read.
        after: what it made.
    """

    node: str
    operator: str
    channel: int
    depth: tuple[int, ...]
    before: FeatureMap
    after: FeatureMap


def map_pair(ran: StepTrace, prepared: PreparedGraph, constants: Mapping[str, AnyArray]) -> MapPair | None:
    """The feature maps of a step that has run; None where it is no pooling, or nothing of it can be drawn.

    Args:
        ran: the step.
        prepared: the graph of the plan.
        constants: that the node reads, as arrays.
    """
    node = prepared.graph.nodes[ran.entry.step.nodes[0]]
    is_drawn = ran.entry.step.runner == "unpool" and node.op_type in POOLS and domain(node) == ""
    values = {**constants, **ran.inputs, **ran.outputs}
    x, y = values.get(node.input[0]), values.get(node.output[0])
    if not is_drawn or x is None or y is None or x.ndim < 3 or not (x.size and y.size):
        return None
    is_pool = node.op_type == "MaxPool"
    small = y if is_pool else x
    channel = int(np.argmax(np.nan_to_num(small[0].astype(np.float64)).reshape(small.shape[1], -1).std(axis=1)))
    chosen = (
        _chosen(node, x, channel, prepared.semantics.compat) if is_pool else _written(node, values, prepared, channel)
    )
    large = x if is_pool else y
    depth = tuple(size // 2 for size in large.shape[2:-2])
    sides = {
        "large": _Side(node.input[0] if is_pool else node.output[0], large, _plane(large[0, channel], depth)),
        "small": _Side(
            node.output[0] if is_pool else node.input[0], small, _plane(small[0, channel], _scaled(depth, large, small))
        ),
    }
    area = _area(sides["large"].plane, sides["small"].plane)
    shown = {
        "large": _feature_map(sides["large"], area, _plane(chosen, depth)),
        "small": _feature_map(sides["small"], _shrunk(area, sides["large"].plane, sides["small"].plane), None),
    }
    before, after = ("large", "small") if is_pool else ("small", "large")
    return MapPair(node_name(node), node.op_type, channel, depth, shown[before], shown[after])


@dataclass(frozen=True)
class _Side:
    name: str
    array: AnyArray
    plane: AnyArray


def _feature_map(side: _Side, area: Area, marks: NDArray[np.bool_] | None) -> FeatureMap:
    finite = side.plane[np.isfinite(side.plane.astype(np.float64))].astype(np.float64)
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    count = None if marks is None else int(np.count_nonzero(marks))
    near = close_up(side.plane, area, marks)
    return FeatureMap(side.name, side.array.shape, low, high, area, whole(side.plane, area), near, count)


def _chosen(node: onnx.NodeProto, x: AnyArray, channel: int, compat: str) -> NDArray[np.bool_]:
    """Where the maxima of one channel of the first image are."""
    given = {name: value for name, value in attributes(node).items() if name != "storage_order"}
    plane = np.ascontiguousarray(x[:1, channel : channel + 1])
    _, indices = functional.max_pool(plane, **given, return_indices=True, compat=compat)
    marks = np.zeros(plane.size, bool)
    marks[indices[indices >= 0]] = True
    return marks.reshape(plane.shape[2:])


def _written(
    node: onnx.NodeProto, values: Mapping[str, Any], prepared: PreparedGraph, channel: int
) -> NDArray[np.bool_]:
    """Where one channel of the first image was written to."""
    inputs = [values.get(name) for name in node.input]
    ones = np.ones_like(inputs[0])
    (made,) = functional.run(_spec(node, prepared), [ones, *inputs[1:]])
    written: NDArray[np.bool_] = np.asarray(made)[0, channel] != 0
    return written


def _spec(node: onnx.NodeProto, prepared: PreparedGraph) -> Spec:
    semantics: Semantics = FUSED_UNPOOL if node.output[0] in prepared.graph.raised else prepared.semantics
    return spec_of(node, prepared.graph.opsets, semantics)


def _plane(block: AnyArray, depth: tuple[int, ...]) -> AnyArray:
    """Two axes of what has one or more: a single one becomes a row."""
    return block[None] if block.ndim == 1 else block[depth]


def _scaled(depth: tuple[int, ...], large: AnyArray, small: AnyArray) -> tuple[int, ...]:
    pairs = zip(depth, large.shape[2:-2], small.shape[2:-2], strict=True)
    return tuple(min(place * less // more, less - 1) for place, more, less in pairs)


def _area(large: AnyArray, small: AnyArray) -> Area:
    """The part of the large plane around its largest element, which begins where an element of the small one does."""
    largest = np.unravel_index(int(np.argmax(np.nan_to_num(large.astype(np.float64)))), large.shape)
    begin, size = [], []
    for place, more, less in zip(largest, large.shape, small.shape, strict=True):
        part, step = min(NEAR, more), max(1, round(more / less))
        start = int(np.clip(place - part // 2, 0, more - part))
        begin.append(start - start % step)
        size.append(part)
    return Area((begin[0], begin[1]), (size[0], size[1]))


def _shrunk(area: Area, large: AnyArray, small: AnyArray) -> Area:
    """The part of the small plane that belongs to a part of the large one, as far as sizes say it."""
    begin, size = [], []
    for start, part, more, less in zip(area.begin, area.size, large.shape, small.shape, strict=True):
        first = min(start * less // more, less - 1)
        begin.append(first)
        size.append(max(1, min(-(-(start + part) * less // more), less) - first))
    return Area((begin[0], begin[1]), (size[0], size[1]))
