"""Dynamic dimensions followed through a graph: sizes of axes, and the integers in small tensors that hold sizes.

A name in an expression is one of the model, or stands for one axis of one value, so that equal expressions are equal in
every call. onnx's inference names no size that a Conv or a MaxPool has changed; here it is (height + plus) // by.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

from unpool.dtypes import AnyArray
from unpool.geometry import Window, pooled_quotient
from unpool.runtime.graph import shapes
from unpool.runtime.graph.dims import MULTIPLE, Dim, DimExpr, DimExprs, as_int, divide, multiply, upsample
from unpool.runtime.graph.graph import Graph, constant_array
from unpool.runtime.graph.nodes import attributes, domain, is_unpool_op
from unpool.runtime.graph.weights import LARGE, is_large

RESHAPES = ("Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten")
"""Operators that keep the elements and their order."""


INTEGERS = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)
MAX_NAMED_VALUES = 8
"""Integers of a value that get names of their own, since nothing else is known of them."""

MAX_DEPTH = 100
"""Nodes that are followed back from a value; between a size and its use exporters write fewer."""


class DimFlow:
    """Sizes in a graph whose types are known as far as `types` says."""

    def __init__(self, graph: Graph, types: Mapping[str, onnx.TypeProto]) -> None:
        self.graph = graph
        self.types = types
        self.makers = {name: node for node in graph.nodes for name in node.output if name}
        self._values: dict[str, DimExprs | None] = {}
        self._dims: dict[str, DimExprs] = {}
        self.depth = 0
        self._infer_dynamic_dims()

    def dims(self, name: str) -> DimExprs | None:
        """Sizes of a value along its axes, each unknown size under a name of its own; None if the rank is unknown."""
        if name in self._dims:
            return self._dims[name]
        known = shapes.dims(self.types.get(name))
        return None if known is None else tuple(_expr_of(name, axis, dim) for axis, dim in enumerate(known))

    def rank(self, name: str) -> int | None:
        """Number of axes of a value."""
        known = shapes.dims(self.types.get(name))
        return None if known is None else len(known)

    def values(self, name: str) -> DimExprs | None:
        """The integers in a value, in row-major order; None where not even their number is known."""
        if name not in self._values:
            self._values[name] = None
            with self.deeper() as is_near:
                self._values[name] = self._infer_values(name) if is_near else None
        return self._values[name]

    @contextmanager
    def deeper(self) -> Iterator[bool]:
        """Counts one node more on the way back from a value, and says whether the way is short enough to go on."""
        self.depth += 1
        try:
            yield self.depth <= MAX_DEPTH
        finally:
            self.depth -= 1

    def constant(self, name: str) -> AnyArray | None:
        """A constant of the graph that is not large."""
        tensor = self.graph.constants.get(name)
        return None if tensor is None or is_large(tensor) else numpy_helper.to_array(tensor)

    def maker(self, name: str, *operators: str) -> onnx.NodeProto | None:
        """The node of ONNX's own domain that makes a value, if it is one of these operators."""
        node = self.makers.get(name)
        return node if node is not None and domain(node) == "" and node.op_type in operators else None

    def before_reshapes(self, name: str, rank: int | None = None) -> str:
        """The value before the nodes that only reshape it.

        With a rank, it is the nearest such value that has this rank, or the value itself if there is none.
        """
        now = name
        for _ in range(MAX_DEPTH):
            if rank is not None and self.rank(now) == rank:
                return now
            node = self.maker(now, *RESHAPES)
            if node is None:
                break
            now = node.input[0]
        return now if rank is None else name

    def _infer_dynamic_dims(self) -> None:
        """Find the sizes that have neither a number nor a name yet, in the order of the nodes."""
        for node in self.graph.nodes:
            for name in filter(None, node.output):
                known = shapes.dims(self.types.get(name))
                if known is None or None not in known:
                    continue
                found = infer_output_dims(self, node, len(known)) or (None,) * len(known)
                pairs = enumerate(zip(known, found, strict=True))
                self._dims[name] = tuple(
                    size if dim is None and size is not None else _expr_of(name, axis, dim)
                    for axis, (dim, size) in pairs
                )

    def _infer_values(self, name: str) -> DimExprs | None:
        array = self.constant(name)
        if array is not None:
            is_integer = array.dtype.kind in "iu"
            return tuple(DimExpr(int(one)) for one in array.reshape(-1)) if is_integer else None
        node = self.maker(name, *_VALUE_RULES, *RESHAPES, "Cast")
        if shapes.element(self.types.get(name)) not in INTEGERS:
            return None
        if node is None:
            return self._named_values(name)
        rule = _VALUE_RULES.get(node.op_type)
        return (self.values(node.input[0]) if rule is None else rule(self, node)) or self._named_values(name)

    def _named_values(self, name: str) -> DimExprs | None:
        """The integers in a value of which nothing is known, each under a name of its own."""
        known = self.types.get(name)
        sizes = shapes.static_dims(known)
        if shapes.element(known) not in INTEGERS or sizes is None or None in sizes:
            return None
        count = math.prod(size for size in sizes if size is not None)
        return tuple(DimExpr(1, (f"{name}({place})",)) for place in range(count)) if count <= MAX_NAMED_VALUES else None

    def shape(self, node: onnx.NodeProto) -> DimExprs | None:
        """Output of a Shape node."""
        known, given = self.dims(node.input[0]), attributes(node)
        return None if known is None else known[given.get("start", 0) : given.get("end")]

    def concat(self, node: onnx.NodeProto) -> DimExprs | None:
        """Output of a Concat of vectors."""
        parts = [self.values(name) for name in node.input]
        known = [part for part in parts if part is not None]
        fits = len(known) == len(parts) and sum(map(len, known)) <= LARGE
        return tuple(chain.from_iterable(known)) if fits else None

    def gather(self, node: onnx.NodeProto) -> DimExprs | None:
        """Output of a Gather from a vector."""
        values, places = self.values(node.input[0]), self.constant(node.input[1])
        if values is None or places is None or any(not -len(values) <= one < len(values) for one in places.flat):
            return None
        return tuple(values[int(one)] for one in places.flat)

    def slice(self, node: onnx.NodeProto) -> DimExprs | None:
        """Output of a Slice of a vector."""
        values, bounds = self.values(node.input[0]), slice_bounds(self, node)
        if values is None or bounds is None or bounds.axes not in ((0,), (-1,)) or bounds.steps != (1,):
            return None
        return values[bounds.starts[0] : bounds.ends[0]]

    def mul(self, node: onnx.NodeProto) -> DimExprs | None:
        """Output of a Mul of two vectors, or of a vector and one number."""
        first, second = (self.values(name) for name in node.input)
        if first is None or second is None or (len(first) != len(second) and 1 not in (len(first), len(second))):
            return None
        length = max(len(first), len(second)) if first and second else 0
        pairs = zip(*(part * length if len(part) == 1 else part for part in (first, second)), strict=True)
        return tuple(multiply(pair) for pair in pairs)

    def add(self, node: onnx.NodeProto) -> DimExprs | None:
        """Output of an Add of a vector and one known number."""
        return self._shift(node.input[0], node.input[1], 1) or self._shift(node.input[1], node.input[0], 1)

    def sub(self, node: onnx.NodeProto) -> DimExprs | None:
        """Output of a Sub of one known number from a vector."""
        return self._shift(node.input[0], node.input[1], -1)

    def div(self, node: onnx.NodeProto) -> DimExprs | None:
        """Output of a Div of a vector by one known number."""
        values, divisor = self.values(node.input[0]), self._single_int(node.input[1])
        if values is None or divisor is None or divisor < 1:
            return None
        return tuple(size and divide(size, 0, divisor) for size in values)

    def _shift(self, name: str, other: str, sign: int) -> DimExprs | None:
        values, plus = self.values(name), self._single_int(other)
        if values is None or plus is None:
            return None
        return tuple(size and divide(size, sign * plus, 1) for size in values)

    def _single_int(self, name: str) -> int | None:
        """The number that a value holds, if it is one known number."""
        values = self.values(name)
        return as_int(values[0]) if values is not None and len(values) == 1 else None

    def reduce_prod(self, node: onnx.NodeProto) -> DimExprs | None:
        """Output of a ReduceProd over all elements."""
        values = self.values(node.input[0])
        return None if values is None or self.rank(node.input[0]) not in (0, 1) else (multiply(values),)


_VALUE_RULES: Mapping[str, Callable[[DimFlow, onnx.NodeProto], DimExprs | None]] = {
    "Shape": DimFlow.shape,
    "Concat": DimFlow.concat,
    "Gather": DimFlow.gather,
    "Slice": DimFlow.slice,
    "Mul": DimFlow.mul,
    "ReduceProd": DimFlow.reduce_prod,
    "Add": DimFlow.add,
    "Sub": DimFlow.sub,
    "Div": DimFlow.div,
}


class SliceBounds(NamedTuple):
    """Where a Slice begins and ends, along which axes, in which steps."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    axes: tuple[int, ...]
    steps: tuple[int, ...]


def slice_bounds(flow: DimFlow, node: onnx.NodeProto) -> SliceBounds | None:
    """Bounds of a Slice node of any version, if they are constants."""
    starts: Any
    ends: Any
    axes: Any
    steps: Any
    if len(node.input) == 1:
        given = attributes(node)
        starts, ends = given["starts"], given["ends"]
        axes = given.get("axes", range(len(starts)))
        steps = [1] * len(starts)
    else:
        read = [flow.constant(name) if name else None for name in node.input[1:]]
        if any(array is None for array, name in zip(read, node.input[1:], strict=True) if name) or len(read) < 2:
            return None
        starts, ends = read[0], read[1]
        axes, steps = (*read[2:], None, None)[:2]
        assert starts is not None
        axes = np.arange(len(starts)) if axes is None else axes
        steps = np.ones(len(starts), np.int64) if steps is None else steps
    return SliceBounds(*(tuple(int(one) for one in part) for part in (starts, ends, axes, steps)))


def _expr_of(name: str, axis: int, dim: Dim) -> DimExpr:
    if isinstance(dim, int):
        return DimExpr(dim)
    multiple = MULTIPLE.fullmatch(dim or "")
    if multiple is not None:
        return DimExpr(int(multiple[1]), (multiple[2],))
    return DimExpr(1, (dim or f"{name}[{axis}]",))


SAME_SHAPE = (
    *("Abs", "BatchNormalization", "Cast", "Celu", "Clip", "Dropout", "Elu", "Erf", "Exp", "Floor", "Gelu"),
    *("HardSigmoid", "HardSwish", "Identity", "InstanceNormalization", "LRN", "LeakyRelu", "Log", "Mish", "Neg"),
    *("PRelu", "Relu", "Selu", "Sigmoid", "Softmax", "Softplus", "Sqrt", "Tanh", "ThresholdedRelu"),
)
"""Operators whose output has the shape of the first input."""


def infer_output_dims(flow: DimFlow, node: onnx.NodeProto, rank: int) -> DimExprs | None:
    """Sizes of the outputs of a node of ONNX's own domain, each None where it is not known; None if none is.

    Args:
        flow: what is known of the sizes before the node.
        node: of which a rule tells the sizes; of others nothing is known.
        rank: of the outputs.
    """
    if domain(node) != "":
        return None
    rule = _same_dims if node.op_type in SAME_SHAPE else _DIM_RULES.get(node.op_type)
    found = None if rule is None else rule(flow, node)
    return found if found is not None and len(found) == rank else None


def _same_dims(flow: DimFlow, node: onnx.NodeProto) -> DimExprs | None:
    return flow.dims(node.input[0])


def _broadcast_dims(flow: DimFlow, node: onnx.NodeProto) -> DimExprs | None:
    parts = [flow.dims(name) for name in node.input]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or "axis" in attributes(node):  # before opset 7 it says where the second one lies
        return None
    rank = max(map(len, known))
    longer = [(DimExpr(1),) * (rank - len(part)) + part for part in known]
    return tuple(_common_dim([size for size in sizes if size != DimExpr(1)]) for sizes in zip(*longer, strict=True))


def _common_dim(sizes: Sequence[DimExpr | None]) -> DimExpr | None:
    """The size that all of them are, if that is known."""
    return DimExpr(1) if not sizes else sizes[0] if len(set(sizes)) == 1 else None


def _concat_dims(flow: DimFlow, node: onnx.NodeProto) -> DimExprs | None:
    first = flow.dims(node.input[0])
    if first is None:
        return None
    axis = attributes(node)["axis"] % len(first)
    return (*first[:axis], None, *first[axis + 1 :])


def _pad_dims(flow: DimFlow, node: onnx.NodeProto) -> DimExprs | None:
    """Sizes behind a Pad: those before it and the pads, an attribute before opset 11, a constant input since."""
    known, pads = flow.dims(node.input[0]), attributes(node).get("pads")
    if pads is None and len(node.input) > 1 and not any(node.input[3:]):
        array = constant_array(flow.graph, node.input[1])
        pads = None if array is None else array.tolist()
    if known is None or pads is None or len(pads) != 2 * len(known):
        return None
    return tuple(size and divide(size, sum(pads[axis :: len(known)]), 1) for axis, size in enumerate(known))


def _unsqueeze_dims(flow: DimFlow, node: onnx.NodeProto) -> DimExprs | None:
    known, axes = flow.dims(node.input[0]), _constant_axes(flow, node)
    if known is None or axes is None:
        return None
    rank, rest = len(known) + len(axes), iter(known)
    new = {axis % rank for axis in axes}
    return tuple(DimExpr(1) if axis in new else next(rest) for axis in range(rank)) if len(new) == len(axes) else None


def _squeeze_dims(flow: DimFlow, node: onnx.NodeProto) -> DimExprs | None:
    known, axes = flow.dims(node.input[0]), _constant_axes(flow, node)
    if known is None or axes is None:
        return None
    gone = {axis % len(known) for axis in axes}
    return tuple(size for axis, size in enumerate(known) if axis not in gone)


def _constant_axes(flow: DimFlow, node: onnx.NodeProto) -> tuple[int, ...] | None:
    """The axes of a Squeeze or Unsqueeze: an attribute before opset 13, a constant input since."""
    given = attributes(node).get("axes")
    if given is None and len(node.input) > 1:
        array = flow.constant(node.input[1])
        given = None if array is None else array.reshape(-1).tolist()
    return None if given is None else tuple(given)


def _pool_dims(flow: DimFlow, node: onnx.NodeProto) -> DimExprs | None:
    """Sizes behind a MaxPool, AveragePool or Conv: `pooled_quotient` of each spatial size."""
    large, given = flow.dims(node.input[0]), attributes(node)
    sizes = given.get("kernel_shape") or _window_dims(flow, node)
    if large is None or sizes is None or len(large) != len(sizes) + 2:
        return None
    rank, pads, word = len(sizes), given.get("pads"), given.get("auto_pad", b"NOTSET")
    if word not in (b"", b"NOTSET") or (given.get("ceil_mode") and not is_unpool_op(node)):
        return None
    pads = pads or [0] * (2 * rank)
    windows = map(Window, sizes, given.get("strides") or [1] * rank, given.get("dilations") or [1] * rank)
    ceil = bool(given.get("ceil_mode"))
    rules = [pooled_quotient(one, *pads[axis::rank], ceil=ceil) for axis, one in enumerate(windows)]
    spatial = [size and divide(size, *rule) for size, rule in zip(large[2:], rules, strict=True)]
    return (large[0], None if node.op_type == "Conv" else large[1], *spatial)


def _window_dims(flow: DimFlow, node: onnx.NodeProto) -> tuple[int, ...] | None:
    known = (flow.dims(node.input[1]) or ())[2:] if len(node.input) > 1 else ()
    sizes = [as_int(size) for size in known]
    return tuple(size for size in sizes if size is not None) if sizes and None not in sizes else None


def _unpool_dims(flow: DimFlow, node: onnx.NodeProto) -> DimExprs | None:
    """Sizes behind a MaxUnpool: those that are asked for, or those that its windows reach."""
    if len(node.input) > 2 and node.input[2]:
        return flow.values(node.input[2])
    return _upsample_dims(flow, node)


def _upsample_dims(flow: DimFlow, node: onnx.NodeProto) -> DimExprs | None:
    """Sizes behind a ConvTranspose or MaxUnpool: size * stride + reach - stride - padding + output_padding."""
    small, given = flow.dims(node.input[0]), attributes(node)
    sizes = given.get("kernel_shape") or _window_dims(flow, node)
    if small is None or sizes is None or len(small) != len(sizes) + 2:
        return None
    rank, outer = len(sizes), (small[0], None if node.op_type == "ConvTranspose" else small[1])
    if given.get("output_shape") or given.get("auto_pad", b"NOTSET") not in (b"", b"NOTSET"):
        return (*outer, *[None] * rank)
    strides, pads = given.get("strides") or [1] * rank, given.get("pads") or [0] * (2 * rank)
    windows = map(Window, sizes, strides, given.get("dilations") or [1] * rank)
    extra = given.get("output_padding") or [0] * rank
    rests = [one.reach - one.stride - sum(pads[axis::rank]) + extra[axis] for axis, one in enumerate(windows)]
    return (*outer, *map(upsample, small[2:], strides, rests))


_DIM_RULES: Mapping[str, Callable[[DimFlow, onnx.NodeProto], DimExprs | None]] = {
    "Add": _broadcast_dims,
    "AveragePool": _pool_dims,
    "Concat": _concat_dims,
    "Conv": _pool_dims,
    "ConvTranspose": _upsample_dims,
    "Div": _broadcast_dims,
    "MaxPool": _pool_dims,
    "MaxUnpool": _unpool_dims,
    "Mod": _broadcast_dims,
    "Mul": _broadcast_dims,
    "Pad": _pad_dims,
    "Squeeze": _squeeze_dims,
    "Sub": _broadcast_dims,
    "Unsqueeze": _unsqueeze_dims,
}
