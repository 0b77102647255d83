"""Every version of the three operators as data: attributes, types, inputs and outputs.

An opset number selects the newest version that is not above it. `com.ms.internal.nhwc` repeats the ONNX versions up to
12 / 11 / 11 with two more attributes. `newest` is the version of a call that names no opset.

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
OUTPUT_SHAPE = "output_shape"  # the input whose value, not only its shape, a prepared call depends on
NHWC = "com.ms.internal.nhwc"
DOMAINS = ("", NHWC)
NEWEST_NHWC = 12  # the newest version of an operator that the domain NHWC repeats
NEWEST_OPSET = 28  # of ONNX, up to which no operator has a version that is not in the table


class AttributeType(Enum):
    """The attribute types that occur in the versions."""

    INT = "int"
    INTS = "ints"
    STRING = "string"
    FLOAT = "float"
    FLOATS = "floats"


ATTRIBUTES = {
    "auto_pad": ("NOTSET", "NOTSET takes pads, VALID none; SAME_* compute them, UPPER with an odd cell at the end"),
    "ceil_mode": ("0", "1 rounds the number of windows up; none of them begins in the padding at the end"),
    "dilations": ("1 per axis", "elements from one tap of the window to the next"),
    "group": ("1", "number of groups of the channels of X"),
    "kernel_shape": ("the window of W", "taps of the window"),
    "output_padding": ("0 per axis", "elements added at the end of the output"),
    "output_shape": ("computed", "size of the output; the pads follow from it"),
    "pads": ("0 at each end", "elements of padding: all begins, then all ends"),
    "storage_order": ("0", "order of Indices: 0 with the last axis fastest, 1 with the first"),
    "strides": ("1 per axis", "elements from one window to the next"),
    "activation": ("none", "Relu, LeakyRelu, Tanh, Sigmoid, Clip, HardSigmoid or HardSwish, applied to the output"),
    "activation_params": ("none", "parameters of the activation"),
}
"""The default of every attribute, in words, and its description."""
DEFAULTS = {"auto_pad": "NOTSET", "ceil_mode": 0, "group": 1, "storage_order": 0}
"""The defaults that are not None in a public function."""


class Switch(Enum):
    """The few changes of meaning between versions."""

    ODD_SIDE_SWAPPED = "with output_shape, SAME_UPPER puts an odd total's larger half at the beginning"
    OUTPUT_PADDING_UNBOUNDED = "output_padding has no upper bound"


@dataclass(frozen=True, eq=False)
class OperatorVersion:
    """One operator in one version of one domain; `since_version` None accepts what the newest version accepts.

    There is one object per version and domain: they are compared by identity.
    """

    operator: str
    domain: str
    since_version: int | None
    attributes: Mapping[str, AttributeType]
    required: frozenset[str]
    value_types: tuple[str, ...]
    inputs: tuple[str, ...]
    min_inputs: int
    outputs: tuple[str, ...]
    switches: frozenset[Switch] = frozenset()
    min_outputs: int = 1

    @property
    def max_inputs(self) -> int:
        """Number of inputs, with the optional ones."""
        return len(self.inputs)

    @property
    def max_outputs(self) -> int:
        """Number of outputs, with the optional ones."""
        return len(self.outputs)

    @cached_property
    def label(self) -> str:
        """Name of this version in error messages, such as `MaxPool-12`."""
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
        names = self.inputs
        if len(inputs) > self.max_inputs:
            raise UnpoolError(
                f"{self.label}: takes {self.max_inputs} input{'' if self.max_inputs == 1 else 's'} at most "
                f"({', '.join(names)}), got {len(inputs)}. Leave the others out."
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


def _pool(since: int, attributes: dict[str, AttributeType], types: tuple[str, ...], *outputs: str) -> OperatorVersion:
    return OperatorVersion("MaxPool", "", since, MappingProxyType(attributes), _KERNEL, types, ("X",), 1, outputs)


def _unpool(since: int, types: tuple[str, ...]) -> OperatorVersion:
    inputs = ("X", "I", OUTPUT_SHAPE)
    return OperatorVersion("MaxUnpool", "", since, MappingProxyType(_WINDOW), _KERNEL, types, inputs, 2, ("output",))


def _grow(since: int, types: tuple[str, ...], *switches: Switch) -> OperatorVersion:
    attributes = MappingProxyType(_GROW)
    return OperatorVersion(
        "ConvTranspose", "", since, attributes, frozenset(), types, ("X", "W", "B"), 2, ("Y",), frozenset(switches)
    )


_ONNX_VERSIONS = (
    _pool(1, _POOL_1, _FLOATS, "Y"),
    _pool(8, _POOL_8, _FLOATS, "Y", "Indices"),
    _pool(10, _POOL_10, _FLOATS, "Y", "Indices"),
    _pool(11, _POOL_10, _FLOATS, "Y", "Indices"),
    _pool(12, _POOL_10, (*_FLOATS, "int8", "uint8"), "Y", "Indices"),
    _pool(22, _POOL_10, ("bfloat16", *_FLOATS, "int8", "uint8"), "Y", "Indices"),
    _unpool(9, _FLOATS),
    _unpool(11, _FLOATS),
    _unpool(22, ("bfloat16", *_FLOATS)),
    _grow(1, _FLOATS, Switch.ODD_SIDE_SWAPPED, Switch.OUTPUT_PADDING_UNBOUNDED),
    _grow(11, _FLOATS),
    _grow(22, ("bfloat16", *_FLOATS)),
)

VERSIONS: tuple[OperatorVersion, ...] = (
    *_ONNX_VERSIONS,
    *(
        replace(each, domain=NHWC, attributes=MappingProxyType({**each.attributes, **_ACTIVATION}))
        for each in _ONNX_VERSIONS
        if each.since_version is not None and each.since_version <= NEWEST_NHWC
    ),
)


def versions_of(operator: str, domain: str) -> tuple[OperatorVersion, ...]:
    """All versions of an operator in a domain, oldest first; another operator or domain is an UnsupportedError."""
    versions = tuple(each for each in VERSIONS if each.operator == operator and each.domain == domain)
    if not versions:
        raise UnsupportedError(
            f"{operator}: expected one of {', '.join(OPERATORS)} in domain 'ai.onnx' or {NHWC!r}, "
            f"got domain {domain!r}. Leave other operators to another runtime."
        )
    return versions


def version_at(operator: str, domain: str, opset: int) -> OperatorVersion:
    """The version that an opset selects, the newest version not above it; before the first an UnsupportedError.

    >>> version_at("MaxPool", "", 13).label, version_at("MaxUnpool", "com.ms.internal.nhwc", 22).label
    ('MaxPool-12', 'MaxUnpool-11 (com.ms.internal.nhwc)')
    """
    versions = versions_of(operator, domain)
    if isinstance(opset, bool) or not isinstance(opset, int):
        raise UnpoolError(f"{operator}: opset is an int such as 22, or None for the newest; got {opset!r}.")
    chosen = [each for each in versions if each.since_version is not None and each.since_version <= opset]
    if not chosen:
        raise UnsupportedError(
            f"{operator}: exists from opset {versions[0].since_version} on in domain {domain or 'ai.onnx'!r}, "
            f"got opset {opset}. Raise the model's opset."
        )
    return chosen[-1]


def newest(operator: str, *, channels_last: bool) -> OperatorVersion:
    """The version for a call without an opset: the newest version, with activations, in either layout."""
    return version_in_layout(operator, None, channels_last=channels_last)


@cache
def version_in_layout(operator: str, opset: int | None, *, channels_last: bool) -> OperatorVersion:
    """The version of the standard that an opset selects, None for the newest, with activations, in either layout."""
    chosen = versions_of(operator, "")[-1] if opset is None else version_at(operator, "", opset)
    attributes = MappingProxyType({**chosen.attributes, **_ACTIVATION})
    since = None if opset is None else chosen.since_version
    return replace(chosen, domain=NHWC if channels_last else "", since_version=since, attributes=attributes)


def version_with(version: OperatorVersion, attribute: str) -> OperatorVersion | None:
    """The oldest version of this operator that has the attribute, in the version's own domain if there is one."""
    versions = [other for other in VERSIONS if other.operator == version.operator and attribute in other.attributes]
    return min(versions, key=lambda other: other.domain != version.domain, default=None)
