"""Operators of the domain `unpool`: attributes to a spec.

MaxPool, MaxUnpool and ConvTranspose have the standard's attributes, and some that say what their node means: the opset
of the model that it stood in, its layout, and the settings of a session. Where one is left out, the session's holds.
"""

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from unpool.errors import UnpoolError
from unpool.operators import attributes as read
from unpool.operators import contract, resolve
from unpool.operators.attributes import Attributes
from unpool.operators.contract import AttributeType
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.resolve import Spec

DOMAIN = "unpool"
VERSION = 1
MEANING = MappingProxyType(
    {"opset": AttributeType.INT, "channels_last": AttributeType.INT, "compat": AttributeType.STRING}
)
"""Attributes of all three operators beside the standard's."""
SETTINGS = MappingProxyType(
    {
        "MaxPool": MEANING,
        "MaxUnpool": {**MEANING, "index_space": AttributeType.STRING},
        "ConvTranspose": {**MEANING, "exact": AttributeType.INT},
    }
)
"""By operator, its attributes beside the standard's."""


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
    """
    given = {name: value for name, value in attributes.items() if value is not None}
    own = {
        name: read.typed(f"{operator}: {name}", kind, given.pop(name))
        for name, kind in SETTINGS[operator].items()
        if name in given
    }
    row = contract.row_in_layout(
        operator, own.get("opset", settings.opset), channels_last=_flag(operator, own, "channels_last", False)
    )
    compat, index_space = own.get("compat", settings.compat), own.get("index_space", settings.index_space)
    result = resolve.from_row(row, given, compat=compat, index_space=index_space)
    if isinstance(result, ConvTransposeSpec):
        result = replace(result, is_exact=_flag(operator, own, "exact", settings.exact))
    return result


def _flag(operator: str, given: dict[str, Any], name: str, default: bool) -> bool:
    value = given.get(name, default)
    if value not in (0, 1):
        raise UnpoolError(f"{operator}: {name} is 0 or 1, got {value}.")
    return bool(value)
