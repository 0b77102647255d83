"""From the attributes of a node or a call to checked Python values."""

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unpool.errors import UnpoolError, UnsupportedError, suggest_name
from unpool.operators.arguments import for_all_axes, listed, plain
from unpool.operators.contract import AttributeType, Row, row_with

COMPAT = ("spec", "ort")
AUTO_PAD = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
LARGEST = 2**31 - 1

Attributes = Mapping[str, Any]


def check(row: Row, attributes: Attributes) -> dict[str, Any]:
    """The attributes that are set, as ints, tuples of ints, tuples of floats and strings.

    Raises:
        UnsupportedError: an attribute of another version or domain.
        UnpoolError: an unknown attribute, a missing one, or one of the wrong type.
    """
    given = {name: value for name, value in attributes.items() if value is not None}
    for name in given:
        if name not in row.attributes:
            raise _unknown(row, name)
    for name in row.required:
        if name not in given:
            raise UnpoolError(f"{row.label}: attribute {name} is required, but is missing. Set it.")
    return {name: _typed(row, name, value) for name, value in given.items()}


def _unknown(row: Row, name: str) -> UnpoolError:
    known = ", ".join(sorted(row.attributes))
    other = row_with(row, name)
    if other is not None:
        return UnsupportedError(
            f"{row.label}: expected the attributes {known}; got {name}, which {other.label} has. "
            "Change the opset or the domain, or drop it."
        )
    return UnpoolError(
        f"{row.label}: expected the attributes {known}; got unknown attribute {name!r}. "
        f"{suggest_name(name, row.attributes, otherwise='Leave it out.')}"
    )


def _typed(row: Row, name: str, value: Any) -> Any:
    expected = row.attributes[name]
    where = f"{row.label}: {name}"
    if expected is AttributeType.INT:
        return _int(where, value)
    if expected is AttributeType.STRING:
        return _string(where, value)
    items = _items(where, value, expected)
    if expected is AttributeType.INTS:
        return tuple(_int(where, item) for item in items)
    return tuple(_float(where, item) for item in items)


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
        raise UnpoolError(f"{where} expects numbers that a float holds, got {value!r}. Reduce it.") from cause


def _string(where: str, value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str):
        raise UnpoolError(f"{where} expects a string, got {value!r}. Pass a str.")
    return value


def _items(where: str, value: Any, expected: AttributeType) -> Sequence[Any]:
    items = listed(value)
    if isinstance(items, (str, bytes)) or not isinstance(items, Sequence):
        kind = "integers" if expected is AttributeType.INTS else "numbers"
        raise UnpoolError(f"{where} expects a list of {kind}, got {value!r}. Write one value per spatial axis.")
    if not items and expected is AttributeType.INTS:
        raise UnpoolError(f"{where} expects at least one value, got an empty list. Leave it out or fill it.")
    return items


def window_list(row: Row, name: str, values: tuple[int, ...] | None, rank: int, least: int) -> tuple[int, ...]:
    """A list with one value per spatial axis, each at least `least`; `least` everywhere when it is not set.

    Raises:
        UnpoolError: wrong length, or a value out of range.
    """
    if values is None:
        return (least,) * rank
    axes = "1 spatial axis" if rank == 1 else f"{rank} spatial axes"
    if len(values) != rank:
        raise UnpoolError(
            f"{row.label}: {name} needs {rank} values ({axes}), got {len(values)}: {list(values)}. Give one per axis."
        )
    _check_range(row, name, values, least)
    return values


def pad_list(row: Row, values: tuple[int, ...] | None, rank: int) -> tuple[tuple[int, int], ...]:
    """Pads as one (begin, end) pair per spatial axis.

    Raises:
        UnpoolError: not twice the spatial rank, or a negative value.
    """
    if values is None:
        return ((0, 0),) * rank
    if len(values) != 2 * rank:
        axes = "1 spatial axis" if rank == 1 else f"{rank} spatial axes"
        raise UnpoolError(
            f"{row.label}: pads needs {2 * rank} values ({axes}), got {len(values)}: {list(values)}. "
            "Give all begins, then all ends."
        )
    _check_range(row, "pads", values, 0)
    return tuple(zip(values[:rank], values[rank:], strict=True))


def _check_range(row: Row, name: str, values: tuple[int, ...], least: int) -> None:
    for value in values:
        if not least <= value <= LARGEST:
            raise UnpoolError(
                f"{row.label}: {name} needs values from {least} to {LARGEST}, got {list(values)}. Correct the {value}."
            )


def padding_mode(row: Row, attributes: Attributes, *, pads_may_be_ignored: bool) -> str:
    """The `auto_pad` attribute; the empty string is NOTSET.

    Raises:
        UnpoolError: an unknown mode, or non-zero pads beside a mode that computes them.
    """
    mode: str = attributes.get("auto_pad", "NOTSET") or "NOTSET"
    if mode not in AUTO_PAD:
        raise UnpoolError(
            f"{row.label}: auto_pad is one of {', '.join(AUTO_PAD)}; got {mode!r}. {suggest_name(mode, AUTO_PAD)}"
        )
    pads = attributes.get("pads", ())
    if mode != "NOTSET" and any(pads) and not pads_may_be_ignored:
        raise UnpoolError(
            f"{row.label}: pads and auto_pad exclude each other, got pads {list(pads)} and auto_pad {mode}. Drop one."
        )
    return mode


def flag(row: Row, attributes: Attributes, name: str) -> bool:
    """An integer attribute that is 0 or 1, default 0.

    Raises:
        UnpoolError: any other value.
    """
    value = attributes.get(name, 0)
    if value not in (0, 1):
        raise UnpoolError(f"{row.label}: {name} is 0 or 1, got {value}. Pass 1 to turn it on.")
    return bool(value)


def choice(row: Row, name: str, value: str, allowed: tuple[str, ...]) -> str:
    """`value` if it is one of the allowed words.

    Raises:
        UnpoolError: it is not.
    """
    if value not in allowed:
        raise UnpoolError(
            f"{row.label}: {name} is one of {', '.join(allowed)}; got {value!r}. {suggest_name(value, allowed)}"
        )
    return value


def sizes(where: str, values: Any, rank: int) -> tuple[int, ...]:
    """Sizes of `rank` axes, as one integer for all of them or a list.

    Raises:
        UnpoolError: not integers of 0 or more.
    """
    given = for_all_axes("output_shape", plain(values), rank)
    found = tuple(_int(where, item) for item in _items(where, given, AttributeType.INTS))
    if min(found) < 0:
        raise UnpoolError(f"{where} needs values of 0 or more, got {list(found)}. Pass a size per spatial axis.")
    return found


def shape_tensor(row: Row, sizes: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A plain list of sizes as the int64 tensor that an operator takes.

    Raises:
        UnpoolError: an item is not an integer of 64 bits.
    """
    values = [_int(f"{row.label}: output_shape", size) for size in sizes]
    if any(not -(2**63) <= value < 2**63 for value in values):
        raise UnpoolError(f"{row.label}: output_shape needs 64-bit integers, got {values}. Reduce them.")
    return np.array(values, np.int64)
