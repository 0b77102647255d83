"""Snake: the check of its inputs.

    total = X + residual
    Y = total + magnitude * sin(frequency * total)^2, by channel

Source: Ziyin, Hartwig and Ueda, "Neural Networks Fail to Learn Periodic Functions and How to Fix It" (2020).
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from unpool.errors import ShapeError
from unpool.operators.attributes import Attributes, check
from unpool.operators.contract import OperatorVersion
from unpool.operators.tensors import Shape, check_like

VERSION = OperatorVersion(
    "Snake", "unpool", None, MappingProxyType({}), frozenset(), ("float32", "float64"),
    ("X", "factors", "residual"), 2, ("Y", "total"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SnakeSpec:
    """A Snake, which has no attributes."""

    version: ClassVar[OperatorVersion] = VERSION


def resolve(attributes: Attributes) -> SnakeSpec:
    """The spec, after the check that there are no attributes."""
    check(VERSION, attributes)
    return SnakeSpec()


def check_shapes(x: Shape, factors: Shape, residual: Shape | None) -> None:
    """Refuse shapes that do not fit: X and the residual are (N, C, ...), the factors (2, C)."""
    check_like(VERSION, x, residual)
    if factors != (2, x[1]):
        raise ShapeError(
            f"{VERSION.label}: factors needs shape (2, {x[1]}), frequencies and magnitudes by channel, got {factors}."
        )
