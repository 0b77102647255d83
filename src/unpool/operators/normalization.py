"""InstanceNormalization: attributes to a spec. Source: ONNX InstanceNormalization.

    Y = (X - mean) / sqrt(variance + epsilon) * scale + B

Mean and biased variance are those of a channel of one image.
"""

from dataclasses import dataclass
from types import MappingProxyType

from unpool.errors import ShapeError, UnpoolError
from unpool.operators import attributes as read
from unpool.operators.attributes import Attributes
from unpool.operators.contract import AttributeType, OperatorVersion
from unpool.operators.tensors import Shape, check_like

DEFAULT_EPSILON = 1e-5
VERSION = OperatorVersion(
    "InstanceNormalization", "unpool", None, MappingProxyType({"epsilon": AttributeType.FLOAT}), frozenset(),
    ("float32", "float64"), ("X", "scale", "B"), 3, ("Y",),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NormalizationSpec:
    """The attribute of one normalization."""

    version: OperatorVersion
    epsilon: float


def resolve(attributes: Attributes) -> NormalizationSpec:
    """The checked attribute of a normalization."""
    epsilon = read.check(VERSION, attributes).get("epsilon", DEFAULT_EPSILON)
    if not 0 < epsilon < float("inf"):
        raise UnpoolError(f"{VERSION.label}: epsilon needs a finite number above 0, got {epsilon}.")
    return NormalizationSpec(VERSION, epsilon)


def check_shapes(spec: NormalizationSpec, x: Shape, scale: Shape, shift: Shape) -> None:
    """Refuse an X that is not (N, C, ...), and others that are not (C,)."""
    check_like(spec.version, x, None)
    for name, shape in (("scale", scale), ("B", shift)):
        if shape != (x[1],):
            raise ShapeError(f"{spec.version.label}: {name} needs shape ({x[1]},), one per channel, got {shape}.")
