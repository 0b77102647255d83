"""Traces a value of indices to the MaxPool that found them, and to the tensor that they count in.

A MaxPool counts in the whole (N, C, D1..Dk) tensor that it pools. PyTorch counts inside one (n, c) plane, so its
exporters subtract the offset of every plane, and add the offset in the tensor that they scatter into:

    offset(n, c) = (n * C + c) * D1 * .. * Dk
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx

from unpool.dtypes import AnyArray
from unpool.geometry import pooling_walk
from unpool.graph import shapes
from unpool.graph.dynamic_dims import DimExpr, DimFlow, as_int, multiply, slice_bounds
from unpool.graph.nodes import attributes, domain, is_unpool_op
from unpool.graph.weights import array_of
from unpool.operators import max_pool, resolve
from unpool.operators.max_pool import MaxPoolSpec


@dataclass(frozen=True)
class Offsets:
    """A value that holds one offset per plane."""

    planes: DimExpr | None  # number of planes, and so of offsets
    axes: int  # number of first axes over which the offsets vary; they vary over no other
    step: DimExpr | None  # number of elements of a plane; None if the only offset is 0
    tensor: str = ""  # the value whose planes these are, if a MaxPool with a window of 1 counted them


@dataclass(frozen=True)
class Indices:
    """Origin of indices: their pool, and the tensor that they count in."""

    pool: onnx.NodeProto | None  # None if only the offsets that were added to the indices are known
    is_plane: bool  # they count inside a plane, and not in a whole tensor
    planes: DimExpr | None  # number of planes of that tensor
    step: DimExpr | None  # number of elements of one of its planes
    tensor: str = ""  # the name of that tensor, if it is the input of the pool
    is_whole: bool = False  # they are the pool's own, element for element, once the offsets of any planes are added


def trace(flow: DimFlow, name: str) -> Indices | None:
    """Origin of the indices in a value; None if it is not recognised."""
    name = flow.before_reshapes(name)
    node = flow.graph.maker(name)
    if node is None:
        return None
    if is_unpool_op(node) and node.op_type == "MaxPool" and name in node.output[1:]:
        return _of_pool(flow, node)
    rule = _RULES.get(node.op_type) if domain(node) == "" else None
    with flow.deeper() as is_near:
        return rule(flow, node) if rule is not None and is_near else None


def offsets(flow: DimFlow, name: str) -> Offsets | None:
    """Offsets of planes in a value; None if they are not recognised."""
    array = flow.constant(name)
    if array is not None:
        return _constant_offsets(array)
    if name in flow.graph.constants:
        return None
    return _sliced_offsets(flow, name) or _computed_offsets(flow, name)


def _of_pool(flow: DimFlow, pool: onnx.NodeProto) -> Indices:
    known = flow.dims(pool.input[0]) or ()
    if pool.domain:
        known = (*known[:1], *known[-1:], *known[1:-1])
    is_known = len(known) == len(attributes(pool).get("kernel_shape", ())) + 2
    planes, step = (multiply(known[:2]), multiply(known[2:])) if is_known else (None, None)
    return Indices(pool, False, planes, step, pool.input[0], is_whole=True)


def _in_plane(flow: DimFlow, name: str, divisor: str) -> Indices | None:
    """The remainders of indices by a number; None unless that is the size of a plane."""
    source = trace(flow, name)
    if source is None or source.step is None or flow.values(divisor) != (source.step,):
        return None
    return replace(source, is_plane=True, is_whole=source.is_whole and never_empty(flow, source.pool))


def _sub(flow: DimFlow, node: onnx.NodeProto) -> Indices | None:
    """A Sub of offsets; or one that is x - x / d * d, as a Mod is written before opset 10."""
    name, subtracted = node.input
    product = flow.maker(subtracted, "Mul")
    for quotient, divisor in () if product is None else (product.input, reversed(product.input)):
        div = flow.maker(quotient, "Div")
        if div is not None and list(div.input) == [name, divisor]:
            return _in_plane(flow, name, divisor)
    source, taken = trace(flow, name), offsets(flow, subtracted)
    if source is None or taken is None or source.is_plane or not _belong(source, taken):
        return None
    return replace(source, is_plane=True) if _is_aligned(flow, name, subtracted, taken) else None


def _belong(source: Indices, taken: Offsets) -> bool:
    """True if the offsets are the plane offsets of the tensor that the indices refer to."""
    if taken.tensor and taken.tensor == source.tensor:
        return True
    has_planes = source.planes is not None and source.planes == taken.planes
    has_step = source.step is not None and source.step == taken.step
    return has_planes and (has_step or as_int(taken.planes) == 1)


def _add(flow: DimFlow, node: onnx.NodeProto) -> Indices | None:
    for name, other in (node.input, reversed(node.input)):
        added = offsets(flow, other)
        if added is None:
            continue
        if not _is_aligned(flow, name, other, added):
            return None
        source = trace(flow, name)
        if source is None:
            return Indices(None, False, added.planes, added.step)
        if source.is_plane and not _belong(source, added):
            return Indices(source.pool, False, added.planes, added.step)
        return replace(source, is_plane=False) if source.is_plane else None
    return None


def _is_aligned(flow: DimFlow, name: str, other: str, plane_offsets: Offsets) -> bool:
    """True if the shapes of indices and offsets bring each plane of the indices to its own offset."""
    known = flow.dims(name)
    if known is None or flow.rank(other) != len(known) or plane_offsets.planes is None:
        return False
    return multiply(known[: plane_offsets.axes]) == plane_offsets.planes


_RULES: Mapping[str, Callable[[DimFlow, onnx.NodeProto], Indices | None]] = {
    "Add": _add,
    "Cast": lambda flow, node: trace(flow, node.input[0]) if attributes(node)["to"] == onnx.TensorProto.INT64 else None,
    "Mod": lambda flow, node: _in_plane(flow, *node.input),
    "Sub": _sub,
}


def _constant_offsets(array: AnyArray) -> Offsets | None:
    axes, flat = _plane_axes(array.shape), array.reshape(-1)
    if array.dtype.kind != "i" or array.size == 0 or axes is None:
        return None
    step = int(flat[1] - flat[0]) if flat.size > 1 else 0
    if not np.array_equal(flat, np.arange(flat.size) * step) or (flat.size > 1 and step < 1):
        return None
    return Offsets(DimExpr(flat.size), axes, DimExpr(step) if flat.size > 1 else None)


def _sliced_offsets(flow: DimFlow, name: str) -> Offsets | None:
    """Offsets that a Slice reads off the Indices of a MaxPool with a window of 1: the first index of every plane."""
    node = flow.maker(flow.before_reshapes(name), "Slice")
    pool = None if node is None else flow.maker(node.input[0], "MaxPool")
    bounds = None if node is None else slice_bounds(flow, node)
    if node is None or pool is None or bounds is None or node.input[0] not in pool.output[1:]:
        return None
    given = attributes(pool)
    rank, sizes = len(given["kernel_shape"]), {*given["kernel_shape"], *given.get("strides", ())}
    if sizes != {1} or any(given.get("pads", ())) or given.get("storage_order", 0):
        return None  # its values are not its input
    if sorted(axis % (rank + 2) for axis in bounds.axes) != list(range(2, rank + 2)):
        return None
    if (set(bounds.starts), set(bounds.ends), set(bounds.steps)) != ({0}, {1}, {1}):
        return None
    source = _of_pool(flow, pool)
    axes = 2 if name in node.output else _plane_axes(shapes.dims(flow.types.get(name)) or ())
    return None if axes is None else Offsets(source.planes, axes, source.step, pool.input[0])


def _computed_offsets(flow: DimFlow, name: str) -> Offsets | None:
    """Offsets that the graph computes: Range(0, planes) times the elements of a plane, reshaped before or after."""
    axes = _plane_axes(shapes.dims(flow.types.get(name)) or ())
    product = flow.maker(flow.before_reshapes(name), "Mul")
    if product is None or axes is None:
        return None
    for counted, factor in (product.input, reversed(product.input)):
        planes, step = _count(flow, counted), flow.values(factor)
        if planes is not None and step is not None and len(step) == 1:
            return Offsets(planes, axes, step[0])
    return None


def _count(flow: DimFlow, name: str) -> DimExpr | None:
    """Number of planes that a value counts as 0, 1, 2 ..; None for any other value."""
    array = flow.constant(name)
    if array is not None:
        is_count = array.dtype.kind == "i" and np.array_equal(array.reshape(-1), np.arange(array.size))
        return DimExpr(array.size) if is_count and array.size else None
    node = flow.maker(flow.before_reshapes(name), "NonZero", "Range")
    if node is None:
        return None
    if node.op_type == "Range":
        start, limit, delta = map(flow.values, node.input)
        if start != (DimExpr(0),) or delta != (DimExpr(1),):
            return None
    else:  # of a vector of ones, which stands for a Range before opset 11
        ones = flow.maker(node.input[0], "ConstantOfShape")
        fill = None if ones is None else attributes(ones).get("value")
        if ones is None or fill is None or not array_of(fill).all():
            return None
        limit = flow.values(ones.input[0])
    return limit[0] if limit is not None and len(limit) == 1 else None


def _plane_axes(shape: Sequence[object]) -> int | None:
    """Number of axes up to the last that is not 1; None if that is after the first two, so not one number per plane."""
    axes = max((axis + 1 for axis, size in enumerate(shape) if size != 1), default=0)
    return axes if len(shape) > 2 and axes <= 2 else None


def pool_spec(pool: onnx.NodeProto, opsets: Mapping[str, int]) -> MaxPoolSpec:
    """The resolved attributes of a MaxPool, read as the standard says."""
    spec = resolve.spec("MaxPool", attributes(pool), domain=domain(pool), opset=opsets[domain(pool)])
    assert isinstance(spec, MaxPoolSpec)
    return spec


def never_empty(flow: DimFlow, pool: onnx.NodeProto | None) -> bool:
    """True if every window of a MaxPool meets an element, so that no index is -1."""
    if pool is None:
        return False
    spec = pool_spec(pool, flow.graph.opsets)
    known = shapes.static_dims(flow.types.get(pool.input[0])) or (None,) * (len(spec.windows) + 2)
    spatial = known[1:-1] if spec.version.is_channels_last else known[2:]
    return all(_meets_data(spec, axis, size) for axis, size in enumerate(spatial))


def _meets_data(spec: MaxPoolSpec, axis: int, size: int | None) -> bool:
    if size is not None:
        return bool((pooling_walk(max_pool.axis(spec, axis, size)).count > 0).all())
    window, pads = spec.windows[axis], spec.pads[axis]
    if spec.padding != "NOTSET" or not any(pads):
        return window.dilation == 1 or spec.padding not in ("SAME_UPPER", "SAME_LOWER")
    return window.dilation == 1 and max(pads) < window.size and sum(pads) < window.size
