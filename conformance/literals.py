"""Stored arrays as Python that can be pasted, and as short text."""

from collections.abc import Iterator, Sequence
from typing import Any

Json = dict[str, Any]


def python(array: Json) -> str:
    """A NumPy expression.

    >>> python({"type": "float32", "shape": [1, 2], "values": [1.0, "-inf"]})
    'np.array([[1, -inf]], np.float32)'
    >>> python({"type": "float32", "shape": [1, 0], "values": []})
    'np.zeros((1, 0), np.float32)'
    """
    kind = f"ml_dtypes.{array['type']}" if array["type"] == "bfloat16" else f"np.{array['type']}"
    if not array["values"]:
        return f"np.zeros({tuple(array['shape'])}, {kind})"
    if "bits" in array:
        unsigned = f"np.uint{8 * int(item_bytes(array['type']))}"
        return f"np.array({nested([hex(value) for value in array['bits']], array['shape'])}, {unsigned}).view({kind})"
    return f"np.array({nested(words(array), array['shape'])}, {kind})"


def text(array: Json) -> str:
    """The elements, nested; the bits of NaN that are not the usual ones.

    >>> text({"type": "float32", "shape": [1, 2], "values": [1.0, "nan"], "bits": [1065353216, 4290772999]})
    '[[1, nan:0xffc00007]]'
    """
    return nested(words(array), array["shape"])


def words(array: Json) -> list[str]:
    """Every element; whole numbers without a point."""
    plain = [short(value) for value in array["values"]]
    bits: Sequence[int] = array.get("bits", ())
    return [f"nan:{bits[i]:#x}" if bits and array["values"][i] == "nan" else plain[i] for i in range(len(plain))]


def short(value: Any) -> str:
    """A number in few letters; the sign of zero stays.

    >>> short(3.0), short(-0.0), short(0.5), short(-3.4028235e38), short("nan")
    ('3', '-0.0', '0.5', '-3.4028235e+38', 'nan')
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 and str(value) != "-0.0":
        return str(int(value))
    return str(value)


def nested(elements: Sequence[str], shape: Sequence[int]) -> str:
    """Row-major elements in brackets.

    >>> nested(["1", "2", "3", "4"], [2, 1, 2])
    '[[[1, 2]], [[3, 4]]]'
    """
    return brackets(iter(elements), tuple(shape))


def brackets(elements: Iterator[str], shape: tuple[int, ...]) -> str:
    """The next elements that fill the shape."""
    if not shape:
        return next(elements)
    return f"[{', '.join(brackets(elements, shape[1:]) for _ in range(shape[0]))}]"


def item_bytes(kind: str) -> int:
    """Size of a float type by its name."""
    return int(kind.removeprefix("bfloat").removeprefix("float")) // 8
