"""Dynamic dimensions followed through a graph: sizes of axes, and the integers in small tensors that hold sizes.

A name in an expression is a name of the model, or stands for one axis of one value. So sizes with equal expressions are
equal in every call. onnx's inference has no name for a size that a Conv or a MaxPool changes; here it becomes
(height + plus) // by.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnx
from onnx import numpy_helper

from unpool.dtypes import AnyArray
from unpool.geometry import Window, pooled_quotient
from unpool.graph import shapes
from unpool.graph.graph import Graph, constant_array
from unpool.graph.nodes import attributes, domain, is_unpool_op
from unpool.graph.operators import OperatorFact, having
from unpool.graph.shapes import Dim
from unpool.graph.weights import LARGE, is_large

MULTIPLE = re.compile(r"([1-9]\d{0,8})\*([A-Za-z_]\w*)")  # the name of a size such as 2*half, as torch writes it
# names in a product, letters of these, and bits of its factor: without a limit, repeated squaring doubles them
MAX_NAMES, MAX_LETTERS, MAX_BITS = 32, 2000, 128


class DimExpr(NamedTuple):
    """`factor` times the product of the named sizes, plus `plus`, divided by `by` and rounded down; names are sorted.

    Negative numbers only come from axes shorter than a window, which no call can have, so how a division rounds them
    is of no interest.

    >>> str(DimExpr(1, ("height",), 1, 2))
    '(height+1)//2'
    """

    factor: int
    names: tuple[str, ...] = ()
    plus: int = 0
    by: int = 1

    def __str__(self) -> str:
        factor = [str(self.factor)] if self.factor != 1 or not self.names else []
        text = "*".join((*factor, *self.names)) + (f"{self.plus:+}" if self.plus else "")
        return f"({text})//{self.by}" if self.by > 1 else text

    @property
    def is_product(self) -> bool:
        """True if nothing is added to it or divided."""
        return self.plus == 0 and self.by == 1


DimExprs: TypeAlias = tuple[DimExpr | None, ...]


def divide(size: DimExpr, plus: int, by: int) -> DimExpr | None:
    """(size + plus) // by; None where the numbers grow too long.

    >>> half = divide(DimExpr(1, ("height",)), 0, 2)
    >>> divide(half, 0, 2) == divide(DimExpr(1, ("height",)), 0, 4)
    True
    >>> divide(DimExpr(4, ("height",)), 1, 2)
    DimExpr(factor=2, names=('height',), plus=0, by=1)
    """
    plus, by = size.plus + plus * size.by, by * size.by
    if not size.names:
        return DimExpr((size.factor + plus) // by)
    common = math.gcd(size.factor, by)
    if max(abs(plus), by).bit_length() > MAX_BITS:
        return None
    return DimExpr(size.factor // common, size.names, plus // common, by // common)


def multiply(sizes: Sequence[DimExpr | None]) -> DimExpr | None:
    """All sizes multiplied; None if one is unknown.

    >>> multiply([DimExpr(2), DimExpr(3, ("n",))])
    DimExpr(factor=6, names=('n',), plus=0, by=1)
    >>> str(multiply([DimExpr(2), DimExpr(1, ("height",), -2, 2)]))
    '2*(height)//2-2'
    """
    known = [size for size in sizes if size is not None]
    names = [name for size in known for name in size.names]
    is_long = len(names) > MAX_NAMES or sum(map(len, names)) > MAX_LETTERS
    bits = sum(max(size.factor, abs(size.plus)).bit_length() for size in known)
    if len(known) < len(sizes) or is_long or bits > MAX_BITS:
        return None
    return reduce(_multiply_two, known, DimExpr(1))


def _multiply_two(one: DimExpr, other: DimExpr) -> DimExpr:
    if DimExpr(1) in (one, other):
        return other if one == DimExpr(1) else one
    if not (one.names and other.names) and not (one.is_product and other.is_product):
        # multiples of a divisor leave its division: 2 * ((h - 2) // 2) is 2 * (h // 2) - 2
        count, size = (other.factor, one) if one.names else (one.factor, other)
        steps, rest = divmod(size.plus, size.by)
        whole = size._replace(plus=rest)
        factor, names = (whole.factor, whole.names) if whole.is_product else (1, (str(whole),))
        return DimExpr(factor * count, names, steps * count)
    first, second = (size if size.is_product else DimExpr(1, (str(size),)) for size in (one, other))
    return DimExpr(first.factor * second.factor, tuple(sorted(first.names + second.names)))


def upsample(size: DimExpr | None, stride: int, rest: int) -> DimExpr | None:
    """Size * stride + rest, an axis that windows have enlarged; None if the size is unknown.

    >>> upsample(DimExpr(3), 2, 1), str(upsample(DimExpr(1, ("height",), 0, 2), 2, 1))
    (DimExpr(factor=7, names=(), plus=0, by=1), '2*(height)//2+1')
    """
    steps = multiply((size, DimExpr(stride)))
    return steps and divide(steps, rest, 1)


def as_int(size: DimExpr | None) -> int | None:
    """The size as an int, if it is one."""
    return None if size is None or size.names else size.factor


def as_ints(sizes: Sequence[DimExpr | None]) -> tuple[int, ...] | None:
    """The sizes as ints, if all of them are."""
    ints = tuple(size.factor for size in sizes if size is not None and not size.names)
    return ints if len(ints) == len(sizes) else None


RESHAPES = having(OperatorFact.KEEPS_ORDER)
INTEGERS = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)
MAX_NAMED_VALUES = 8  # integers of a value that get names of their own, since nothing else is known of them
MAX_DEPTH = 100  # nodes that are followed back from a value; between a size and its use exporters write fewer


class DimFlow:
    """Sizes in a graph whose types are known as far as `types` says."""

    def __init__(self, graph: Graph, types: Mapping[str, onnx.TypeProto]) -> None:
        self.graph = graph
        self.types = types
        self._values: dict[str, DimExprs | None] = {}
        self._dims: dict[str, DimExprs] = {}
        self.depth = 0
        self._infer_dynamic_dims()

    def dims(self, name: str) -> DimExprs | None:
        """Sizes of a value along its axes, each unknown size under a name of its own; None if the rank is unknown."""
        if name in self._dims:
            return self._dims[name]
        known = shapes.dims(self.types.get(name))
        return None if known is None else tuple(_to_expr(name, axis, dim) for axis, dim in enumerate(known))

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
        """Counts one more node on the way back from a value; False beyond MAX_DEPTH nodes."""
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
        """The node that makes a value, if it is one of these operators of ONNX's own domain."""
        node = self.graph.maker(name)
        return node if node is not None and domain(node) == "" and node.op_type in operators else None

    def before_reshapes(self, name: str, rank: int | None = None) -> str:
        """The value before nodes that only reshape it; with a rank, the nearest that has it, or the value itself."""
        source = name
        for _ in range(MAX_DEPTH):
            if rank is not None and self.rank(source) == rank:
                return source
            node = self.maker(source, *RESHAPES)
            if node is None:
                break
            source = node.input[0]
        return source if rank is None else name

    def _infer_dynamic_dims(self) -> None:
        for node in self.graph.nodes:
            for name in filter(None, node.output):
                known = shapes.dims(self.types.get(name))
                if known is None or None not in known:
                    continue
                rule = _DIM_RULES.get(node.op_type) if domain(node) == "" else None
                inferred = None if rule is None else rule(self, node)
                if inferred is None or len(inferred) != len(known):
                    inferred = (None,) * len(known)
                self._dims[name] = tuple(
                    size if dim is None and size is not None else _to_expr(name, axis, dim)
                    for axis, (dim, size) in enumerate(zip(known, inferred, strict=True))
                )

    def _infer_values(self, name: str) -> DimExprs | None:
        array = self.constant(name)
        if array is not None:
            return tuple(map(DimExpr, array.reshape(-1).tolist())) if array.dtype.kind in "iu" else None
        if shapes.element(self.types.get(name)) not in INTEGERS:
            return None
        node, sizes = self.maker(name, *_VALUE_RULES), shapes.static_dims(self.types.get(name))
        values = None if node is None else _VALUE_RULES[node.op_type](self, node)
        if values or sizes is None or None in sizes:
            return values or None
        count = math.prod(size for size in sizes if size is not None)
        return tuple(DimExpr(1, (f"{name}({place})",)) for place in range(count)) if count <= MAX_NAMED_VALUES else None


def _to_expr(name: str, axis: int, dim: Dim) -> DimExpr:
    if isinstance(dim, int):
        return DimExpr(dim)
    multiple = MULTIPLE.fullmatch(dim or "")
    if multiple is not None:
        return DimExpr(int(multiple[1]), (multiple[2],))
    return DimExpr(1, (dim or f"{name}[{axis}]",))


def _shape_values(flow: DimFlow, node: onnx.NodeProto) -> DimExprs | None:
    known, given = flow.dims(node.input[0]), attributes(node)
    return known and known[given.get("start", 0) : given.get("end")]


def _concat_values(flow: DimFlow, node: onnx.NodeProto) -> DimExprs | None:
    known = [part for part in map(flow.values, node.input) if part is not None]
    fits = len(known) == len(node.input) and sum(map(len, known)) <= LARGE
    return tuple(chain.from_iterable(known)) if fits else None


def _gather_values(flow: DimFlow, node: onnx.NodeProto) -> DimExprs | None:
    values, places = flow.values(node.input[0]), flow.constant(node.input[1])
    if values is None or places is None or any(not -len(values) <= place < len(values) for place in places.flat):
        return None
    return tuple(values[int(place)] for place in places.flat)


def _slice_values(flow: DimFlow, node: onnx.NodeProto) -> DimExprs | None:
    values, bounds = flow.values(node.input[0]), slice_bounds(flow, node)
    if values is None or bounds is None or bounds.axes not in ((0,), (-1,)) or bounds.steps != (1,):
        return None
    return values[bounds.starts[0] : bounds.ends[0]]


def _mul_values(flow: DimFlow, node: onnx.NodeProto) -> DimExprs | None:
    first, second = (flow.values(name) for name in node.input)
    if first is None or second is None or (len(first) != len(second) and 1 not in (len(first), len(second))):
        return None
    length = max(len(first), len(second)) if first and second else 0
    pairs = zip(*(part * length if len(part) == 1 else part for part in (first, second)), strict=True)
    return tuple(multiply(pair) for pair in pairs)


def _linear_values(flow: DimFlow, node: onnx.NodeProto) -> DimExprs | None:
    for name, other in [node.input, node.input[::-1]] if node.op_type == "Add" else [node.input]:
        values, numbers = flow.values(name), as_ints(flow.values(other) or ())
        if values is None or numbers is None or len(numbers) != 1 or (node.op_type == "Div" and numbers[0] < 1):
            continue
        plus, by = {"Add": (numbers[0], 1), "Sub": (-numbers[0], 1), "Div": (0, numbers[0])}[node.op_type]
        return tuple(size and divide(size, plus, by) for size in values)
    return None


def _reduce_prod_values(flow: DimFlow, node: onnx.NodeProto) -> DimExprs | None:
    values = flow.values(node.input[0])
    return None if values is None or flow.rank(node.input[0]) not in (0, 1) else (multiply(values),)


Rule: TypeAlias = Callable[[DimFlow, onnx.NodeProto], DimExprs | None]

_VALUE_RULES: Mapping[str, Rule] = {
    **dict.fromkeys((*RESHAPES, "Cast"), lambda flow, node: flow.values(node.input[0])),
    **dict.fromkeys(("Add", "Sub", "Div"), _linear_values),
    "Concat": _concat_values,
    "Gather": _gather_values,
    "Mul": _mul_values,
    "ReduceProd": _reduce_prod_values,
    "Shape": _shape_values,
    "Slice": _slice_values,
}


class SliceBounds(NamedTuple):
    """The begins, ends, axes and steps of a Slice."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    axes: tuple[int, ...]
    steps: tuple[int, ...]


def slice_bounds(flow: DimFlow, node: onnx.NodeProto) -> SliceBounds | None:
    """Bounds of a Slice node of any version, if they are constants."""
    parts: list[Any]
    if len(node.input) == 1:
        given = attributes(node)
        parts = [given.get(word) for word in ("starts", "ends", "axes", "steps")]
    else:
        names = [*node.input[1:], *[""] * 4][:4]
        parts = [flow.constant(name) if name else None for name in names]
        if any(name and part is None for name, part in zip(names, parts, strict=True)):
            return None
    starts, ends, axes, steps = parts
    if starts is None or ends is None:
        return None
    axes = range(len(starts)) if axes is None else axes
    steps = np.ones(len(starts)) if steps is None else steps
    return SliceBounds(*(tuple(map(int, part)) for part in (starts, ends, axes, steps)))


def _broadcast_dims(flow: DimFlow, node: onnx.NodeProto) -> DimExprs | None:
    known = [part for part in map(flow.dims, node.input) if part is not None]
    if len(known) < len(node.input) or "axis" in attributes(node):  # the second input's, before opset 7
        return None
    rank = max(map(len, known))
    columns = zip(*((DimExpr(1),) * (rank - len(part)) + part for part in known), strict=True)
    sizes_of_axes = [set(column) - {DimExpr(1)} or {DimExpr(1)} for column in columns]
    return tuple(sizes.pop() if len(sizes) == 1 else None for sizes in sizes_of_axes)


def _concat_dims(flow: DimFlow, node: onnx.NodeProto) -> DimExprs | None:
    known, joined = flow.dims(node.input[0]), attributes(node).get("axis", 1)
    return known and tuple(None if axis == joined % len(known) else size for axis, size in enumerate(known))


def _pad_dims(flow: DimFlow, node: onnx.NodeProto) -> DimExprs | None:
    """Sizes before the Pad plus its pads, an attribute before opset 11, a constant input since."""
    known, pads = flow.dims(node.input[0]), attributes(node).get("pads")
    if pads is None and len(node.input) > 1 and not any(node.input[3:]):
        array = constant_array(flow.graph, node.input[1])
        pads = None if array is None else array.tolist()
    if known is None or pads is None or len(pads) != 2 * len(known):
        return None
    return tuple(size and divide(size, sum(pads[axis :: len(known)]), 1) for axis, size in enumerate(known))


def _squeeze_dims(flow: DimFlow, node: onnx.NodeProto) -> DimExprs | None:
    """Sizes after a Squeeze or Unsqueeze; its axes are an attribute before opset 13, a constant input since."""
    known, axes = flow.dims(node.input[0]), attributes(node).get("axes")
    if axes is None and len(node.input) > 1:
        array = flow.constant(node.input[1])
        axes = None if array is None else array.reshape(-1).tolist()
    if known is None or axes is None:
        return None
    if node.op_type == "Squeeze":
        dropped = {axis % len(known) for axis in axes}
        return tuple(size for axis, size in enumerate(known) if axis not in dropped)
    rank, sizes = len(known) + len(axes), iter(known)
    new = {axis % rank for axis in axes}
    return tuple(DimExpr(1) if axis in new else next(sizes) for axis in range(rank)) if len(new) == len(axes) else None


def _windows(flow: DimFlow, node: onnx.NodeProto) -> list[Window] | None:
    """The windows of a pool or a convolution; None if a size is unknown or there are not as many as spatial axes."""
    given = attributes(node)
    w_dims = flow.dims(node.input[1]) if len(node.input) > 1 else None
    sizes = given.get("kernel_shape") or as_ints((w_dims or ())[2:])
    if not sizes or flow.rank(node.input[0]) != len(sizes) + 2:
        return None
    ones = [1] * len(sizes)
    return list(map(Window, sizes, given.get("strides") or ones, given.get("dilations") or ones))


def _pool_dims(flow: DimFlow, node: onnx.NodeProto) -> DimExprs | None:
    """Sizes after a pool or a Conv: `pooled_quotient` of each spatial size."""
    large, windows, given = flow.dims(node.input[0]), _windows(flow, node), attributes(node)
    ceil = bool(given.get("ceil_mode"))
    if large is None or windows is None or (ceil and not is_unpool_op(node)):
        return None
    if given.get("auto_pad", b"NOTSET") not in (b"", b"NOTSET"):
        return None
    rank = len(windows)
    pads = given.get("pads") or [0] * (2 * rank)
    rules = [pooled_quotient(window, *pads[axis::rank], ceil=ceil) for axis, window in enumerate(windows)]
    spatial = [size and divide(size, *rule) for size, rule in zip(large[2:], rules, strict=True)]
    return (large[0], None if node.op_type == "Conv" else large[1], *spatial)


def _upsample_dims(flow: DimFlow, node: onnx.NodeProto) -> DimExprs | None:
    """Sizes after a ConvTranspose or MaxUnpool: size * stride + reach - stride - padding + output_padding."""
    if node.op_type == "MaxUnpool" and len(node.input) > 2 and node.input[2]:
        return flow.values(node.input[2])
    small, windows, given = flow.dims(node.input[0]), _windows(flow, node), attributes(node)
    if small is None or windows is None:
        return None
    rank, outer = len(windows), (small[0], None if node.op_type == "ConvTranspose" else small[1])
    if given.get("output_shape") or given.get("auto_pad", b"NOTSET") not in (b"", b"NOTSET"):
        return (*outer, *[None] * rank)
    pads, extra = given.get("pads") or [0] * (2 * rank), given.get("output_padding") or [0] * rank
    rests = [window.reach - window.stride - sum(pads[axis::rank]) + extra[axis] for axis, window in enumerate(windows)]
    return (*outer, *map(upsample, small[2:], [window.stride for window in windows], rests))


_DIM_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(having(OperatorFact.BROADCASTING), _broadcast_dims),
    **dict.fromkeys(having(OperatorFact.KEEPS_SHAPE), lambda flow, node: flow.dims(node.input[0])),
    **dict.fromkeys(having(OperatorFact.SHRINKING), _pool_dims),
    **dict.fromkeys(having(OperatorFact.GROWING), _upsample_dims),
    **dict.fromkeys(("Squeeze", "Unsqueeze"), _squeeze_dims),
    "Concat": _concat_dims,
    "Pad": _pad_dims,
}
