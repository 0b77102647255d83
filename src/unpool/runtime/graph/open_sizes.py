"""Follows open sizes through one node: which sizes its output has, as sizes of its inputs.

onnx's inference names no size that a Conv or a MaxPool has changed; here it is (height + plus) // by.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import onnx

from unpool.geometry import Window, pooled_quotient
from unpool.runtime.graph.graph import constant_array
from unpool.runtime.graph.nodes import attributes, domain, is_unpool_op
from unpool.runtime.graph.size import Size, Sizes, grown, number, quotient

if TYPE_CHECKING:
    from unpool.runtime.graph.size_flow import SizeFlow

ALIKE = (
    *("Abs", "BatchNormalization", "Cast", "Celu", "Clip", "Dropout", "Elu", "Erf", "Exp", "Floor", "Gelu"),
    *("HardSigmoid", "HardSwish", "Identity", "InstanceNormalization", "LRN", "LeakyRelu", "Log", "Mish", "Neg"),
    *("PRelu", "Relu", "Selu", "Sigmoid", "Softmax", "Softplus", "Sqrt", "Tanh", "ThresholdedRelu"),
)
"""Operators whose output has the shape of the first input."""


def followed(flow: "SizeFlow", node: onnx.NodeProto, rank: int) -> Sizes | None:
    """Sizes of the outputs of a node of ONNX's own domain, each None where it is not known; None if none is.

    Args:
        flow: what is known of the sizes before the node.
        node: of which a rule tells the sizes; of others nothing is known.
        rank: of the outputs.
    """
    if domain(node) != "":
        return None
    rule = _same if node.op_type in ALIKE else _RULES.get(node.op_type)
    found = None if rule is None else rule(flow, node)
    return found if found is not None and len(found) == rank else None


def _same(flow: "SizeFlow", node: onnx.NodeProto) -> Sizes | None:
    return flow.dims(node.input[0])


def _broadcast(flow: "SizeFlow", node: onnx.NodeProto) -> Sizes | None:
    parts = [flow.dims(name) for name in node.input]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or "axis" in attributes(node):  # before opset 7 it says where the second one lies
        return None
    rank = max(map(len, known))
    longer = [(Size(1),) * (rank - len(part)) + part for part in known]
    return tuple(_either([size for size in sizes if size != Size(1)]) for sizes in zip(*longer, strict=True))


def _either(sizes: Sequence[Size | None]) -> Size | None:
    """The size that all of them are, if that is known."""
    return Size(1) if not sizes else sizes[0] if len(set(sizes)) == 1 else None


def _concatenated(flow: "SizeFlow", node: onnx.NodeProto) -> Sizes | None:
    first = flow.dims(node.input[0])
    if first is None:
        return None
    axis = attributes(node)["axis"] % len(first)
    return (*first[:axis], None, *first[axis + 1 :])


def _padded(flow: "SizeFlow", node: onnx.NodeProto) -> Sizes | None:
    """Sizes behind a Pad: those before it and the pads, an attribute before opset 11, a constant input since."""
    known, pads = flow.dims(node.input[0]), attributes(node).get("pads")
    if pads is None and len(node.input) > 1 and not any(node.input[3:]):
        array = constant_array(flow.graph, node.input[1])
        pads = None if array is None else array.tolist()
    if known is None or pads is None or len(pads) != 2 * len(known):
        return None
    return tuple(size and quotient(size, sum(pads[axis :: len(known)]), 1) for axis, size in enumerate(known))


def _unsqueezed(flow: "SizeFlow", node: onnx.NodeProto) -> Sizes | None:
    known, axes = flow.dims(node.input[0]), _axes(flow, node)
    if known is None or axes is None:
        return None
    rank, rest = len(known) + len(axes), iter(known)
    new = {axis % rank for axis in axes}
    return tuple(Size(1) if axis in new else next(rest) for axis in range(rank)) if len(new) == len(axes) else None


def _squeezed(flow: "SizeFlow", node: onnx.NodeProto) -> Sizes | None:
    known, axes = flow.dims(node.input[0]), _axes(flow, node)
    if known is None or axes is None:
        return None
    gone = {axis % len(known) for axis in axes}
    return tuple(size for axis, size in enumerate(known) if axis not in gone)


def _axes(flow: "SizeFlow", node: onnx.NodeProto) -> tuple[int, ...] | None:
    """The axes of a Squeeze or Unsqueeze: an attribute before opset 13, a constant input since."""
    given = attributes(node).get("axes")
    if given is None and len(node.input) > 1:
        array = flow.constant(node.input[1])
        given = None if array is None else array.reshape(-1).tolist()
    return None if given is None else tuple(given)


def _shrunk(flow: "SizeFlow", node: onnx.NodeProto) -> Sizes | None:
    """Sizes behind a MaxPool, AveragePool or Conv: `pooled_quotient` of each spatial size."""
    large, given = flow.dims(node.input[0]), attributes(node)
    sizes = given.get("kernel_shape") or _window_of(flow, node)
    if large is None or sizes is None or len(large) != len(sizes) + 2:
        return None
    rank, pads, word = len(sizes), given.get("pads"), given.get("auto_pad", b"NOTSET")
    if word not in (b"", b"NOTSET") or (given.get("ceil_mode") and not is_unpool_op(node)):
        return None
    pads = pads or [0] * (2 * rank)
    windows = map(Window, sizes, given.get("strides") or [1] * rank, given.get("dilations") or [1] * rank)
    ceil = bool(given.get("ceil_mode"))
    rules = [pooled_quotient(one, *pads[axis::rank], ceil=ceil) for axis, one in enumerate(windows)]
    spatial = [size and quotient(size, *rule) for size, rule in zip(large[2:], rules, strict=True)]
    return (large[0], None if node.op_type == "Conv" else large[1], *spatial)


def _window_of(flow: "SizeFlow", node: onnx.NodeProto) -> tuple[int, ...] | None:
    known = (flow.dims(node.input[1]) or ())[2:] if len(node.input) > 1 else ()
    sizes = [number(size) for size in known]
    return tuple(size for size in sizes if size is not None) if sizes and None not in sizes else None


def _unpooled(flow: "SizeFlow", node: onnx.NodeProto) -> Sizes | None:
    """Sizes behind a MaxUnpool: those that are asked for, or those that its windows reach."""
    if len(node.input) > 2 and node.input[2]:
        return flow.values(node.input[2])
    return _grown(flow, node)


def _grown(flow: "SizeFlow", node: onnx.NodeProto) -> Sizes | None:
    """Sizes behind a ConvTranspose or MaxUnpool: size * stride + reach - stride - padding + output_padding."""
    small, given = flow.dims(node.input[0]), attributes(node)
    sizes = given.get("kernel_shape") or _window_of(flow, node)
    if small is None or sizes is None or len(small) != len(sizes) + 2:
        return None
    rank, outer = len(sizes), (small[0], None if node.op_type == "ConvTranspose" else small[1])
    if given.get("output_shape") or given.get("auto_pad", b"NOTSET") not in (b"", b"NOTSET"):
        return (*outer, *[None] * rank)
    strides, pads = given.get("strides") or [1] * rank, given.get("pads") or [0] * (2 * rank)
    windows = map(Window, sizes, strides, given.get("dilations") or [1] * rank)
    extra = given.get("output_padding") or [0] * rank
    rests = [one.reach - one.stride - sum(pads[axis::rank]) + extra[axis] for axis, one in enumerate(windows)]
    return (*outer, *map(grown, small[2:], strides, rests))


_RULES: Mapping[str, Callable[["SizeFlow", onnx.NodeProto], Sizes | None]] = {
    "Add": _broadcast,
    "AveragePool": _shrunk,
    "Concat": _concatenated,
    "Conv": _shrunk,
    "ConvTranspose": _grown,
    "Div": _broadcast,
    "MaxPool": _shrunk,
    "MaxUnpool": _unpooled,
    "Mod": _broadcast,
    "Mul": _broadcast,
    "Pad": _padded,
    "Squeeze": _squeezed,
    "Sub": _broadcast,
    "Unsqueeze": _unsqueezed,
}
