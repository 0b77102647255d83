"""InstanceNormalization and GroupNormalization with a sum and an activation: attributes to a spec.

    Y = activation((X - mean) / sqrt(variance + epsilon) * scale + B + residual)

Mean and biased variance are those of a group of neighbouring channels of one image. Source: ONNX InstanceNormalization,
with a group for each channel, and GroupNormalization 21.
"""

from dataclasses import dataclass, replace
from types import MappingProxyType

from unpool.errors import ShapeError, UnpoolError, UnsupportedError
from unpool.operators import attributes as read
from unpool.operators.attributes import Activation, Attributes
from unpool.operators.contract import AttributeType, OperatorVersion
from unpool.operators.tensors import Shape, check_like

SIMPLE_ACTIVATIONS = ("Relu", "LeakyRelu", "Clip")
DEFAULT_EPSILON = 1e-5
_ATTRIBUTES = {
    "epsilon": AttributeType.FLOAT,
    "activation": AttributeType.STRING,
    "activation_params": AttributeType.FLOATS,
}
INSTANCE_VERSION = OperatorVersion(
    "InstanceNormalization", "unpool", None, MappingProxyType(_ATTRIBUTES), frozenset(), ("float32", "float64"),
    ("X", "scale", "B", "residual"), 3, ("Y",),
)  # fmt: skip
GROUP_VERSION = replace(
    INSTANCE_VERSION,
    operator="GroupNormalization",
    attributes=MappingProxyType({**_ATTRIBUTES, "num_groups": AttributeType.INT}),
    required=frozenset({"num_groups"}),
)


@dataclass(frozen=True, slots=True)
class NormalizationSpec:
    """The attributes of one normalization; `groups` is None for one of every channel."""

    version: OperatorVersion
    groups: int | None
    epsilon: float
    activation: Activation | None


def resolve(version: OperatorVersion, attributes: Attributes) -> NormalizationSpec:
    """The checked attributes of a normalization."""
    given = read.check(version, attributes)
    epsilon, groups, activation = (
        given.get("epsilon", DEFAULT_EPSILON), given.get("num_groups"), read.activation_of(version, given)
    )  # fmt: skip
    if not 0 < epsilon < float("inf"):
        raise UnpoolError(f"{version.label}: epsilon needs a finite number above 0, got {epsilon}.")
    if groups is not None and not 1 <= groups <= read.LARGEST:
        raise UnpoolError(f"{version.label}: num_groups needs a value of 1 or more, got {groups}.")
    if activation is not None and activation.name not in SIMPLE_ACTIVATIONS:
        raise UnsupportedError(
            f"{version.label}: expected one of {', '.join(SIMPLE_ACTIVATIONS)} as the activation, got "
            f"{activation.name}. Use a node of its own."
        )
    if activation is not None and any(value != value for value in activation.params):
        raise UnpoolError(f"{version.label}: activation_params needs numbers, got {list(activation.params)}.")
    return NormalizationSpec(version, groups, epsilon, activation)


def check_shapes(spec: NormalizationSpec, x: Shape, scale: Shape, shift: Shape, residual: Shape | None) -> int:
    """The number of groups, after the check of shapes: X and the residual are (N, C, ...), the others (C,)."""
    check_like(spec.version, x, residual)
    channels = x[1]
    groups = channels if spec.groups is None else spec.groups
    for name, shape in (("scale", scale), ("B", shift)):
        if shape != (channels,):
            raise ShapeError(f"{spec.version.label}: {name} needs shape ({channels},), one per channel, got {shape}.")
    if groups and channels % groups:
        raise ShapeError(f"{spec.version.label}: num_groups needs to divide {channels} channels, got {groups}.")
    return groups
