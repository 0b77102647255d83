"""The rule of every operator, and the reasons why common operators have none."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import onnx

from unpool.graph.nodes import attributes, domain, has_subgraphs, is_unpool_op, reads
from unpool.graph.operators import OperatorFact, having
from unpool.runtime.tiles.rules import layout, pointwise, resize, windows
from unpool.runtime.tiles.walk import GraphWalk, refusal

Rule: TypeAlias = Callable[[GraphWalk, onnx.NodeProto], None]

_WINDOW = ("kernel_shape", "strides", "pads", "dilations", "auto_pad")

_ROWS: tuple[tuple[Rule, Iterable[str], tuple[str, ...]], ...] = (
    (pointwise.elementwise, having(OperatorFact.UNARY, OperatorFact.BROADCASTING), ()),
    (pointwise.elementwise, ("BitShift",), ("direction",)),
    (pointwise.elementwise, ("Celu", "Elu", "LeakyRelu", "Swish", "ThresholdedRelu"), ("alpha",)),
    (pointwise.elementwise, ("Clip",), ("min", "max")),
    (pointwise.elementwise, ("Gelu",), ("approximate",)),
    (pointwise.elementwise, ("HardSigmoid",), ("alpha", "beta")),
    (pointwise.elementwise, ("IsInf",), ("detect_negative", "detect_positive")),
    (pointwise.elementwise, ("Mod",), ("fmod",)),
    (pointwise.elementwise, ("Selu",), ("alpha", "gamma")),
    (pointwise.elementwise, ("Shrink",), ("bias", "lambd")),
    (pointwise.per_channel, ("BatchNormalization",), ("epsilon", "momentum", "training_mode")),
    (pointwise.per_channel, ("Cast",), ("to", "saturate", "round_mode")),
    (pointwise.per_channel, ("CastLike",), ("saturate", "round_mode")),
    (pointwise.per_channel, ("DequantizeLinear",), ("axis", "output_dtype")),
    (pointwise.per_channel, ("QuantizeLinear",), ("axis", "saturate", "output_dtype", "precision")),
    (pointwise.per_channel, ("Dropout",), ("ratio", "seed")),
    (pointwise.per_channel, ("LRN",), ("alpha", "beta", "bias", "size")),
    (pointwise.along_axis, ("CumSum",), ("exclusive", "reverse")),
    (pointwise.along_axis, ("Hardmax", "LogSoftmax", "Softmax"), ("axis",)),
    (pointwise.along_axis, ("LayerNormalization",), ("axis", "epsilon", "stash_type")),
    (pointwise.along_axis, ("LpNormalization",), ("axis", "p")),
    (pointwise.reduce, ("ArgMax", "ArgMin"), ("axis", "keepdims", "select_last_index")),
    (pointwise.reduce, having(OperatorFact.REDUCING), ("axes", "keepdims", "noop_with_empty_axes")),
    (pointwise.mat_mul, ("MatMul",), ()),
    (pointwise.top_k, ("TopK",), ("axis", "k", "largest", "sorted")),
    (windows.conv, ("Conv", "ConvInteger", "QLinearConv"), (*_WINDOW, "group")),
    (windows.pool, ("AveragePool",), (*_WINDOW, "ceil_mode", "count_include_pad")),
    (windows.pool, ("LpPool",), (*_WINDOW, "ceil_mode", "p")),
    (windows.max_pool_rule, ("MaxPool",), (*_WINDOW, "ceil_mode", "storage_order")),
    (windows.max_unpool_rule, ("MaxUnpool",), ("kernel_shape", "strides", "pads")),
    (windows.conv_transpose_rule, ("ConvTranspose",), (*_WINDOW, "group", "output_padding", "output_shape")),
    (layout.concat, ("Concat",), ("axis",)),
    (layout.depth_to_space, ("DepthToSpace",), ("blocksize", "mode")),
    (layout.depth_to_space, ("SpaceToDepth",), ("blocksize",)),
    (layout.expand, ("Expand",), ()),
    (layout.gather, ("Gather",), ("axis",)),
    (layout.pad, ("Pad",), ("mode", "pads", "value")),
    (layout.reshape, ("Flatten",), ("axis",)),
    (layout.reshape, ("Reshape",), ("allowzero",)),
    (layout.slice_axes, ("Slice",), ("axes", "ends", "starts")),
    (layout.split, ("Split",), ("axis", "num_outputs", "split")),
    (layout.squeeze, ("Squeeze",), ("axes",)),
    (layout.transpose, ("Transpose",), ("perm",)),
    (layout.unsqueeze, ("Unsqueeze",), ("axes",)),
    (resize.resize, ("Resize",), (
        "antialias", "axes", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside",
        "extrapolation_value", "keep_aspect_ratio_policy", "mode", "nearest_mode",
    )),
    (resize.resize, ("Upsample",), ("mode", "scales")),
)  # fmt: skip
"""Rules, their operators, and the attributes of these that the rule describes; a node with any other is refused. The
last row of an operator holds.
`python -m tools.campaigns.tiles` draws every value of each attribute."""

RULES: Mapping[str, Rule] = MappingProxyType({name: rule for rule, names, _ in _ROWS for name in names})

ATTRIBUTES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {name: described for _, names, described in _ROWS for name in names}
)

IN_PLACE = frozenset(name for name, rule in RULES.items() if rule in (pointwise.elementwise, pointwise.per_channel))
"""Operators that may write their output over an input."""

ROUNDED = having(OperatorFact.ROUNDED)
"""Operators whose last bits depend on where an element lies in its array: onnxruntime computes most elements in
vectors, and the last few of an array one by one, with another rounding."""

REASONS: Mapping[str, str] = MappingProxyType(
    {
        operator: reason
        for reason, operators in {
            "pools the whole image": "GlobalAveragePool GlobalLpPool GlobalMaxPool",
            "normalises over the image": "GroupNormalization InstanceNormalization MeanVarianceNormalization",
            "multiplies positions of the image with each other": "Attention Einsum Gemm",
            "scales by the extremes of the image": "DynamicQuantizeLinear",
            "reads at positions from another input": "GridSample RoiAlign MaxRoiPool",
            "makes a number of elements that depends on their values": "NonZero NonMaxSuppression Unique",
        }.items()
        for operator in operators.split()
    }
)


def apply(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """Record the outputs of a node; one that cannot be tiled exactly is refused with the reason."""
    if walk.fields.keys().isdisjoint(reads(node)):
        walk.evaluate(node)
    elif has_subgraphs(node):
        raise refusal(node, "has subgraphs")
    elif node.op_type in ("Shape", "Size") and domain(node) == "":
        shape, attrs = walk.fields[node.input[0]].shape, attributes(node)
        sizes = shape[attrs.get("start", 0) : attrs.get("end", len(shape))]
        numbers = np.prod(shape, dtype=np.int64) if node.op_type == "Size" else np.array(sizes, np.int64)
        walk.set_numbers(node.output[0], np.asarray(numbers), is_sized=True)
    elif not walk.pool_indices.keys().isdisjoint(node.input[::2] if node.op_type == "MaxUnpool" else node.input):
        windows.plane_indices(walk, node)
    elif node.op_type in RULES and (domain(node) == "" or is_unpool_op(node)):
        unknown = [attribute.name for attribute in node.attribute if attribute.name not in ATTRIBUTES[node.op_type]]
        if unknown and not is_unpool_op(node):  # those of unpool's operators are checked with their versions
            raise refusal(node, f"has the attribute {unknown[0]!r}, which no rule of exact tiles describes")
        RULES[node.op_type](walk, node)
        walk.record_numbers(node)
    else:
        raise refusal(node, REASONS.get(node.op_type, "has no rule of exact tiles"))
