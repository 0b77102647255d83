"""The partitions that OpenVINO computes as they are written: it accepts others too, and gives other results.

It computes float64 and float16 in float32, and int64 in int32, without a warning. So floats have to be float32, and an
integer has to be a count, such as a size or the number of a class: a constant, or made of other counts, in such a way
that it stays below 2**31. Integers that a partition gets may be moved, compared, cast and used as the indices of a
Gather: their range is checked in each run.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import onnx

from unpool.dtypes import AnyArray
from unpool.runtime.graph import shapes
from unpool.runtime.graph.graph import Graph, constant_array
from unpool.runtime.graph.nodes import attributes, domain, node_name, reads, since_version, writes
from unpool.runtime.graph.shapes import Types
from unpool.runtime.graph.weights import array_of
from unpool.runtime.plan.plan import Step


class UnfitError(Exception):
    """OpenVINO is not to run a partition, or does not take it; the message says why."""


class KnownValues(NamedTuple):
    """Names of values of which something is known before a model runs."""

    counted: frozenset[str]  # they count elements, and are below 2**31 for that reason
    constant: frozenset[str]  # the same in every run
    computed: Mapping[str, AnyArray]  # constant integers that nodes make, where it is not certain what OpenVINO makes


class Context(NamedTuple):
    """What a rule reads besides the node."""

    graph: Graph
    types: Types
    known: KnownValues


Evaluate: TypeAlias = Callable[[Sequence[str]], Mapping[str, AnyArray]]
"""Gives the arrays of constant values that nodes make, by name; none where that fails."""

Ranges: TypeAlias = dict[str, tuple[int, int]]
"""The least and the largest value that the integers of an input may have, by its name."""


def require_fit(graph: Graph, step: Step, types: Types, known: KnownValues) -> Ranges:
    """Raise an UnfitError for a partition that OpenVINO may compute otherwise than it is written, or no faster.

    Returns the ranges of its integer inputs, for which alone this holds.
    """
    ranges, checked = _input_ranges(graph, step, types, known)
    for position in step.nodes:
        require_node(graph.nodes[position], graph, types, known, checked)
    if known.counted.issuperset(name for position in step.nodes for name in writes(graph.nodes[position])):
        raise UnfitError("it computes sizes only")
    return ranges


def _input_ranges(graph: Graph, step: Step, types: Types, known: KnownValues) -> tuple[Ranges, Container[str]]:
    """The ranges of the integer inputs of a partition, and the values that only have elements of these."""
    names = [name for name in step.inputs if shapes.dtype(types.get(name)) in _COUNTS and name not in known.counted]
    ranges = dict.fromkeys(names, (1 - _LIMIT, _LIMIT - 1))
    sources = dict(zip(names, names, strict=True))
    for position in step.nodes:
        node = graph.nodes[position]
        if domain(node) == "" and node.op_type == "Gather" and node.input[1] in sources:
            source, size = sources[node.input[1]], _gathered_size(node, graph, types)
            least, largest = ranges[source]
            ranges[source] = max(least, -size), min(largest, size - 1)
        if domain(node) == "" and node.op_type in _MOVES and node.input[0] in sources:
            sources[node.output[0]] = sources[node.input[0]]
        if domain(node) == "" and node.op_type == "Mul":
            x, y = node.input if node.input[0] in sources else reversed(node.input)
            if x in sources and _is_one(graph, y):
                sources[node.output[0]] = sources[x]
    return ranges, sources.keys()


def _is_one(graph: Graph, name: str) -> bool:
    """True if a value is a constant of ones, by which diffusion models multiply a time step to repeat it."""
    array = constant_array(graph, name)
    return array is not None and bool((array == 1).all())


def _gathered_size(node: onnx.NodeProto, graph: Graph, types: Types) -> int:
    """The size of the axis in which the indices of a Gather count."""
    data, axis = node.input[0], attributes(node).get("axis", 0)
    sizes = graph.constants[data].dims if data in graph.constants else shapes.static_dims(types.get(data))
    size = sizes[axis] if sizes is not None and -len(sizes) <= axis < len(sizes) else None
    if size is None:
        raise UnfitError(f"{node_name(node)!r} may differ there: indices are not checked")
    return int(size)


def require_node(
    node: onnx.NodeProto, graph: Graph, types: Types, known: KnownValues, checked: Container[str] = ()
) -> None:
    """Raise an UnfitError for a node that OpenVINO may compute otherwise than it is written.

    `checked` are values whose integers are known to be in range when the node runs.
    """
    if domain(node) or node.op_type not in OPERATORS:
        name = ".".join(filter(None, (domain(node), node.op_type)))
        raise UnfitError(f"{node_name(node)!r} is {name}, which is not known to give the same there")
    has_indices = node.op_type in _INDEXED or (node.op_type == "Gather" and node.input[0] not in known.counted)
    is_in_range = node.op_type == "Gather" and node.input[1] in checked
    if has_indices and not is_in_range and not _is_checked(node, graph, known):
        raise UnfitError(f"{node_name(node)!r} may differ there: indices are not checked")
    rule = _RULES.get(node.op_type)
    difference = rule(node, Context(graph, types, known)) if rule is not None else ""
    if difference:
        raise UnfitError(f"{node_name(node)!r} may differ there: {difference}")
    for name in (*reads(node), *writes(node)):
        kind = shapes.dtype(types.get(name))
        if kind is None or kind.kind == "O":
            raise UnfitError(f"{name!r} is no tensor of numbers, as far as is known before it runs")
        is_cast = node.op_type == "Cast" and kind in _READ and name in reads(node)
        is_count = kind in _COUNTS and (name in known.counted or name in checked)
        if kind not in _KEPT and not is_count and not is_cast:
            computed = "float32" if kind.kind == "f" or kind.name == "bfloat16" else "int32"
            raise UnfitError(f"{name!r} is {kind.name}, which it would compute in {computed}")


def _is_checked(node: onnx.NodeProto, graph: Graph, known: KnownValues) -> bool:
    """True if the indices of a node are the same in every run: they are checked before OpenVINO compiles it."""
    return node.input[1] in known.constant or constant_array(graph, node.input[1]) is not None


def known_values(graph: Graph, types: Types, evaluate: Evaluate) -> KnownValues:
    """The values of a graph that are counts, and those that are constant.

    `evaluate` computes integers that are constant, to see whether they are below 2**31.
    """
    constant = {*graph.constants, *graph.sparse_constants}
    for node in graph.nodes:
        is_random = domain(node) != "" or node.op_type.startswith("Random") or node.op_type == "Bernoulli"
        if not is_random and constant.issuperset(reads(node)):
            constant.update(writes(node))
    counted = _counted_values(graph, ())
    unsure = [
        name
        for node in graph.nodes
        for name in writes(node)
        if name in constant
        and (name not in counted or node.op_type in _INDEXED)
        and shapes.dtype(types.get(name)) in _COUNTS
    ]
    arrays = evaluate(unsure) if unsure else {}
    computed = {name: array for name, array in arrays.items() if _is_below_limit(array)}
    return KnownValues(_counted_values(graph, computed), frozenset(constant), computed)


def _counted_values(graph: Graph, counts: Iterable[str]) -> frozenset[str]:
    """The counts of a graph, from constants and others that are known."""
    counted = {name for name, tensor in graph.constants.items() if _is_small(tensor)} | {*counts}
    # constants that only say where slices begin and end: far out means at the border, in 32 bits too
    slices = {name for node in graph.nodes if node.op_type == "Slice" for name in node.input[1:3]}
    others = {name for node in graph.nodes for name in (node.input if node.op_type != "Slice" else node.input[:1])}
    counted |= (slices - others) & graph.constants.keys()
    for node in graph.nodes:
        sources = node.input[:1] if node.op_type in _MOVES else reads(node)
        is_count = node.op_type in _COUNT or (node.op_type in _MOVES | _COMBINE and counted.issuperset(sources))
        if is_count and domain(node) == "":
            counted.update(writes(node))
    return frozenset(counted)


def _is_small(tensor: onnx.TensorProto) -> bool:
    kind = shapes.dtype(shapes.tensor_type(tensor.data_type, None))
    if kind is None or kind.kind not in "iuf" or (kind.kind == "f" and np.prod(tensor.dims) > _MOST_ELEMENTS):
        return False
    return _is_below_limit(array_of(tensor))


def _is_below_limit(array: AnyArray) -> bool:
    return not array.size or bool((np.abs(array.astype(np.float64)) < _LIMIT).all())


def _pool_difference(node: onnx.NodeProto, context: Context) -> str:  # noqa: ARG001  as every rule
    """OpenVINO counts the windows at the border in its own way, and pads dilated ones.

    Whether ceil_mode adds windows is known when the partition is compiled.
    """
    given = attributes(node)
    is_counted = given.get("ceil_mode") and node.op_type == "LpPool"
    if is_counted or given.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        return "windows are counted otherwise with ceil_mode and auto_pad"
    return "its windows are dilated" if max(given.get("dilations", ()), default=1) > 1 else ""


def _conv_transpose_difference(node: onnx.NodeProto, context: Context) -> str:
    """OpenVINO reads some attributes otherwise, and takes weights if they are the same in every run."""
    given = attributes(node)
    if given.get("auto_pad", b"NOTSET") != b"NOTSET" or given.get("output_shape"):
        return "pads are computed otherwise with auto_pad and output_shape"
    if max(given.get("dilations", ()), default=1) > 1:
        return "its windows are dilated"
    if not context.known.constant.issuperset(filter(None, node.input[1:])):
        return "its weights are fed"
    sizes = shapes.static_dims(context.types.get(node.input[1]))
    return "it may have more than three spatial axes" if sizes is None or len(sizes) > _MOST_AXES else ""


def _resize_difference(node: onnx.NodeProto, context: Context) -> str:  # noqa: ARG001
    """OpenVINO ignores some attributes, and rounds ties of computed scales in its own way."""
    given = attributes(node)
    if given.get("coordinate_transformation_mode", b"half_pixel") not in _COORDINATES:
        return "its coordinate_transformation_mode"
    if given.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        return "keep_aspect_ratio_policy is ignored"
    for name in ("antialias", "exclude_outside", "axes"):
        if given.get(name):
            return f"{name} is ignored"
    return "ties are rounded otherwise" if given.get("nearest_mode") == b"round_prefer_ceil" else ""


def _indexed_difference(node: onnx.NodeProto, context: Context) -> str:  # noqa: ARG001
    """OpenVINO combines elements in an order of its own."""
    is_combined = attributes(node).get("reduction", b"none") != b"none"
    return "elements are combined in an order of its own" if is_combined else ""


def _softmax_difference(node: onnx.NodeProto, context: Context) -> str:
    """OpenVINO normalizes one axis, which is the meaning since version 13."""
    version = since_version(node, context.graph.opsets[""])
    return f"version {version} normalizes several axes at once" if version == _SOFTMAX_OF_SEVERAL_AXES else ""


def _pad_difference(node: onnx.NodeProto, context: Context) -> str:
    """OpenVINO pads with zero where the value is no constant; pads that change with every run have not been tried.

    Pads that are computed from sizes are constant once these are known, which is when the partition is compiled.
    """
    names = (*node.input[1:], "", "", "")[:3]
    pads, value, axes = (bool(name) and constant_array(context.graph, name) is None for name in names)
    if attributes(node).get("mode", b"constant") == b"constant" and value:
        return "its value is ignored"
    pads = pads and names[0] not in context.known.counted
    return f"its {'pads' if pads else 'axes'} are not the same in every run" if pads or axes else ""


_KEPT = tuple(map(np.dtype, ("float32", "bool")))
_READ = tuple(map(np.dtype, ("uint8", "int8", "int32")))
_COUNTS = tuple(map(np.dtype, ("int32", "int64")))
_LIMIT = 2**31
_MOST_ELEMENTS = 64
_MOST_AXES = 5
_COUNT = {"Shape", "Size", "ArgMax", "ArgMin"}
_MOVES = {"Gather", "Slice", "Squeeze", "Unsqueeze", "Reshape", "Identity", "Flatten", "Transpose", "Expand"}
_INDEXED = {"GatherElements", "GatherND", "ScatterElements", "ScatterND"}
_COMBINE = {
    *_INDEXED,
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Concat",
    "Cast",
    "Floor",
    "Ceil",
    "Max",
    "Min",
    "ConstantOfShape",
    "Where",
}

_COORDINATES = (b"half_pixel", b"pytorch_half_pixel", b"asymmetric", b"align_corners")
_SOFTMAX_OF_SEVERAL_AXES = 11
OPERATORS = frozenset(
    (
        "Abs", "Add", "And", "ArgMax", "ArgMin", "AveragePool", "BatchNormalization", "Cast", "Ceil", "Celu", "Clip",
        "Concat", "ConstantOfShape", "Conv", "ConvTranspose", "Cos", "DepthToSpace", "Div", "Dropout", "Einsum", "Elu",
        "Equal", "Erf", "Exp", "Expand", "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Gelu", "Gemm",
        "GlobalAveragePool", "GlobalMaxPool", "Greater", "GreaterOrEqual", "GroupNormalization", "HardSigmoid",
        "HardSwish", "Hardmax", "Identity", "InstanceNormalization", "IsInf", "IsNaN", "LRN", "LayerNormalization",
        "LeakyRelu", "Less", "LessOrEqual", "Log", "LogSoftmax", "LpNormalization", "LpPool", "MatMul", "Max",
        "MaxPool", "Mean", "MeanVarianceNormalization", "Min", "Mish", "Mul", "Neg", "Not", "Or", "PRelu", "Pad", "Pow",
        "RMSNormalization", "Reciprocal", "ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
        "ReduceSum", "Relu", "Reshape", "Resize", "Round", "ScatterElements", "ScatterND", "Selu", "Shape", "Shrink",
        "Sigmoid", "Sign", "Sin", "Size", "Slice", "Softmax", "Softplus", "Softsign", "SpaceToDepth", "Split", "Sqrt",
        "Squeeze", "Sub", "Sum", "Swish", "Tanh", "ThresholdedRelu", "Tile", "Transpose", "Unsqueeze", "Where",
    )
)  # fmt: skip
"""Operators that OpenVINO computes as onnx's own tests of them expect it; some with some attributes alone."""

_RULES: dict[str, Callable[[onnx.NodeProto, Context], str]] = {
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _pool_difference),
    **dict.fromkeys(_INDEXED, _indexed_difference),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "Softmax"), _softmax_difference),
    "ConvTranspose": _conv_transpose_difference,
    "Pad": _pad_difference,
    "Resize": _resize_difference,
    "SpaceToDepth": lambda node, _: "its mode is ignored" if attributes(node).get("mode", b"DCR") != b"DCR" else "",
}
"""By operator, the reason why OpenVINO may differ, "" if it does not."""
