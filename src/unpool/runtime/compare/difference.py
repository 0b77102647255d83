"""How far two arrays are apart, and whether that is more than a tolerance."""

import sys
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.runtime.rewrite.verify import TOLERANCE

_BITS = {"float16": 16, "bfloat16": 16, "float32": 32, "float64": 64}


@dataclass(frozen=True)
class Tolerance:
    """What two values may differ by and still agree.

    Attributes:
        relative: of floats, as a part of the largest finite element of the value; None for 1e-10 (float64), 1e-4
            (float32), 1e-2 (float16) and 5e-2 (bfloat16). Other types have to be equal.
        ulp: of floats, in units of the last place of their type; an element that is within either limit agrees.
        share: part of the elements of a value that may differ by more, from 0 to 1.

    Raises:
        UnpoolError: a limit is below 0, or a share above 1.
    """

    relative: float | None = None
    ulp: int = 0
    share: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and not 0 <= value <= (1 if name == "share" else np.inf):
                limits = "from 0 to 1" if name == "share" else "of 0 or more"
                raise UnpoolError(f"tolerance: {name} is a number {limits}, got {value}. Pass such a number.")

    def of(self, dtype: np.dtype[Any]) -> float:
        """The part of the largest element by which elements of this type may differ."""
        known = TOLERANCE.get(dtype.name)
        if known is None:
            return 0.0
        return known if self.relative is None else self.relative


@dataclass(frozen=True)
class Difference:
    """Two arrays beside each other.

    Attributes:
        kind: "equal" bit for bit, but for the sign of zeros and what a NaN holds; "close" within the tolerance;
            "values" beyond it; "type" or "shape" where these are not the same.
        share: part of the elements that differ by more than the limits for one element, from 0 to 1.
        largest: difference of two finite elements.
        relative: the same over the largest finite element of the first array.
        ulp: the same in units of the last place, where the difference is largest; None for what is no float.
        place: coordinates of the worst element: one of the finite ones, or the first that is finite on one side only.
        expected: that element, or the type or shape, in the first array, as text.
        got: the same in the second.
    """

    kind: str
    share: float = 0.0
    largest: float = 0.0
    relative: float = 0.0
    ulp: int | None = None
    place: tuple[int, ...] = ()
    expected: str = ""
    got: str = ""

    @property
    def departs(self) -> bool:
        """Whether this is more than the tolerance."""
        return self.kind not in ("equal", "close")


def difference(expected: Any, got: Any, tolerance: Tolerance) -> Difference:
    """How far `got` is from `expected`.

    Args:
        expected: an array; anything else, such as a list of arrays, is equal or not.
        got: likewise.
        tolerance: what is still close.

    >>> found = difference(np.float32([1, 2, 4]), np.float32([1, 2.5, 4]), Tolerance())
    >>> found.kind, found.largest, found.relative, found.place, found.ulp
    ('values', 0.5, 0.125, (1,), 2097152)
    """
    if not isinstance(expected, np.ndarray) or not isinstance(got, np.ndarray):
        return _of_others(expected, got, tolerance)
    if expected.dtype != got.dtype:
        return Difference("type", 1.0, expected=expected.dtype.name, got=got.dtype.name)
    if expected.shape != got.shape:
        return Difference("shape", 1.0, expected=_by(expected.shape), got=_by(got.shape))
    if expected.dtype.kind in "OUSM":
        unequal = expected != got
        return Difference("values", float(unequal.mean())) if unequal.any() else Difference("equal")
    return _of_numbers(expected, got, tolerance)


def _of_others(expected: Any, got: Any, tolerance: Tolerance) -> Difference:
    """Sequences by the worst of their parts; optional values that are empty."""
    if isinstance(expected, list) and isinstance(got, list):
        if len(expected) != len(got):
            return Difference("shape", 1.0, expected=f"{len(expected)} parts", got=f"{len(got)} parts")
        parts = [difference(one, other, tolerance) for one, other in zip(expected, got, strict=True)]
        return max(parts, key=lambda one: (one.departs, one.share, one.largest), default=Difference("equal"))
    if expected is None and got is None:
        return Difference("equal")
    return Difference("type", 1.0, expected=type(expected).__name__, got=type(got).__name__)


def _of_numbers(expected: AnyArray, got: AnyArray, tolerance: Tolerance) -> Difference:
    """Only the elements that are not equal are looked at further."""
    unequal = np.flatnonzero(~((expected == got) | (np.isnan(expected) & np.isnan(got))))
    if not unequal.size:
        return Difference("equal")
    one, other = expected.reshape(-1)[unequal], got.reshape(-1)[unequal]
    finite = np.isfinite(one) & np.isfinite(other)
    apart = _apart(one, other, finite)
    height = _height(expected)
    near = finite & (apart <= tolerance.of(expected.dtype) * height)
    if tolerance.ulp and expected.dtype.name in _BITS:
        near |= finite & (_steps(one, other) <= tolerance.ulp)
    share = float((~near).sum() / expected.size)
    worst = int(apart.argmax() if finite.all() else finite.argmin())
    has_ulp = expected.dtype.name in _BITS and bool(finite[worst])
    largest = min(float(apart.max()), sys.float_info.max)
    return Difference(
        kind="values" if share > tolerance.share else "close",
        share=share,
        largest=largest,
        relative=largest / height if height else largest,
        ulp=int(_steps(one[worst : worst + 1], other[worst : worst + 1])[0]) if has_ulp else None,
        place=tuple(map(int, np.unravel_index(unequal[worst], expected.shape))),
        expected=_number(one[worst]),
        got=_number(other[worst]),
    )


def _apart(one: AnyArray, other: AnyArray, finite: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Distances of elements; 0 where one of the two is not finite."""
    wide = np.complex128 if one.dtype.kind == "c" else np.float64
    distance = np.zeros(one.shape)
    distance[finite] = np.abs(one[finite].astype(wide) - other[finite].astype(wide))
    return distance


def _height(array: AnyArray) -> float:
    """The largest finite element, its sign left out."""
    finite = np.isfinite(array)
    some = array if finite.all() else array[finite]
    return float(np.abs(some).max(initial=0))


def _steps(one: AnyArray, other: AnyArray) -> NDArray[np.uint64]:
    """How many floats of the type lie from one element to the other; both zeros are one."""
    bits = _BITS[one.dtype.name]
    first, second = (np.ascontiguousarray(each).view(f"u{bits // 8}").astype(np.uint64) for each in (one, other))
    sign = np.uint64(2 ** (bits - 1))
    first_size, second_size = first & ~sign, second & ~sign
    apart: NDArray[np.uint64] = np.maximum(first_size, second_size) - np.minimum(first_size, second_size)
    return np.where((first & sign) == (second & sign), apart, first_size + second_size)


def _number(value: Any) -> str:
    if np.asarray(value).dtype.kind in "iub":
        return str(int(value))
    return f"{complex(value):g}" if np.iscomplexobj(value) else f"{float(value):g}"


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a scalar"
