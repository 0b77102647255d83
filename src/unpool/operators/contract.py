"""Every version of the three operators as data: attributes, types, inputs and outputs.

An opset number selects the newest row that is not above it. `com.ms.internal.nhwc` repeats the ONNX rows up to
12 / 11 / 11 with two more attributes. `newest` is the row of a call that names no opset.

Source: the ONNX operator schemas, and the schemas of `com.ms.internal.nhwc` in ONNX Runtime.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from unpool.dtypes import TYPES, StorageType
from unpool.errors import UnpoolError, UnsupportedError

OPERATORS = ("MaxPool", "MaxUnpool", "ConvTranspose")
INPUT_NAMES = {
    "MaxPool": ("X",),
    "MaxUnpool": ("X", "I", "output_shape"),
    "ConvTranspose": ("X", "W", "B"),
    "Conv": ("X", "W", "B"),
    "Snake": ("X", "factors", "residual"),
    "InstanceNormalization": ("X", "scale", "B", "residual"),
    "GroupNormalization": ("X", "scale", "B", "residual"),
}
"""By operator, the names of its inputs: the standard's, where it has them."""
NHWC = "com.ms.internal.nhwc"
DOMAINS = ("", NHWC)
NEWEST_OPSET = 28  # of ONNX, up to which no operator has a version that is not in the table


class AttributeType(Enum):
    """The attribute types that occur in the rows."""

    INT = "int"
    INTS = "ints"
    STRING = "string"
    FLOAT = "float"
    FLOATS = "floats"


class Switch(Enum):
    """The few changes of meaning between versions."""

    ODD_SIDE_SWAPPED = "with output_shape, SAME_UPPER puts an odd total's larger half at the beginning"
    OUTPUT_PADDING_UNBOUNDED = "output_padding has no upper bound"


@dataclass(frozen=True, eq=False)
class Row:
    """One operator in one version of one domain; `since_version` None accepts what the newest version accepts.

    There is one object per row, so rows are compared by identity.
    """

    operator: str
    domain: str
    since_version: int | None
    attributes: Mapping[str, AttributeType]
    required: frozenset[str]
    value_types: tuple[str, ...]
    min_inputs: int
    max_inputs: int
    max_outputs: int
    switches: frozenset[Switch] = frozenset()
    min_outputs: int = 1

    @cached_property
    def label(self) -> str:
        """Name of this row in error messages, such as `MaxPool-12`."""
        version = "" if self.since_version is None else f"-{self.since_version}"
        domain = f" ({self.domain})" if self.domain and self.since_version is not None else ""
        return f"{self.operator}{version}{domain}"

    @cached_property
    def dtypes(self) -> Mapping[np.dtype[Any], StorageType]:
        """The value types by NumPy dtype."""
        return {TYPES[name].dtype: TYPES[name] for name in self.value_types}

    @property
    def is_channels_last(self) -> bool:
        """True if input 0 and output 0 are (N, D1..Dk, C)."""
        return self.domain == NHWC

    def check_inputs(self, inputs: Sequence[object]) -> None:
        """Refuse missing and surplus inputs; None stands for one that is left out."""
        names = INPUT_NAMES[self.operator]
        if len(inputs) > self.max_inputs:
            raise UnpoolError(
                f"{self.label}: takes {self.max_inputs} input{'' if self.max_inputs == 1 else 's'} at most "
                f"({', '.join(names[: self.max_inputs])}), got {len(inputs)}. Leave the others out."
            )
        for number in range(self.min_inputs):
            if number >= len(inputs) or inputs[number] is None:
                raise UnpoolError(f"{self.label}: {names[number]} is required, got None. Pass an array.")

    def check_outputs(self, outputs: int) -> None:
        """Refuse a number of outputs that this version does not have."""
        if not 1 <= outputs <= self.max_outputs:
            raise UnpoolError(f"{self.label}: has 1 to {self.max_outputs} outputs, got {outputs} wanted.")


_INT, _INTS, _STRING = AttributeType.INT, AttributeType.INTS, AttributeType.STRING
_FLOATS = ("float16", "float32", "float64")
_WINDOW = {"kernel_shape": _INTS, "pads": _INTS, "strides": _INTS}
_POOL_1 = _WINDOW | {"auto_pad": _STRING}
_POOL_8 = _POOL_1 | {"storage_order": _INT}
_POOL_10 = _POOL_8 | {"ceil_mode": _INT, "dilations": _INTS}
_GROW = _POOL_1 | {"dilations": _INTS, "group": _INT, "output_padding": _INTS, "output_shape": _INTS}
_ACTIVATION = {"activation": _STRING, "activation_params": AttributeType.FLOATS}
_KERNEL = frozenset({"kernel_shape"})


def _pool(version: int, attributes: dict[str, AttributeType], types: tuple[str, ...], outputs: int) -> Row:
    return Row("MaxPool", "", version, MappingProxyType(attributes), _KERNEL, types, 1, 1, outputs)


def _unpool(version: int, types: tuple[str, ...]) -> Row:
    return Row("MaxUnpool", "", version, MappingProxyType(_WINDOW), _KERNEL, types, 2, 3, 1)


def _grow(version: int, types: tuple[str, ...], *switches: Switch) -> Row:
    attributes = MappingProxyType(_GROW)
    return Row("ConvTranspose", "", version, attributes, frozenset(), types, 2, 3, 1, frozenset(switches))


_ONNX_ROWS = (
    _pool(1, _POOL_1, _FLOATS, 1),
    _pool(8, _POOL_8, _FLOATS, 2),
    _pool(10, _POOL_10, _FLOATS, 2),
    _pool(11, _POOL_10, _FLOATS, 2),
    _pool(12, _POOL_10, (*_FLOATS, "int8", "uint8"), 2),
    _pool(22, _POOL_10, ("bfloat16", *_FLOATS, "int8", "uint8"), 2),
    _unpool(9, _FLOATS),
    _unpool(11, _FLOATS),
    _unpool(22, ("bfloat16", *_FLOATS)),
    _grow(1, _FLOATS, Switch.ODD_SIDE_SWAPPED, Switch.OUTPUT_PADDING_UNBOUNDED),
    _grow(11, _FLOATS),
    _grow(22, ("bfloat16", *_FLOATS)),
)

ROWS: tuple[Row, ...] = (
    *_ONNX_ROWS,
    *(
        replace(row, domain=NHWC, attributes=MappingProxyType({**row.attributes, **_ACTIVATION}))
        for row in _ONNX_ROWS
        if row.since_version is not None and row.since_version < 22
    ),
)


def rows_of(operator: str, domain: str) -> tuple[Row, ...]:
    """All versions of an operator in a domain, oldest first; another operator or domain is an UnsupportedError."""
    rows = tuple(row for row in ROWS if row.operator == operator and row.domain == domain)
    if not rows:
        raise UnsupportedError(
            f"{operator}: expected one of {', '.join(OPERATORS)} in domain 'ai.onnx' or {NHWC!r}, "
            f"got domain {domain!r}. Leave other operators to another runtime."
        )
    return rows


def row(operator: str, domain: str, opset: int) -> Row:
    """The row that an opset selects, the newest version not above it; before the first an UnsupportedError.

    >>> row("MaxPool", "", 13).label, row("MaxUnpool", "com.ms.internal.nhwc", 22).label
    ('MaxPool-12', 'MaxUnpool-11 (com.ms.internal.nhwc)')
    """
    versions = rows_of(operator, domain)
    if isinstance(opset, bool) or not isinstance(opset, int):
        raise UnpoolError(f"{operator}: opset is an int such as 22, or None for the newest; got {opset!r}.")
    chosen = [row for row in versions if row.since_version is not None and row.since_version <= opset]
    if not chosen:
        raise UnsupportedError(
            f"{operator}: exists from opset {versions[0].since_version} on in domain {domain or 'ai.onnx'!r}, "
            f"got opset {opset}. Raise the model's opset."
        )
    return chosen[-1]


def newest(operator: str, *, channels_last: bool) -> Row:
    """Row for a call without an opset: the newest version, with activations, in either layout."""
    return row_in_layout(operator, None, channels_last=channels_last)


@cache
def row_in_layout(operator: str, opset: int | None, *, channels_last: bool) -> Row:
    """The row of the standard that an opset selects, None for the newest, with activations, in either layout."""
    chosen = rows_of(operator, "")[-1] if opset is None else row(operator, "", opset)
    attributes = MappingProxyType({**chosen.attributes, **_ACTIVATION})
    version = None if opset is None else chosen.since_version
    return replace(chosen, domain=NHWC if channels_last else "", since_version=version, attributes=attributes)


def row_with(row: Row, attribute: str) -> Row | None:
    """The oldest row of this operator that has the attribute, in the row's own domain if there is one."""
    rows = [other for other in ROWS if other.operator == row.operator and attribute in other.attributes]
    return min(rows, key=lambda other: other.domain != row.domain, default=None)
