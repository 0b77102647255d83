"""Finds out which MaxPool a value of indices comes from, and which tensor these indices count in.

A MaxPool counts in the whole (N, C, D1..Dk) tensor that it pools. PyTorch counts inside one (n, c) plane, so its
exporters take the offset of every plane away, and add that of the tensor that is scattered into:

    offset(n, c) = (n * C + c) * D1 * .. * Dk
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from unpool.geometry import pooling_walk
from unpool.operators import max_pool, resolve
from unpool.operators.max_pool import MaxPoolSpec
from unpool.runtime.graph import shapes
from unpool.runtime.graph.dynamic_dims import DimExpr, DimFlow, as_int, multiply, slice_bounds
from unpool.runtime.graph.nodes import attributes, domain, is_unpool_op
from unpool.runtime.graph.weights import array_of


@dataclass(frozen=True)
class Offsets:
    """A value that holds one offset per plane.

    Attributes:
        planes: how many planes there are, and so how many offsets.
        axes: the offsets vary over so many of the first axes, and over no other.
        step: how many elements a plane has; None if the only offset is 0.
        tensor: the value whose planes these are, if a MaxPool with a window of 1 counted them; else "".
    """

    planes: DimExpr | None
    axes: int
    step: DimExpr | None
    tensor: str = ""


@dataclass(frozen=True)
class Indices:
    """Origin of indices: their pool, and the tensor that they count in.

    Attributes:
        pool: the MaxPool that found them; None if only the offsets that were added to them are known.
        is_plane: whether they count inside a plane; if not, they count in a whole tensor.
        planes: how many planes that tensor has.
        step: how many elements one of its planes has.
        tensor: the name of that tensor, if it is the input of the pool; else "".
        is_whole: whether they are the pool's own indices, element for element; if they count inside a plane, whether
            they would be these once the offsets of the planes were added.
    """

    pool: onnx.NodeProto | None
    is_plane: bool
    planes: DimExpr | None
    step: DimExpr | None
    tensor: str = ""
    is_whole: bool = False


def trace(flow: DimFlow, name: str) -> Indices | None:
    """Origin of the indices in a value; None if it is not recognised."""
    name = flow.before_reshapes(name)
    node = flow.makers.get(name)
    if node is None:
        return None
    if is_unpool_op(node) and node.op_type == "MaxPool" and name in node.output[1:]:
        return _pooled(flow, node)
    rule = _RULES.get(node.op_type) if domain(node) == "" else None
    with flow.deeper() as is_near:
        return rule(flow, node) if rule is not None and is_near else None


def offsets(flow: DimFlow, name: str) -> Offsets | None:
    """Offsets of planes in a value; None if they are not recognised."""
    array = flow.constant(name)
    if array is None and name in flow.graph.constants:
        return None
    if array is not None:
        return _constant_offsets(array)
    return _sliced_offsets(flow, name) or _computed_offsets(flow, name)


def _pooled(flow: DimFlow, pool: onnx.NodeProto) -> Indices:
    known = flow.dims(pool.input[0]) or ()
    if pool.domain:
        known = (*known[:1], *known[-1:], *known[1:-1])
    rank = len(attributes(pool).get("kernel_shape", ()))
    if len(known) != rank + 2:
        return Indices(pool, False, None, None, pool.input[0], is_whole=True)
    return Indices(pool, False, multiply(known[:2]), multiply(known[2:]), pool.input[0], is_whole=True)


def _remainder(flow: DimFlow, node: onnx.NodeProto) -> Indices | None:
    return _in_plane(flow, node.input[0], node.input[1])


def _in_plane(flow: DimFlow, name: str, divisor: str) -> Indices | None:
    """The remainders of indices by a number; None unless that is the size of a plane."""
    source, size = trace(flow, name), flow.values(divisor)
    if source is None or source.step is None or size is None or len(size) != 1 or size[0] != source.step:
        return None
    return replace(source, is_plane=True, is_whole=source.is_whole and never_empty(flow, source.pool))


def _taken_away(flow: DimFlow, node: onnx.NodeProto) -> Indices | None:
    divisor = _divisor(flow, node)
    if divisor:
        return _in_plane(flow, node.input[0], divisor)
    source, taken = trace(flow, node.input[0]), offsets(flow, node.input[1])
    if source is None or taken is None or source.is_plane or not _belong(source, taken):
        return None
    if not _is_aligned(flow, node.input[0], node.input[1], taken):
        return None
    return replace(source, is_plane=True)


def _divisor(flow: DimFlow, node: onnx.NodeProto) -> str:
    """The d of a Sub that is x - x / d * d, as a Mod is written before opset 10; "" for any other Sub."""
    whole = flow.maker(node.input[1], "Mul")
    for quotient, divisor in () if whole is None else (whole.input, reversed(whole.input)):
        div = flow.maker(quotient, "Div")
        if div is not None and list(div.input) == [node.input[0], divisor]:
            return str(divisor)
    return ""


def _belong(source: Indices, taken: Offsets) -> bool:
    """True if the offsets are those of the planes of the tensor that the indices count in."""
    if taken.tensor and taken.tensor == source.tensor:
        return True
    has_planes = source.planes is not None and source.planes == taken.planes
    has_step = source.step is not None and source.step == taken.step
    return has_planes and (has_step or as_int(taken.planes) == 1)


def _added(flow: DimFlow, node: onnx.NodeProto) -> Indices | None:
    for name, other in (node.input, reversed(node.input)):
        put = offsets(flow, other)
        if put is not None:
            return _moved(trace(flow, name), put) if _is_aligned(flow, name, other, put) else None
    return None


def _is_aligned(flow: DimFlow, name: str, other: str, found: Offsets) -> bool:
    """True if indices and offsets are so shaped that each plane of the indices meets the offset of its own plane."""
    known = flow.dims(name)
    if known is None or flow.rank(other) != len(known) or found.planes is None:
        return False
    return multiply(known[: found.axes]) == found.planes


def _moved(source: Indices | None, put: Offsets) -> Indices | None:
    if source is None:
        return Indices(None, False, put.planes, put.step)
    if not source.is_plane:
        return None
    if _belong(source, put):
        return replace(source, is_plane=False)
    return replace(source, is_plane=False, step=put.step, planes=put.planes, tensor="", is_whole=False)


def _cast(flow: DimFlow, node: onnx.NodeProto) -> Indices | None:
    return trace(flow, node.input[0]) if attributes(node)["to"] == onnx.TensorProto.INT64 else None


_RULES: Mapping[str, Callable[[DimFlow, onnx.NodeProto], Indices | None]] = {
    "Add": _added,
    "Cast": _cast,
    "Mod": _remainder,
    "Sub": _taken_away,
}


def _constant_offsets(array: np.ndarray[Any, np.dtype[Any]]) -> Offsets | None:
    if array.dtype.kind != "i" or array.size == 0 or not _is_per_plane(array.shape):
        return None
    flat = array.reshape(-1)
    step = int(flat[1] - flat[0]) if flat.size > 1 else 0
    if not np.array_equal(flat, np.arange(flat.size) * step) or (flat.size > 1 and step < 1):
        return None
    return Offsets(DimExpr(flat.size), _axes(array.shape), DimExpr(step) if flat.size > 1 else None)


def _sliced_offsets(flow: DimFlow, name: str) -> Offsets | None:
    """Offsets that a Slice reads off the Indices of a MaxPool with a window of 1: the first index of every plane."""
    node = flow.maker(flow.before_reshapes(name), "Slice")
    pool = None if node is None else flow.maker(node.input[0], "MaxPool")
    if node is None or pool is None or not is_identity(pool) or node.input[0] not in pool.output[1:]:
        return None
    bounds = slice_bounds(flow, node)
    rank = len(attributes(pool)["kernel_shape"])
    axes = () if bounds is None else tuple(sorted(axis % (rank + 2) for axis in bounds.axes))
    if bounds is None or axes != tuple(range(2, rank + 2)):
        return None
    if set(bounds.starts) != {0} or set(bounds.ends) != {1} or set(bounds.steps) != {1}:
        return None
    source, known = _pooled(flow, pool), shapes.dims(flow.types.get(name)) or ()
    if name in node.output:
        return Offsets(source.planes, 2, source.step, pool.input[0])
    return Offsets(source.planes, _axes(known), source.step, pool.input[0]) if _is_per_plane(known) else None


def _computed_offsets(flow: DimFlow, name: str) -> Offsets | None:
    """Offsets that the graph computes: Range(0, planes) times the elements of a plane, reshaped before or after."""
    known = shapes.dims(flow.types.get(name))
    mul = flow.maker(flow.before_reshapes(name), "Mul")
    if mul is None or known is None or not _is_per_plane(known):
        return None
    for counted, factor in (mul.input, reversed(mul.input)):
        planes, step = _count(flow, counted), flow.values(factor)
        if planes is not None and step is not None and len(step) == 1:
            return Offsets(planes, _axes(known), step[0])
    return None


def _count(flow: DimFlow, name: str) -> DimExpr | None:
    """Number of planes that a value counts as 0, 1, 2 ..; None for any other value."""
    array = flow.constant(name)
    if array is not None:
        is_count = array.dtype.kind == "i" and np.array_equal(array.reshape(-1), np.arange(array.size))
        return DimExpr(array.size) if is_count and array.size else None
    places = flow.maker(flow.before_reshapes(name), "NonZero")
    if places is not None:
        return _count_of_ones(flow, places)
    span = flow.maker(flow.before_reshapes(name), "Range")
    if span is None:
        return None
    start, limit, delta = (flow.values(one) for one in span.input)
    is_count = start == (DimExpr(0),) and delta == (DimExpr(1),) and limit is not None and len(limit) == 1
    return limit[0] if is_count and limit is not None else None


def _count_of_ones(flow: DimFlow, node: onnx.NodeProto) -> DimExpr | None:
    """Number of elements of a vector of ones, whose NonZero stands for a Range before opset 11."""
    ones = flow.maker(node.input[0], "ConstantOfShape")
    fill = None if ones is None else attributes(ones).get("value")
    length = None if ones is None else flow.values(ones.input[0])
    has_ones = fill is not None and bool(array_of(fill).all())
    return length[0] if has_ones and length is not None and len(length) == 1 else None


def _is_per_plane(shape: tuple[object, ...]) -> bool:
    """True if a shape is that of one number per plane: nothing varies behind the first two axes."""
    return len(shape) > 2 and all(size == 1 for size in shape[2:])


def _axes(shape: tuple[object, ...]) -> int:
    """Number of axes up to the last that is not 1."""
    return max((axis + 1 for axis, size in enumerate(shape) if size != 1), default=0)


def never_empty(flow: DimFlow, pool: onnx.NodeProto | None) -> bool:
    """True if every window of a MaxPool meets an element, so that no index is -1."""
    if pool is None:
        return False
    where = domain(pool)
    spec = resolve.spec("MaxPool", attributes(pool), domain=where, opset=flow.graph.opsets[where])
    assert isinstance(spec, MaxPoolSpec)
    known = shapes.static_dims(flow.types.get(pool.input[0])) or (None,) * (len(spec.windows) + 2)
    spatial = known[1:-1] if spec.row.is_channels_last else known[2:]
    return all(_meets_data(spec, axis, size) for axis, size in enumerate(spatial))


def _meets_data(spec: MaxPoolSpec, axis: int, size: int | None) -> bool:
    if size is not None:
        return bool((pooling_walk(max_pool.axis(spec, axis, size)).count > 0).all())
    window, pads = spec.windows[axis], spec.pads[axis]
    if spec.padding != "NOTSET" or not any(pads):
        return window.dilation == 1 or spec.padding not in ("SAME_UPPER", "SAME_LOWER")
    return window.dilation == 1 and max(pads) < window.size and sum(pads) < window.size


def is_identity(pool: onnx.NodeProto) -> bool:
    """True if the values of a MaxPool are its input: windows and strides of 1, no padding."""
    given = attributes(pool)
    lists = [*given.get("kernel_shape", ()), *given.get("strides", ())]
    return all(one == 1 for one in lists) and not any(given.get("pads", ())) and not given.get("storage_order", 0)
