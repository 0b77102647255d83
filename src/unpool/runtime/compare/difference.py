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
                raise UnpoolError(f"tolerance: {name} is a number {limits}, got {value}. Correct it.")

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
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    one, other = expected.astype(wide), got.astype(wide)
    finite = np.isfinite(one) & np.isfinite(other)
    same = (expected == got) | (np.isnan(one) & np.isnan(other))
    if same.all():
        return Difference("equal")
    apart = np.zeros(one.shape)
    np.subtract(one, other, out=one, where=finite)
    np.abs(one, out=apart, where=finite)
    height = float(np.abs(expected[finite].astype(wide)).max(initial=0.0))
    largest = min(float(apart.max(initial=0.0)), sys.float_info.max)
    steps = _steps(expected, got)
    beyond = ~same & ~(finite & (apart <= tolerance.of(expected.dtype) * height))
    if steps is not None and tolerance.ulp:
        beyond &= ~(finite & (steps <= tolerance.ulp))
    share = float(beyond.mean())
    lone = ~finite & ~same
    worst = np.unravel_index(int(lone.argmax() if lone.any() else apart.argmax()), apart.shape)
    place = tuple(map(int, worst))
    return Difference(
        kind="values" if share > tolerance.share else "close",
        share=share,
        largest=largest,
        relative=largest / height if height else largest,
        ulp=None if steps is None or lone.any() else int(steps[place]),
        place=place,
        expected=_number(expected[place]),
        got=_number(got[place]),
    )


def _steps(expected: AnyArray, got: AnyArray) -> NDArray[np.uint64] | None:
    """How many floats of the type lie from one element to the other; both zeros are one. None for other types."""
    bits = _BITS.get(expected.dtype.name)
    if bits is None:
        return None
    first, second = (np.ascontiguousarray(one).view(f"u{bits // 8}").astype(np.uint64) for one in (expected, got))
    sign = np.uint64(2 ** (bits - 1))
    one, other = first & ~sign, second & ~sign
    apart: NDArray[np.uint64] = np.maximum(one, other) - np.minimum(one, other)
    return np.where((first & sign) == (second & sign), apart, one + other)


def _number(value: Any) -> str:
    if np.asarray(value).dtype.kind in "iub":
        return str(int(value))
    return f"{complex(value):g}" if np.iscomplexobj(value) else f"{float(value):g}"


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a scalar"
