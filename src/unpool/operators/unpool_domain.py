"""Operators of the domain `unpool`: their table, and from the attributes of a node to its spec.

MaxPool, MaxUnpool and ConvTranspose have the standard's attributes, and some that say what their node means: the opset
of the model that it stood in, its layout, and the settings of a session. Where one is left out, the session's holds.
The others are operators that a pass fuses.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from unpool.operators import attributes as read
from unpool.operators import contract, conv, normalization, resolve, snake
from unpool.operators.attributes import Attributes
from unpool.operators.contract import AttributeType
from unpool.operators.conv import ConvSpec
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.normalization import NormalizationSpec
from unpool.operators.snake import SnakeSpec

DOMAIN = "unpool"
VERSION = 1

Spec: TypeAlias = resolve.Spec | ConvSpec | SnakeSpec | NormalizationSpec


class Tensor(NamedTuple):
    """An input or output of an operator."""

    name: str
    text: str
    type: str = "T"  # or "int64"
    is_optional: bool = False


@dataclass(frozen=True)
class UnpoolOperator:
    """An operator of the domain, as a schema has it."""

    name: str
    text: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    attributes: Mapping[str, AttributeType]
    required: frozenset[str]
    value_types: tuple[str, ...]  # of T
    packs_weights: bool = False
    """True if the weights of a compiled node are packed: its inputs after X are the constants of its plans."""


_X, _Y = Tensor("X", "(N, C, D1..Dk)"), Tensor("Y", "(N, C, d1..dk)")
_W, _B = Tensor("W", "weights, as the standard has them"), Tensor("B", "(M,): the bias", is_optional=True)
_SHIFT, _RESIDUAL = Tensor("B", "(C,): added by channel"), Tensor("residual", "added; as X", is_optional=True)
_NORMALIZED = (Tensor("X", "(N, C, ...)"), Tensor("scale", "(C,)"), _SHIFT, _RESIDUAL)
_MEANING = {"opset": AttributeType.INT, "channels_last": AttributeType.INT, "compat": AttributeType.STRING}


def _operator(
    row: contract.Row,
    text: str,
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    own: Mapping[str, AttributeType] = MappingProxyType({}),
) -> UnpoolOperator:
    """The operator of a row with more attributes."""
    attributes = MappingProxyType({**row.attributes, **own})
    packs_weights = row.operator in ("Conv", "ConvTranspose")
    return UnpoolOperator(row.operator, text, inputs, outputs, attributes, row.required, row.value_types, packs_weights)


def _newest(name: str) -> contract.Row:
    return contract.newest(name, channels_last=False)


OPERATORS: Mapping[str, UnpoolOperator] = MappingProxyType(
    {
        each.name: each
        for each in (
            _operator(
                _newest("MaxPool"), "MaxPool of the standard, and an activation.", (_X,),
                (_Y, Tensor("Indices", "(N, C, d1..dk)", "int64", is_optional=True)), _MEANING,
            ),
            _operator(
                _newest("MaxUnpool"), "MaxUnpool of the standard, and an activation.",
                (_X, Tensor("I", "the Indices of the pool", "int64"),
                 Tensor("output_shape", "(k + 2,)", "int64", is_optional=True)),
                (_Y,), {**_MEANING, "index_space": AttributeType.STRING},
            ),
            _operator(
                _newest("ConvTranspose"), "ConvTranspose of the standard, and an activation.", (_X, _W, _B), (_Y,),
                {**_MEANING, "exact": AttributeType.INT},
            ),
            _operator(
                conv.ROW, "Conv of stride 1, and an activation, by the algorithms of ConvTranspose.", (_X, _W, _B),
                (_Y,),
            ),
            _operator(
                snake.ROW, "Y = total + magnitude * sin(frequency * total)^2, total = X + residual.",
                (Tensor("X", "(N, C, ...)"), Tensor("factors", "(2, C): frequencies, then magnitudes"), _RESIDUAL),
                (Tensor("Y", "as X"), Tensor("total", "X + residual", is_optional=True)),
            ),
            _operator(
                normalization.INSTANCE_ROW,
                "Y = activation((X - mean) / sqrt(variance + epsilon) * scale + B + residual), of every channel.",
                _NORMALIZED, (Tensor("Y", "as X"),),
            ),
            _operator(
                normalization.GROUP_ROW, "As InstanceNormalization, of num_groups groups of neighbouring channels.",
                _NORMALIZED, (Tensor("Y", "as X"),),
            ),
        )
    }
)  # fmt: skip
"""The operators by name."""


@dataclass(frozen=True)
class Settings:
    """What a session says about the nodes that do not say it."""

    opset: int | None = None
    compat: str = "spec"
    index_space: str = "auto"
    exact: bool = False


def spec(operator: str, attributes: Attributes, settings: Settings = Settings()) -> Spec:
    """The checked attributes of a node; in `attributes`, None means not set.

    Raises:
        UnpoolError: an attribute is missing, unknown, ill-typed or out of range.

    >>> spec("MaxPool", {"kernel_shape": [2, 2], "opset": 13, "channels_last": 1}).row.is_channels_last
    True
    >>> spec("GroupNormalization", {"num_groups": 2}).epsilon
    1e-05
    """
    if operator == "Conv":
        return conv.resolve(attributes, exact=settings.exact)
    if operator == "Snake":
        return snake.resolve(attributes)
    if operator in ("InstanceNormalization", "GroupNormalization"):
        is_group = operator == "GroupNormalization"
        return normalization.resolve(normalization.GROUP_ROW if is_group else normalization.INSTANCE_ROW, attributes)
    return _standard_spec(operator, attributes, settings)


def _standard_spec(operator: str, attributes: Attributes, settings: Settings) -> resolve.Spec:
    given = {name: value for name, value in attributes.items() if value is not None}
    own: dict[str, Any] = {}
    for name in ("opset", "channels_last", "compat", "index_space", "exact"):
        kind = OPERATORS[operator].attributes.get(name)
        if kind is not None and name in given:
            own[name] = read.typed(f"{operator}: {name}", kind, given.pop(name))
    row = contract.row_in_layout(
        operator, own.get("opset", settings.opset), channels_last=read.is_set(operator, own, "channels_last")
    )
    compat, index_space = own.get("compat", settings.compat), own.get("index_space", settings.index_space)
    result = resolve.from_row(row, given, compat=compat, index_space=index_space)
    if not isinstance(result, ConvTransposeSpec):
        return result
    return result._replace(is_exact=read.is_set(operator, own, "exact", default=settings.exact))
