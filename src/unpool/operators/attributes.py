"""From the attributes of a node or a call to checked Python values.

Activations are those that `com.ms.internal.nhwc` fuses after the three operators. Source of their names, which are
case-sensitive, and parameter counts: ONNX Runtime's helper for fused activations.
"""

import numbers
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from unpool.errors import UnpoolError, UnsupportedError, suggest_name
from unpool.geometry import LARGEST as LARGEST
from unpool.geometry import Padding
from unpool.operators.contract import AttributeType, OperatorVersion, version_with

COMPAT = ("spec", "ort")
PADDINGS = {
    "NOTSET": Padding.EXPLICIT, "SAME_UPPER": Padding.SAME_UPPER, "SAME_LOWER": Padding.SAME_LOWER,
    "VALID": Padding.VALID,
}  # fmt: skip
"""By `auto_pad`."""

AUTO_PAD = tuple(PADDINGS)

ACTIVATION_PARAMS = {
    "Relu": (),
    "LeakyRelu": ("alpha",),
    "Tanh": (),
    "Sigmoid": (),
    "Clip": ("min", "max"),
    "HardSigmoid": ("alpha", "beta"),
    "HardSwish": (),
}

_PLAIN = frozenset({type(None), int, float, bool, str})  # types whose values `marshal` tells apart by their bytes

_PER_AXIS = {"kernel_shape": 1, "strides": 1, "dilations": 1, "output_padding": 1, "output_shape": 1, "pads": 2}

Attributes = Mapping[str, Any]


class Activation(NamedTuple):
    """A known name with as many parameters as it takes."""

    name: str
    params: tuple[float, ...] = ()


class Settings(NamedTuple):
    """The choices that the standard leaves open: those of a call, or of a session for nodes that do not state them."""

    opset: int | None = None
    compat: str = "spec"
    index_space: str = "auto"
    exact: bool = False


DEFAULTS = Settings()


def plain(value: Any) -> Any:
    """Lists, tuples and their kin as tuples, integers of any library as Python's; anything else as it is.

    >>> plain(np.int32(2)), plain([np.uint8(2), 3]), plain([2.5, "x"])
    (2, (2, 3), (2.5, 'x'))
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain_item, value))
    return _plain_item(value)


def _plain_item(value: Any) -> Any:
    if type(value) in _PLAIN or getattr(value, "ndim", 0) != 0:
        return value
    try:
        return operator.index(value)
    except Exception:
        return value


def is_plain(value: Any) -> bool:
    """True if `marshal` distinguishes a value from all others by its bytes."""
    if type(value) in (list, tuple):
        return all(type(each) in _PLAIN for each in value)
    return type(value) in _PLAIN


def for_all_axes(name: str, value: Any, rank: int) -> Any:
    """One integer as the list with this value for each of `rank` spatial axes, for attributes that are such lists.

    >>> for_all_axes("pads", 1, 2), for_all_axes("group", 1, 2)
    ((1, 1, 1, 1), 1)
    """
    return (value,) * (rank * _PER_AXIS[name]) if type(value) is int and name in _PER_AXIS else value


def check(version: OperatorVersion, attributes: Attributes) -> dict[str, Any]:
    """The attributes that are set, as ints, tuples of ints, tuples of floats and strings.

    Raises:
        UnsupportedError: an attribute of another version or domain.
        UnpoolError: an unknown attribute, a missing one, or one of the wrong type.
    """
    values = {name: value for name, value in attributes.items() if value is not None}
    check_names(version, values)
    for name in version.required:
        if name not in values:
            raise UnpoolError(f"{version.label}: attribute {name} is missing, but required.")
    return {name: typed(f"{version.label}: {name}", version.attributes[name], value) for name, value in values.items()}


def check_names(version: OperatorVersion, names: Iterable[str]) -> None:
    """Raise an UnpoolError for a name that the version has no attribute of."""
    for name in names:
        if name not in version.attributes:
            raise _unknown(version, name)


def _unknown(version: OperatorVersion, name: str) -> UnpoolError:
    known = ", ".join(sorted(version.attributes))
    other = version_with(version, name)
    if other is not None:
        return UnsupportedError(
            f"{version.label}: expected the attributes {known}; got {name}, which {other.label} has. "
            "Change the opset or the domain, or drop it."
        )
    return UnpoolError(
        f"{version.label}: expected the attributes {known}; got unknown attribute {name!r}. "
        f"{suggest_name(name, version.attributes, otherwise='Leave it out.')}"
    )


def typed(where: str, expected: AttributeType, value: Any) -> Any:
    """A value of this type: an int, a float, a string, or a tuple; `where` begins the message of an error."""
    if expected is AttributeType.INT:
        return _int(where, value)
    if expected is AttributeType.INTS:
        return _ints(where, value)
    if expected is AttributeType.FLOAT:
        return _float(where, value)
    if expected is AttributeType.FLOATS:
        return tuple(_float(where, item) for item in _items(where, value, "numbers"))
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str):
        raise UnpoolError(f"{where} expects a string, got {value!r}. Pass a str.")
    return value


def _int(where: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise UnpoolError(f"{where} expects integers, got {value!r}. Pass Python ints.")
    return int(value)


def _float(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise UnpoolError(f"{where} expects numbers, got {value!r}. Pass Python floats.")
    try:
        return float(value)
    except OverflowError as cause:
        raise UnpoolError(f"{where} expects numbers that a float holds, got {value!r}.") from cause


def _ints(where: str, value: Any) -> tuple[int, ...]:
    items = _items(where, value, "integers")
    if not items:
        raise UnpoolError(f"{where} expects at least one value, got an empty list. Leave it out or fill it.")
    return tuple(_int(where, item) for item in items)


def _items(where: str, value: Any, kind: str) -> Sequence[Any]:
    """The items of a list, or of an array of one axis."""
    try:
        items = value.tolist() if getattr(value, "ndim", 0) == 1 else value
    except Exception:  # such as an array whose memory is on a GPU
        items = value
    if isinstance(items, (str, bytes)) or not isinstance(items, Sequence):
        raise UnpoolError(f"{where} expects a list of {kind}, got {value!r}. Write one value per spatial axis.")
    return items


def window_list(
    version: OperatorVersion, name: str, values: tuple[int, ...] | None, rank: int, least: int
) -> tuple[int, ...]:
    """A list with one value per spatial axis, each at least `least`; `least` everywhere when it is not set."""
    if values is None:
        return (least,) * rank
    if len(values) != rank:
        raise UnpoolError(
            f"{version.label}: {name} needs {rank} values ({_axes(rank)}), got {len(values)}: {list(values)}. "
            "Give one per axis."
        )
    _check_range(version, name, values, least)
    return values


def pad_list(version: OperatorVersion, values: tuple[int, ...] | None, rank: int) -> tuple[tuple[int, int], ...]:
    """Pads as one (begin, end) pair per spatial axis."""
    if values is None:
        return ((0, 0),) * rank
    if len(values) != 2 * rank:
        raise UnpoolError(
            f"{version.label}: pads needs {2 * rank} values ({_axes(rank)}), got {len(values)}: {list(values)}. "
            "Give all begins, then all ends."
        )
    _check_range(version, "pads", values, 0)
    return tuple(zip(values[:rank], values[rank:], strict=True))


def _axes(rank: int) -> str:
    return "1 spatial axis" if rank == 1 else f"{rank} spatial axes"


def _check_range(version: OperatorVersion, name: str, values: tuple[int, ...], least: int) -> None:
    for value in values:
        if not least <= value <= LARGEST:
            raise UnpoolError(f"{version.label}: {name} needs values from {least} to {LARGEST}, got {list(values)}.")


def padding_mode(version: OperatorVersion, attributes: Attributes, *, pads_may_be_ignored: bool) -> str:
    """The `auto_pad` attribute, which excludes pads other than 0; the empty string is NOTSET."""
    mode = choice(version, "auto_pad", attributes.get("auto_pad", "NOTSET") or "NOTSET", AUTO_PAD)
    pads = attributes.get("pads", ())
    if mode != "NOTSET" and any(pads) and not pads_may_be_ignored:
        raise UnpoolError(
            f"{version.label}: pads and auto_pad exclude each other, got pads {list(pads)} and auto_pad {mode}. "
            "Drop one."
        )
    return mode


def flag(version: OperatorVersion, attributes: Attributes, name: str) -> bool:
    """An integer attribute that is 0 or 1, default 0; any other value is an error."""
    return is_set(version.label, attributes, name)


def is_set(label: str, attributes: Attributes, name: str, *, default: bool = False) -> bool:
    """As `flag`, of an operator with this label."""
    value = attributes.get(name, default)
    if value not in (0, 1):
        raise UnpoolError(f"{label}: {name} is 0 or 1, got {value}. Pass 1 to turn it on.")
    return bool(value)


def choice(version: OperatorVersion, name: str, value: str, allowed: tuple[str, ...]) -> str:
    """`value`, which has to be one of the allowed words."""
    if value not in allowed:
        raise UnpoolError(
            f"{version.label}: {name} is one of {', '.join(allowed)}; got {value!r}. {suggest_name(value, allowed)}"
        )
    return value


def sizes(where: str, values: Any, rank: int) -> tuple[int, ...]:
    """Sizes of `rank` axes, from one integer for all of them or a list of integers of 0 or more."""
    checked = _ints(where, for_all_axes("output_shape", plain(values), rank))
    if min(checked) < 0:
        raise UnpoolError(f"{where} needs values of 0 or more, got {list(checked)}. Pass a size per spatial axis.")
    return checked


def shape_tensor(version: OperatorVersion, sizes: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A plain list of sizes as the int64 tensor that an operator takes."""
    values = [_int(f"{version.label}: output_shape", size) for size in sizes]
    if any(not -(2**63) <= value < 2**63 for value in values):
        raise UnpoolError(f"{version.label}: output_shape needs 64-bit integers, got {values}.")
    return np.array(values, np.int64)


def activation_of(version: OperatorVersion, attributes: Attributes) -> Activation | None:
    """The activation that a node asks for, or None."""
    name = attributes.get("activation")
    params: tuple[float, ...] = attributes.get("activation_params", ())
    if name is None:
        if "activation_params" in attributes:
            raise UnpoolError(
                f"{version.label}: activation_params {list(params)} need an activation. Pass its name too."
            )
        return None
    choice(version, "activation", name, tuple(ACTIVATION_PARAMS))
    if name == "Relu" and len(params) == 2 and params[0] == 0.0 and params[1] >= float(np.finfo(np.float32).max):
        return Activation("Relu")
    expected = ACTIVATION_PARAMS[name]
    if len(params) != len(expected):
        words = ", ".join(expected) or "no parameters"
        raise UnpoolError(
            f"{version.label}: {name} takes activation_params [{words}], got {list(params)}. "
            f"Pass {len(expected)} values."
        )
    return Activation(name, params)


def check_activation_type(version: OperatorVersion, activation: Activation | None, dtype: str) -> None:
    """Refuse every activation of int8 or uint8 except Relu and Clip."""
    if activation is not None and dtype in ("int8", "uint8") and activation.name not in ("Relu", "Clip"):
        raise UnsupportedError(
            f"{version.label}: expected Relu or Clip as the activation of {dtype}, got {activation.name}. "
            "Use a float type."
        )
