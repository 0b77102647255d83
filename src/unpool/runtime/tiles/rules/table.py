"""The rule of every operator, and the reasons why common operators have none."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import onnx

from unpool.runtime.graph.nodes import attributes, domain, has_subgraphs, is_unpool_op
from unpool.runtime.tiles.rules import layout, pointwise, resize, windows
from unpool.runtime.tiles.walk import GraphWalk, refusal

Rule: TypeAlias = Callable[[GraphWalk, onnx.NodeProto], None]

_ELEMENTWISE = (
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift", "BitwiseAnd", "BitwiseNot",
    "BitwiseOr", "BitwiseXor", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Div", "Elu", "Equal", "Erf", "Exp", "Floor",
    "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu",
    "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow",
    "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt",
    "Sub", "Sum", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Where", "Xor",
)  # fmt: skip
_PER_CHANNEL = (
    "BatchNormalization", "Cast", "CastLike", "DequantizeLinear", "Dropout", "LRN", "QuantizeLinear",
)  # fmt: skip
_ALONG = (
    "CumSum", "Hardmax", "LayerNormalization", "LogSoftmax", "LpNormalization", "Softmax",
)  # fmt: skip
_REDUCING = (
    "ArgMax", "ArgMin", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **dict.fromkeys(_ELEMENTWISE, pointwise.elementwise),
        **dict.fromkeys(_PER_CHANNEL, pointwise.per_channel),
        **dict.fromkeys(_ALONG, pointwise.along_axis),
        **dict.fromkeys(_REDUCING, pointwise.reduce),
        "MatMul": pointwise.mat_mul,
        "TopK": pointwise.top_k,
        **dict.fromkeys(("Conv", "ConvInteger", "QLinearConv"), windows.conv),
        **dict.fromkeys(("AveragePool", "LpPool"), windows.pool),
        "MaxPool": windows.max_pool_rule,
        "MaxUnpool": windows.max_unpool_rule,
        "ConvTranspose": windows.conv_transpose_rule,
        "Concat": layout.concat,
        **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), layout.depth_to_space),
        "Expand": layout.expand,
        "Gather": layout.gather,
        "Pad": layout.pad,
        **dict.fromkeys(("Flatten", "Reshape"), layout.reshape),
        "Slice": layout.slice_axes,
        "Split": layout.split,
        "Squeeze": layout.squeeze,
        "Transpose": layout.transpose,
        "Unsqueeze": layout.unsqueeze,
        **dict.fromkeys(("Resize", "Upsample"), resize.resize),
    }
)

_NORM = ("axis", "epsilon", "stash_type")
_REDUCED = ("axes", "keepdims", "noop_with_empty_axes")
_WINDOWED = ("kernel_shape", "strides", "pads", "dilations", "auto_pad")
_QUANTIZED = ("axis", "saturate", "output_dtype", "precision")

ATTRIBUTES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "BitShift": ("direction",),
        **dict.fromkeys(("Celu", "Elu", "LeakyRelu", "Swish", "ThresholdedRelu"), ("alpha",)),
        "Clip": ("min", "max"),
        "Gelu": ("approximate",),
        "HardSigmoid": ("alpha", "beta"),
        "IsInf": ("detect_negative", "detect_positive"),
        "Mod": ("fmod",),
        "Selu": ("alpha", "gamma"),
        "Shrink": ("bias", "lambd"),
        "BatchNormalization": ("epsilon", "momentum", "training_mode"),
        "Cast": ("to", "saturate", "round_mode"),
        "CastLike": ("saturate", "round_mode"),
        "DequantizeLinear": ("axis", "output_dtype"),
        "QuantizeLinear": _QUANTIZED,
        "Dropout": ("ratio", "seed"),
        "LRN": ("alpha", "beta", "bias", "size"),
        "CumSum": ("exclusive", "reverse"),
        **dict.fromkeys(("Hardmax", "LogSoftmax", "Softmax"), ("axis",)),
        "LayerNormalization": _NORM,
        "LpNormalization": ("axis", "p"),
        **dict.fromkeys(("ArgMax", "ArgMin"), ("axis", "keepdims", "select_last_index")),
        **dict.fromkeys(_REDUCING[2:], _REDUCED),
        "TopK": ("axis", "k", "largest", "sorted"),
        **dict.fromkeys(("Conv", "ConvInteger", "QLinearConv"), (*_WINDOWED, "group")),
        "AveragePool": (*_WINDOWED, "ceil_mode", "count_include_pad"),
        "LpPool": (*_WINDOWED, "ceil_mode", "p"),
        "MaxPool": (*_WINDOWED, "ceil_mode", "storage_order"),
        "MaxUnpool": ("kernel_shape", "strides", "pads"),
        "ConvTranspose": (*_WINDOWED, "group", "output_padding", "output_shape"),
        **dict.fromkeys(("Concat", "Flatten", "Gather"), ("axis",)),
        "DepthToSpace": ("blocksize", "mode"),
        "SpaceToDepth": ("blocksize",),
        "Pad": ("mode", "pads", "value"),
        "Reshape": ("allowzero",),
        "Slice": ("axes", "ends", "starts"),
        "Split": ("axis", "num_outputs", "split"),
        **dict.fromkeys(("Squeeze", "Unsqueeze"), ("axes",)),
        "Transpose": ("perm",),
        "Resize": (
            "antialias", "axes", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside",
            "extrapolation_value", "keep_aspect_ratio_policy", "mode", "nearest_mode",
        ),
        "Upsample": ("mode", "scales"),
    }
)  # fmt: skip
"""By operator, the attributes that its rule describes. A node with any other is refused; operators without any are
not listed. `python -m tests.campaigns.tiles` draws every value of each of them."""

IN_PLACE = frozenset((*_ELEMENTWISE, *_PER_CHANNEL))
"""Operators that may write their output over an input."""

ROUNDED = frozenset(
    (
        "Acos", "Asin", "Atan", "Celu", "Cos", "Elu", "Exp", "Gelu", "LRN", "Log", "Mish", "Selu", "Sigmoid", "Sin",
        "Softplus", "Swish", "Tan", "Tanh",
    )
)  # fmt: skip
"""Operators whose last bits depend on where an element lies in its array: onnxruntime computes most elements in
vectors, and the last few of an array one by one, with another rounding."""

REASONS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"), "pools the whole image"),
        **dict.fromkeys(
            ("GroupNormalization", "InstanceNormalization", "MeanVarianceNormalization"), "normalises over the image"
        ),
        **dict.fromkeys(("Attention", "Einsum", "Gemm"), "multiplies positions of the image with each other"),
        "DynamicQuantizeLinear": "scales by the extremes of the image",
        **dict.fromkeys(("GridSample", "RoiAlign", "MaxRoiPool"), "reads wherever its other input says"),
        **dict.fromkeys(
            ("NonZero", "NonMaxSuppression", "Unique"), "makes a number of elements that depends on their values"
        ),
    }
)


def apply(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """Record the outputs of a node.

    Raises:
        UnsupportedError: it cannot be tiled exactly; the message says why.
    """
    if not walk.is_tiled(node):
        walk.evaluate(node)
    elif has_subgraphs(node):
        raise refusal(node, "has a body of its own")
    elif node.op_type in ("Shape", "Size") and domain(node) == "":
        _shape_numbers(walk, node)
    elif any(
        name in walk.pool_indices
        for number, name in enumerate(node.input)
        if (node.op_type, number) != ("MaxUnpool", 1)
    ):
        windows.plane_indices(walk, node)
    elif node.op_type in RULES and (domain(node) == "" or is_unpool_op(node)):
        _check_attributes(node)
        RULES[node.op_type](walk, node)
        walk.record_numbers(node)
    else:
        raise refusal(node, REASONS.get(node.op_type, "has no rule of exact tiles"))


def _check_attributes(node: onnx.NodeProto) -> None:
    """Refuse attributes that no rule describes; those of operators of ours are checked with their versions."""
    known = ATTRIBUTES.get(node.op_type, ())
    unknown = [attribute.name for attribute in node.attribute if attribute.name not in known]
    if unknown and not is_unpool_op(node):
        raise refusal(node, f"has the attribute {unknown[0]!r}, which no rule of exact tiles describes")


def _shape_numbers(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """Shape and Size: numbers that depend on the size of the image."""
    shape = walk.fields[node.input[0]].shape
    attrs = attributes(node)
    sizes = shape[attrs.get("start", 0) : attrs.get("end", len(shape))]
    numbers = np.prod(shape, dtype=np.int64) if node.op_type == "Size" else np.array(sizes, np.int64)
    walk.set_numbers(node.output[0], np.asarray(numbers), is_sized=True)
