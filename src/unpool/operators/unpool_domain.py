"""Operators of the domain `unpool`: their table, and from the attributes of a node to its spec.

MaxPool, MaxUnpool and ConvTranspose have the standard's attributes, and some that say what their node means: the opset
of the model that it stood in, its layout, and the settings of a session. Where one is left out, the session's holds.
The others are operators that a pass fuses.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from unpool.operators import attributes as read
from unpool.operators import contract, conv, normalization, registry, resolve, snake
from unpool.operators.attributes import DEFAULTS, Attributes
from unpool.operators.attributes import Settings as Settings
from unpool.operators.contract import AttributeType
from unpool.operators.conv import ConvSpec
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


class UnpoolOperator(NamedTuple):
    """An operator of the domain, as a schema has it."""

    version: contract.OperatorVersion
    text: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    resolve: Callable[[Attributes, Settings], Spec]
    packs_weights: bool = False
    """True if the weights of a compiled node are packed: its inputs after X are the constants of its plans."""

    @property
    def name(self) -> str:
        """The operator type of nodes."""
        return self.version.operator

    @property
    def attributes(self) -> Mapping[str, AttributeType]:
        """All attributes."""
        standard = registry.OPERATORS.get(self.name)
        return {**self.version.attributes, **({} if standard is None else standard.settings)}


def spec(operator: str, attributes: Attributes, settings: Settings = DEFAULTS) -> Spec:
    """The checked attributes of a node; in `attributes`, None means not set.

    Raises:
        UnpoolError: an attribute is missing, unknown, ill-typed or out of range.

    >>> spec("MaxPool", {"kernel_shape": [2, 2], "opset": 13, "channels_last": 1}).version.is_channels_last
    True
    """
    return OPERATORS[operator].resolve(attributes, settings)


def _resolve_standard(operator: str) -> Callable[[Attributes, Settings], Spec]:
    """The function from attributes to the spec of one of the standard's three operators."""

    def resolve_node(attributes: Attributes, settings: Settings) -> Spec:
        given = {name: value for name, value in attributes.items() if value is not None}
        own = {
            name: read.typed(f"{operator}: {name}", kind, given.pop(name))
            for name, kind in registry.OPERATORS[operator].settings.items()
            if name in given
        }
        is_last = read.is_set(operator, own, "channels_last")
        exact = read.is_set(operator, own, "exact", default=settings.exact)
        stated = {name: own[name] for name in Settings._fields if name in own} | {"exact": exact}
        settings = settings._replace(**stated)
        version = contract.version_in_layout(operator, settings.opset, channels_last=is_last)
        return resolve.from_version(version, given, settings)

    return resolve_node


_X, _Y, _LIKE_X = Tensor("X", "(N, C, D1..Dk)"), Tensor("Y", "(N, C, d1..dk)"), Tensor("Y", "as X")
_W, _B = Tensor("W", "weights, as the standard has them"), Tensor("B", "(M,): the bias", is_optional=True)
_RESIDUAL = Tensor("residual", "added; as X", is_optional=True)

_TABLE = (
    UnpoolOperator(
        contract.newest("MaxPool", channels_last=False), "MaxPool of the standard, and an activation.",
        (_X,), (_Y, Tensor("Indices", "(N, C, d1..dk)", "int64", is_optional=True)),
        _resolve_standard("MaxPool"),
    ),
    UnpoolOperator(
        contract.newest("MaxUnpool", channels_last=False), "MaxUnpool of the standard, and an activation.",
        (_X, Tensor("I", "the Indices of the pool", "int64"),
         Tensor("output_shape", "(k + 2,)", "int64", is_optional=True)), (_Y,),
        _resolve_standard("MaxUnpool"),
    ),
    UnpoolOperator(
        contract.newest("ConvTranspose", channels_last=False), "ConvTranspose of the standard, and an activation.",
        (_X, _W, _B), (_Y,),
        _resolve_standard("ConvTranspose"), packs_weights=True,
    ),
    UnpoolOperator(
        conv.VERSION, "Conv of stride 1, and an activation, by the algorithms of ConvTranspose.",
        (_X, _W, _B), (_Y,),
        lambda attributes, settings: conv.resolve(attributes, exact=settings.exact), packs_weights=True,
    ),
    UnpoolOperator(
        snake.VERSION, "Y = total + magnitude * sin(frequency * total)^2, total = X + residual.",
        (Tensor("X", "(N, C, ...)"), Tensor("factors", "(2, C): frequencies, then magnitudes"), _RESIDUAL),
        (_LIKE_X, Tensor("total", "X + residual", is_optional=True)),
        lambda attributes, _: snake.resolve(attributes),
    ),
    UnpoolOperator(
        normalization.VERSION, "InstanceNormalization of the standard, also of an X without elements.",
        (Tensor("X", "(N, C, ...)"), Tensor("scale", "(C,)"), Tensor("B", "(C,): added by channel")), (_LIKE_X,),
        lambda attributes, _: normalization.resolve(attributes),
    ),
)  # fmt: skip
OPERATORS: Mapping[str, UnpoolOperator] = MappingProxyType({each.name: each for each in _TABLE})
"""The operators by name."""
