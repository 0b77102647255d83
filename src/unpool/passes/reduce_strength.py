"""Strength reduction: nodes that onnxruntime computes slowly become others with the same result, except for rounding.

| node | becomes | keeps | milliseconds before, after |
|---|---|---|---|
| PRelu of one slope | LeakyRelu | bits | 7.8, 0.4 for (1, 32, 192, 192) |
| PRelu of slopes from 0 to 1 | Max(x, slope * x) | bits | 2.9, 0.3 for the same |
| PRelu of other finite slopes | x * Where(x < 0, slope, 1) | bits | 2.9, 1.0 for the same |
| (Log)Softmax not over the last axis | Transpose, Softmax, Transpose | bits | 126, 15 for (1, 64, 256, 256) |
| Einsum of two tensors | Transpose, Reshape, MatMul, Reshape, Transpose | sums | 10.7, 3.4 for bildsk,biokl->bolsd |
| Gather of windows | a Slice per window, or per element of one; Concat | bits | 7.0, 0.3 for (1024, 256, 3) |
| Elu of alpha 1 | Max(x, Exp(Min(x, 0)) - 1) | values | 14.2, 2.1 for (1, 64, 24000) |
| Mish, or x * Tanh(Softplus(x)) | x * n / (n + 2), n = w * (w + 2), w = Exp(x) | values | 5.1, 1.2 for (1, 64, 12000) |
| Resize of volumes to nearest elements | Resize of planes, Expand | bits | 116, 7.5 for twice (1, 32, 32, 32, 32) |

"bits": all bits of onnxruntime's result, also the sign of zero; a NaN stays a NaN. "values": they differ by at most
2**-20 of the value, or by 2**-126 where the result or a factor is subnormal; those of an Elu by 2**-22. "sums": sums of
n products differ by at most 2 * n * 2**-24 times the sum of their magnitudes; one that overflows on the way may be
infinite or NaN in either.

onnxruntime broadcasts a PRelu in one thread; its Resize, Softmax, Einsum and Gather move single elements; its Elu and
Mish have slow exponentials. Times: two threads of an Intel Xeon with AVX-512, onnxruntime 1.32.
Only float32, and only where all shapes are known; those of a PRelu, Elu, Mish or Softmax may have open sizes.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np
import onnx
from onnx import helper, numpy_helper

from unpool.dtypes import AnyArray
from unpool.graph import shapes
from unpool.graph.graph import FreshNames, Graph, unused_names
from unpool.graph.nodes import attributes, domain, node_name, reads, writes
from unpool.graph.shapes import Types
from unpool.graph.weights import array_of

FIRST_OPSET_OF_MIN = 8  # with broadcasting, as Max
FIRST_OPSET_OF_WHERE = 9
FIRST_RESIZE_TO_SIZES = 13  # without a roi
FIRST_SOFTMAX_OF_ONE_AXIS = 13  # before, of all axes from one on
FIRST_AXES_AS_INPUT = 13  # of Unsqueeze
FIRST_PARTS_OF_SHAPE = 15
VOLUME = 5  # axes of a batch of volumes
LEAST_SIZE = 10_000  # elements, or products of an Einsum, that are worth several nodes in place of one
MOST_SLICES = 32  # in place of a Gather
LARGEST_EXPONENT = 20.0  # of Mish, whose last factor is 1 from there on

BOOL, FLOAT, INT64 = onnx.TensorProto.BOOL, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64

Sizes: TypeAlias = tuple[int, ...]
Dims: TypeAlias = tuple[int | None, ...]
"""Sizes, of which some may be open."""


def reduce_strength(
    graph: Graph, types: Types, excluded: Collection[str] = (), *, keeps_axes: bool = False
) -> tuple[Graph, Types]:
    """The graph, constants lifted, in which such nodes are replaced, and the types; `origins` lists the nodes.

    Nodes that make one of the `excluded` values stay if others may round differently, and with `keeps_axes` those in
    whose place others would reshape values.
    """
    writer, is_changed = _Writer(graph, types), False
    for node in graph.nodes:
        replace_node = _REPLACE.get(node.op_type) if domain(node) == "" else None
        is_excluded = node.op_type in ROUNDED and node.output[0] in excluded
        is_excluded |= keeps_axes and node.op_type in RESHAPED
        if replace_node is None or is_excluded or not replace_node(node, writer):
            writer.nodes.append(node)
        else:
            same = "the same result but for rounding" if node.op_type in ROUNDED else "the same result"
            reason = f"replaces {node.op_type} {node_name(node)!r}: faster, with {same}"
            writer.origins[node.output[0]] = reason
            is_changed = True
    if not is_changed:
        return graph, types
    new_graph = replace(graph, nodes=tuple(writer.nodes), constants=writer.constants, origins=writer.origins)
    return new_graph, writer.types


def may_reduce(graph: Graph) -> bool:
    """True if a node may be replaced; no types are needed to tell, and most graphs have no such node."""
    return any(_is_candidate(node, graph) for node in graph.nodes if domain(node) == "")


def _is_candidate(node: onnx.NodeProto, graph: Graph) -> bool:
    if node.op_type == "Gather":
        indices = graph.constants.get(node.input[1])
        return indices is not None and len(indices.dims) == 2
    if node.op_type == "Resize":
        return bool(attributes(node).get("mode", b"nearest") == b"nearest")
    if node.op_type in ("Softmax", "LogSoftmax"):
        return bool(attributes(node).get("axis", -1) != -1)
    return node.op_type == "Softplus" or (node.op_type in _REPLACE and node.op_type != "Mul")


def _values_of_uncertain_size(graph: Graph) -> set[str]:
    """The values whose size onnxruntime may compute differently from onnx: those after some pools."""
    values: set[str] = set()
    for node in graph.nodes:
        given = attributes(node) if node.op_type in ("AveragePool", "LpPool") and domain(node) == "" else {}
        is_padded = given.get("auto_pad", b"NOTSET") != b"NOTSET"
        is_uncertain = given.get("ceil_mode") or (is_padded and max(given.get("dilations", (1,))) > 1)
        if is_uncertain or not values.isdisjoint(reads(node)):
            values.update(writes(node))
    return values


class _Writer:
    """The nodes written so far, and the constants and types of all values."""

    def __init__(self, graph: Graph, types: Types) -> None:
        self.opset = graph.opsets.get("", 0)
        self.nodes: list[onnx.NodeProto] = []
        self.made = {name: node for node in graph.nodes for name in node.output[:1]}
        self.constants, self.types, self.origins = dict(graph.constants), dict(types), dict(graph.origins)
        self._names: FreshNames = unused_names(graph)
        self._uncertain = _values_of_uncertain_size(graph)

    def dims(self, name: str) -> Dims | None:
        """The shape of a value of float32; None if it has another type, or its rank is not known."""
        tensor = self.constants.get(name)
        kind = self.types.get(name) if tensor is None else shapes.tensor_type(tensor.data_type, tuple(tensor.dims))
        dims = shapes.static_dims(kind) if shapes.dtype(kind) == np.float32 else None
        return (None,) * len(dims) if dims and name in self._uncertain else dims

    def sizes(self, name: str) -> Sizes | None:
        """The same, or None unless all sizes are known."""
        dims = self.dims(name)
        sizes = tuple(size for size in dims or () if size is not None)
        return sizes if dims is not None and len(sizes) == len(dims) else None

    def constant(self, array: AnyArray, wish: str) -> str:
        """The name of a new constant."""
        name = self._names.fresh(wish)
        self.constants[name] = numpy_helper.from_array(array, name)
        return name

    def number(self, value: float, dims: Dims, end: onnx.NodeProto) -> str:
        """The name of a new constant of one number, with as many axes as there are `dims`.

        With fewer, onnxruntime takes a hundred times as long for sizes that end in 1: it steps over single elements.
        """
        return self.constant(np.full((1,) * len(dims), value, np.float32), f"{end.output[0]}_{value}")

    def add(
        self,
        operator: str,
        inputs: Sequence[str],
        dims: Dims,
        end: onnx.NodeProto,
        element: int = FLOAT,
        /,
        **given: Any,
    ) -> str:
        """Write a node on the way to the first output of `end`; the name of its output, which has these dims."""
        output = self._names.fresh(f"{end.output[0]}_{operator.lower()}")
        self.nodes.append(helper.make_node(operator, inputs, [output], output, **given))
        self.types[output] = shapes.tensor_type(element, dims)
        return output

    def shape(self, name: str, dims: Dims, end: onnx.NodeProto) -> str:
        """The name of the shape of a value: a constant, or what a node gives if a size is open."""
        if None not in dims:
            return self.constant(np.array(dims, np.int64), f"{name}_shape")
        return self.add("Shape", [name], (len(dims),), end, INT64)

    def flat_shape(self, name: str, dims: Dims, axis: int, end: onnx.NodeProto) -> str:
        """The same for three axes in place of all: those before `axis`, this one, and those behind it."""
        sizes = [_product(part) for part in (dims[:axis], dims[axis : axis + 1], dims[axis + 1 :])]
        if None not in sizes:
            return self.constant(np.array(sizes, np.int64), f"{name}_shape")
        bounds = zip((0, axis, axis + 1), (axis, axis + 1, len(dims)), strict=True)
        parts = [
            self.add("Shape", [name], (last - first,), end, INT64, start=first, end=last) for first, last in bounds
        ]
        for place in (0, 2):
            parts[place] = self.add("ReduceProd", [parts[place]], (1,), end, INT64)
        return self.add("Concat", parts, (3,), end, INT64, axis=0)

    def move(self, name: str, sizes: Sizes, order: Sequence[int], shape: Sizes, end: onnx.NodeProto) -> str:
        """Transpose and then reshape a value, where that changes it; axes of size 1 need no Transpose."""
        moving = [axis for axis in order if sizes[axis] > 1]
        if moving != sorted(moving):
            sizes = tuple(sizes[axis] for axis in order)
            name = self.add("Transpose", [name], sizes, end, perm=list(order))
        if sizes != shape:
            name = self.add("Reshape", [name, self.constant(np.array(shape, np.int64), f"{name}_shape")], shape, end)
        return name

    def finish(self, end: onnx.NodeProto) -> None:
        """Give the last node written the name and the output of `end`."""
        self.nodes[-1].name, self.nodes[-1].output[0] = node_name(end), end.output[0]


def _replace_prelu(node: onnx.NodeProto, writer: _Writer) -> bool:
    x, tensor, dims = node.input[0], writer.constants.get(node.input[1]), writer.dims(node.input[0])
    slope = None if tensor is None or dims is None else array_of(tensor)
    if slope is None or dims is None or slope.dtype != np.float32 or slope.ndim > len(dims):
        return False
    if not np.isfinite(slope).all() or writer.opset < FIRST_OPSET_OF_MIN:
        return False
    is_below_one = ((slope >= np.finfo(np.float32).smallest_normal) & (slope <= 1)).all()
    if slope.size == 1:
        writer.add("LeakyRelu", [x], dims, node, alpha=slope.item())
    elif is_below_one:
        writer.add("Max", [x, writer.add("Mul", [x, node.input[1]], dims, node)], dims, node)
    elif writer.opset < FIRST_OPSET_OF_WHERE or (np.signbit(slope) & (slope == 0)).any():
        return False  # onnxruntime's Where loses the sign of -0
    else:
        zero, one = (writer.number(value, dims, node) for value in (0, 1))
        is_negative = writer.add("Less", [x, zero], dims, node, BOOL)
        factor = writer.add("Where", [is_negative, node.input[1], one], dims, node)
        writer.add("Mul", [x, factor], dims, node)
    writer.finish(node)
    return True


def _product(dims: Dims) -> int | None:
    """Of all sizes; None if one is open."""
    return None if None in dims else math.prod(size for size in dims if size is not None)


def _is_small(dims: Dims) -> bool:
    """True if a node of these dims is not worth several; an open size may be large, but that of a batch may be 1."""
    batch = tuple(1 if size is None else size for size in dims[:1])
    size = _product(batch + dims[1:])
    return size is not None and size < LEAST_SIZE


def _replace_elu(node: onnx.NodeProto, writer: _Writer) -> bool:
    """Where x is negative, e^x - 1 is at least x."""
    x, dims = node.input[0], writer.dims(node.input[0])
    if dims is None or _is_small(dims) or attributes(node).get("alpha", 1.0) != 1 or writer.opset < FIRST_OPSET_OF_MIN:
        return False
    zero, one = (writer.number(value, dims, node) for value in (0, 1))
    w = writer.add("Exp", [writer.add("Min", [x, zero], dims, node)], dims, node)
    writer.add("Max", [x, writer.add("Sub", [w, one], dims, node)], dims, node)
    writer.finish(node)
    return True


def _replace_mul(node: onnx.NodeProto, writer: _Writer) -> bool:
    """A Mish as exporters write it below opset 18: x * Tanh(Softplus(x))."""
    for x, name in (node.input, node.input[::-1]):
        tanh = writer.made.get(name)
        softplus = writer.made.get(tanh.input[0]) if _is_operator(tanh, "Tanh") else None
        if _is_operator(softplus, "Softplus") and softplus.input[0] == x:
            return writer.opset >= FIRST_OPSET_OF_MIN and _replace_mish(node, writer, x)
    return False


def _is_operator(node: onnx.NodeProto | None, name: str) -> TypeGuard[onnx.NodeProto]:
    """True for a node of this operator of the standard."""
    return node is not None and node.op_type == name and domain(node) == ""


def _replace_mish(node: onnx.NodeProto, writer: _Writer, x: str = "") -> bool:
    """Mish is x * tanh(log(1 + w)) with w = exp(x); the hyperbolic tangent is ((1 + w)^2 - 1) / ((1 + w)^2 + 1)."""
    x = x or node.input[0]
    dims = writer.dims(x)
    if dims is None or _is_small(dims):
        return False
    two, largest = (writer.number(value, dims, node) for value in (2, LARGEST_EXPONENT))
    w = writer.add("Exp", [writer.add("Min", [x, largest], dims, node)], dims, node)
    n = writer.add("Mul", [w, writer.add("Add", [w, two], dims, node)], dims, node)
    factor = writer.add("Div", [n, writer.add("Add", [n, two], dims, node)], dims, node)
    writer.add("Mul", [x, factor], dims, node)
    writer.finish(node)
    return True


def _replace_softmax(node: onnx.NodeProto, writer: _Writer) -> bool:
    """Of three axes, over the one in the middle: onnxruntime transposes those faster than four."""
    x, dims, axis = node.input[0], writer.dims(node.input[0]), attributes(node).get("axis", -1)
    if dims is None or _is_small(dims) or 0 in dims or not -len(dims) <= axis < len(dims):
        return False
    axis %= len(dims)
    flat = (_product(dims[:axis]), dims[axis], _product(dims[axis + 1 :]))
    first_opset = FIRST_PARTS_OF_SHAPE if None in dims else FIRST_SOFTMAX_OF_ONE_AXIS
    if flat[2] == 1 or writer.opset < first_opset:
        return False
    swapped, word = (flat[0], flat[2], flat[1]), {"allowzero": 1} if None in dims else {}
    y = x if flat == dims else writer.add("Reshape", [x, writer.flat_shape(x, dims, axis, node)], flat, node, **word)
    y = writer.add("Transpose", [y], swapped, node, perm=[0, 2, 1])
    y = writer.add(node.op_type, [y], swapped, node, axis=-1)
    y = writer.add("Transpose", [y], flat, node, perm=[0, 2, 1])
    if flat != dims:
        writer.add("Reshape", [y, writer.shape(x, dims, node)], dims, node, **word)
    writer.finish(node)
    return True


class _Product(NamedTuple):
    """An Einsum as products of two matrices: the number of the left operand, and the labels of axes by their role."""

    left: int
    batch: str
    rows: str
    summed: str
    columns: str

    def layouts(self) -> tuple[str, str, str]:
        """The labels of the left matrices, of the right ones, and of the results, in the order of a MatMul."""
        batch, rows, summed, columns = self[1:]
        return batch + rows + summed, batch + summed + columns, batch + rows + columns


def _products(labels: Sequence[str], out: str) -> list[_Product]:
    """An Einsum of these operands with either one on the left; empty if it is no product of matrices."""
    first, second = labels
    batch = "".join(label for label in out if label in first and label in second)
    summed = "".join(label for label in first if label in second and label not in out)
    rows, columns = ("".join(label for label in out if label not in other) for other in (second, first))
    roles = batch + rows + summed + columns
    if not (rows and summed and columns) or len(set(first) | set(second)) != len(roles):
        return []
    return [_Product(0, batch, rows, summed, columns), _Product(1, batch, columns, summed, rows)]


def _transpose_cost(labels: str, order: str, size_of: Mapping[str, int]) -> int:
    """Elements to move, weighted by how slowly onnxruntime moves them."""
    old, new = ([label for label in each if size_of[label] > 1] for each in (labels, order))
    if old == new:
        return 0
    moves_one = any([each for each in old if each != label] == [each for each in new if each != label] for label in old)
    weight = 1 if old[-1] == new[-1] else 2 if moves_one else 8
    return weight * math.prod(size_of[label] for label in old)


def _replace_einsum(node: onnx.NodeProto, writer: _Writer) -> bool:
    """Of the two operands, that one is on the left of the MatMul with which less is transposed."""
    terms, arrow, out = attributes(node)["equation"].decode().replace(" ", "").partition("->")
    labels, operands = terms.split(","), [writer.sizes(name) for name in node.input]
    if not arrow or len(labels) != 2 or len(operands) != 2 or "." in terms or len(set(out)) < len(out):
        return False
    size_of: dict[str, int] = {}
    for each, sizes in zip(labels, operands, strict=True):
        if sizes is None or len(sizes) != len(each) or len(set(each)) < len(each):
            return False
        if any(size_of.setdefault(label, size) != size for label, size in zip(each, sizes, strict=True)):
            return False  # one of 1 is repeated
    found = _products(labels, out)
    if not found or math.prod(size_of.values()) < max(LEAST_SIZE, 1):
        return False

    def cost(product: _Product) -> int:
        given = labels[product.left], labels[1 - product.left], out
        return sum(_transpose_cost(*pair, size_of) for pair in zip(given, product.layouts(), strict=True))

    def sizes_of(*groups: str) -> Sizes:
        return tuple(math.prod(size_of[label] for label in group) for group in groups)

    def matrix(number: int, order: str, shape: Sizes) -> str:
        return writer.move(
            node.input[number], sizes_of(*labels[number]), list(map(labels[number].index, order)), shape, node
        )

    best = min(found, key=cost)
    _, batch, rows, summed, columns = best
    left, right, made = best.layouts()
    factors = [
        matrix(best.left, left, sizes_of(*batch, rows, summed)),
        matrix(1 - best.left, right, sizes_of(*batch, summed, columns)),
    ]
    shape = sizes_of(*batch, rows, columns)
    product = writer.add("MatMul", factors, shape, node)
    if _transpose_cost(made, out, size_of):
        product, shape = writer.move(product, shape, range(len(shape)), sizes_of(*made), node), sizes_of(*made)
        writer.move(product, shape, list(map(made.index, out)), sizes_of(*out), node)
    else:
        writer.move(product, shape, range(len(shape)), sizes_of(*out), node)
    writer.finish(node)
    return True


def _replace_gather(node: onnx.NodeProto, writer: _Writer) -> bool:
    """A table of indices of the last axis, at equal distances along rows and columns; a Slice copies one of these."""
    sizes, tensor = writer.sizes(node.input[0]), writer.constants.get(node.input[1])
    axis = attributes(node).get("axis", 0)
    if not sizes or tensor is None or len(tensor.dims) != 2 or axis not in (-1, len(sizes) - 1):
        return False
    count = math.prod(sizes[:-1]) * math.prod(tensor.dims)
    if count < max(LEAST_SIZE, 1) or writer.opset < FIRST_AXES_AS_INPUT or min(tensor.dims) > MOST_SLICES:
        return False
    table = array_of(tensor).astype(np.int64)
    down, right = (int(line[1] - line[0]) if line.size > 1 else 1 for line in (table[:, 0], table[0]))
    grid = table[0, 0] + down * np.arange(len(table))[:, None] + right * np.arange(table.shape[1])
    if min(table[0, 0], down - 1, right - 1) < 0 or table[-1, -1] >= sizes[-1] or (table != grid).any():
        return False
    lines, place, step = (table, len(sizes) - 1, right) if len(table) <= table.shape[1] else (table.T, len(sizes), down)

    def integer(value: int, wish: str) -> str:
        return writer.constant(np.array([value], np.int64), f"{node.output[0]}_{wish}")

    part = (*sizes[:-1], lines.shape[1])
    axes, end, each = integer(len(sizes) - 1, "axis"), integer(place, "place"), integer(step, "step")
    parts = []
    for line in lines:
        bounds = [integer(line[0], "start"), integer(line[-1] + 1, "end"), axes, each]
        sliced = writer.add("Slice", [node.input[0], *bounds], part, node)
        parts.append(writer.add("Unsqueeze", [sliced, end], (*part[:place], 1, *part[place:]), node))
    if len(parts) > 1:
        writer.add("Concat", parts, (*sizes[:-1], *table.shape), node, axis=place)
    writer.finish(node)
    return True


_NEAREST = {
    "asymmetric": ("floor",),
    "half_pixel": ("round_prefer_floor", "round_prefer_ceil"),
}
"""Modes of a Resize by a whole factor in which an element becomes that many neighbours, by how it maps coordinates."""


def _replace_resize(node: onnx.NodeProto, writer: _Writer) -> bool:
    """An Expand repeats planes, and a Resize, for which onnxruntime has a kernel, the elements in them."""
    sizes, result, given = writer.sizes(node.input[0]), writer.sizes(node.output[0]), attributes(node)
    if sizes is None or result is None or len(sizes) != VOLUME or given.get("mode", b"nearest") != b"nearest":
        return False
    mapping, rounding = given.get("coordinate_transformation_mode", b"half_pixel"), given.get("nearest_mode", b"")
    is_repeating = (rounding or b"round_prefer_floor").decode() in _NEAREST.get(mapping.decode(), ())
    is_plain = not given.get("antialias") and not given.get("axes") and writer.opset >= FIRST_RESIZE_TO_SIZES
    if not is_repeating or not is_plain or 0 in sizes or sizes[:2] != result[:2]:
        return False
    factors = [large / small for small, large in zip(sizes, result, strict=True)]
    scales = node.input[2] if len(node.input) > 2 else ""
    if scales:  # from which sizes are rounded down
        tensor = writer.constants.get(scales)
        if tensor is None or array_of(tensor).tolist() != factors:
            return False
    if any(factor % 1 for factor in factors) or max(factors) == 1:
        return False
    batch, channels, depth, height, width = sizes
    planes, deep, high, wide = batch * channels * depth, *result[2:]
    x = writer.move(node.input[0], sizes, range(VOLUME), (1, planes, height, width), node)
    to = writer.constant(np.array((1, planes, high, wide), np.int64), f"{node.output[0]}_sizes")
    given.pop("keep_aspect_ratio_policy", None)
    x = writer.add("Resize", [x, "", "", to], (1, planes, high, wide), node, **given)
    x = writer.move(x, (1, planes, high, wide), range(4), (planes, 1, high * wide), node)
    rows = (planes, deep // depth, high * wide)
    to = writer.constant(np.array(rows, np.int64), f"{node.output[0]}_rows")
    writer.move(writer.add("Expand", [x, to], rows, node), rows, range(3), result, node)
    writer.finish(node)
    return True


_REPLACE: Mapping[str, Callable[[onnx.NodeProto, _Writer], bool]] = {
    "PRelu": _replace_prelu,
    "Elu": _replace_elu,
    "Mish": _replace_mish,
    "Mul": _replace_mul,
    "Resize": _replace_resize,
    "Softmax": _replace_softmax,
    "LogSoftmax": _replace_softmax,
    "Einsum": _replace_einsum,
    "Gather": _replace_gather,
}
ROUNDED = ("Einsum", "Elu", "Mish", "Mul")
"""The operators whose replacement may round differently."""
RESHAPED = ("Softmax", "LogSoftmax", "Einsum")
"""Those whose replacement has values of other axes, which tiles cannot follow."""
