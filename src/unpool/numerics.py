"""The comparison of arrays, and the tolerances of all comparisons.

An element agrees if it is equal, if both are NaN, or if both are finite and differ by no more than

    relative * max(|expected|)    or    ulp units in the last place

`ROUNDING` and the other constants say which tolerance is for what.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unpool.display import format_shape
from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError

ROUNDING_LIMITS = {"float64": 1e-10, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}  # default relative limits
_BITS = {"float16": 16, "bfloat16": 16, "float32": 32, "float64": 64}


@dataclass(frozen=True)
class Tolerance:
    """The largest difference at which two arrays still agree.

    `relative` is a part of the largest finite element of the array, for all types of floats or by the name of the type;
    None for `ROUNDING_LIMITS`. Elements of other types have to be equal. An element within either limit agrees.
    """

    relative: float | Mapping[str, float] | None = None
    ulp: int = 0  # units in the last place
    share: float = 0.0  # part of the elements that may differ by more, from 0 to 1
    integers: bool = False  # `relative` is applied to integers too

    def __post_init__(self) -> None:
        relative = self.relative if isinstance(self.relative, float | int) else 0.0
        for name, value in (("relative", relative), ("ulp", self.ulp), ("share", self.share)):
            if not 0 <= value <= (1 if name == "share" else np.inf):
                limits = "from 0 to 1" if name == "share" else "of 0 or more"
                raise UnpoolError(f"tolerance: {name} is a number {limits}, got {value}.")

    def limit(self, dtype: np.dtype[Any]) -> float:
        """The allowed difference of elements of a type, as a part of the largest element."""
        limits = ROUNDING_LIMITS if self.relative is None else self.relative
        if dtype.name not in _BITS and not (self.integers and dtype.kind in "biu"):
            return 0.0
        return limits.get(dtype.name, 0.0) if isinstance(limits, Mapping) else limits

    def through(self, narrowest: str) -> "Tolerance":
        """The tolerance of values that were computed through a float type, by its name; "" for none.

        A limit for each type becomes at least that of the narrower type; one number for all types stays.

        >>> ROUNDING.through("float16").limit(np.dtype(np.float32))
        0.01
        """
        limits = ROUNDING_LIMITS if self.relative is None else self.relative
        if not narrowest or not isinstance(limits, Mapping):
            return self
        least = limits.get(narrowest, 0.0)
        return replace(self, relative={name: max(limit, least) for name, limit in limits.items()})


def narrowest_float(names: Iterable[str]) -> str:
    """The name of the type with the largest rounding; "" if none of them is a float.

    >>> narrowest_float(["int64", "float16", "float32"])
    'float16'
    """
    return max((name for name in names if name in ROUNDING_LIMITS), key=ROUNDING_LIMITS.__getitem__, default="")


BITWISE = Tolerance(relative=0.0)  # equal bit for bit, except for the sign of zeros and the payload of NaNs
ROUNDING = Tolerance()  # the same arithmetic in another order: rewritten models, and other runtimes
# models with MaxPools on other kernels: where two elements almost tie, rounding decides, and a value moves
LOWERING = Tolerance(share=0.05)
# runtimes among which tuning of a session chooses; where two elements of a pool differ by rounding, either can win
TUNING = Tolerance(relative=1e-3, share=1e-3, integers=True)
# torch and onnxruntime on a whole network: sums in other orders, and indices where two elements almost tie
EXPORT = Tolerance({"float64": 1e-6, "float32": 1e-3, "float16": 2e-2, "bfloat16": 1e-1}, share=1e-3)


@dataclass(frozen=True)
class ArrayDiff:
    """The difference of two arrays: "equal" bit for bit, except for the sign of zeros and the payload of NaNs; "close"
    within the tolerance; "values" beyond it; "type" or "shape" where these are not the same.

    The worst element is the first that is finite in one array only, else that of `max_abs`.
    """

    kind: str
    size: int = 0
    count: int = 0  # elements that differ by more than the limits of one element
    max_abs: float = 0.0  # largest difference of two finite elements
    max_rel: float = 0.0  # the same over the largest finite element of the first array
    ulp: int | None = None  # of the worst element, in units in the last place; None for other types than floats
    index: tuple[int, ...] = ()  # of the worst element
    expected: str = ""  # the worst element of the first array as text, or the type or shape of the array
    actual: str = ""  # the same of the second array
    has_nonfinite: bool = False  # an infinity or NaN of one array is another value in the other

    @property
    def differs(self) -> bool:
        """True if the difference is beyond the tolerance."""
        return self.kind not in ("equal", "close")

    @property
    def share(self) -> float:
        """`count` as a part of the elements, from 0 to 1."""
        return self.count / self.size if self.size else float(self.differs)

    @property
    def error(self) -> float:
        """`max_rel`; infinite where types, shapes, NaNs or infinities differ."""
        return np.inf if self.has_nonfinite or self.kind in ("type", "shape") else self.max_rel


def diff_arrays(expected: Any, actual: Any, tolerance: Tolerance = ROUNDING) -> ArrayDiff:
    """The difference of two values of a model: arrays, lists of arrays, of which the worst counts, or others.

    >>> diff = diff_arrays(np.float32([1, 2, 4]), np.float32([1, 2.5, 4]))
    >>> diff.kind, diff.max_abs, diff.max_rel, diff.index, diff.ulp
    ('values', 0.5, 0.125, (1,), 2097152)
    """
    if not isinstance(expected, np.ndarray) or not isinstance(actual, np.ndarray):
        return _diff_sequences(expected, actual, tolerance)
    size = actual.size
    if expected.dtype != actual.dtype:
        return ArrayDiff("type", size, size, expected=expected.dtype.name, actual=actual.dtype.name)
    if expected.shape != actual.shape:
        return ArrayDiff("shape", size, size, expected=format_shape(expected.shape), actual=format_shape(actual.shape))
    if expected.dtype.kind in "OUSM":
        count = int(np.count_nonzero(expected != actual))
        return ArrayDiff("values" if count else "equal", size, count)
    return _diff_numbers(expected, actual, tolerance)


def diff_rounded(expected: AnyArray, actual: AnyArray, rounded_to: np.dtype[Any] | None = None) -> ArrayDiff:
    """The difference from exact results: `count` of the elements other than the exact one, both rounded to a type.

    That is the type of the second array, or the narrower one in which it was computed.
    """
    kind = rounded_to or actual.dtype
    with np.errstate(all="ignore"):
        rounded = diff_arrays(expected.astype(kind), actual.astype(kind), BITWISE)
        exact = diff_arrays(expected.astype(np.float64), actual.astype(np.float64), BITWISE)
    return replace(exact, count=rounded.count)


def sum_diffs(diffs: Iterable[ArrayDiff]) -> ArrayDiff:
    """The difference of several arrays as one: the worst of them, with the elements of all."""
    parts = list(diffs)
    worst = max(parts, key=lambda diff: diff.error)
    return replace(worst, size=sum(diff.size for diff in parts), count=sum(diff.count for diff in parts))


def max_magnitude(array: AnyArray) -> float:
    """The largest absolute value of the finite elements; 0 if there is none."""
    finite = np.isfinite(array)
    return float(np.abs(array if finite.all() else array[finite]).max(initial=0))


def _diff_sequences(expected: Any, actual: Any, tolerance: Tolerance) -> ArrayDiff:
    if isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            return ArrayDiff("shape", expected=f"{len(expected)} parts", actual=f"{len(actual)} parts")
        parts = [diff_arrays(first, second, tolerance) for first, second in zip(expected, actual, strict=True)]
        return max(parts, key=lambda diff: (diff.differs, diff.share, diff.max_abs), default=ArrayDiff("equal"))
    if type(expected) is type(actual) and expected == actual:
        return ArrayDiff("equal")
    return ArrayDiff("type", expected=type(expected).__name__, actual=type(actual).__name__)


def _diff_numbers(expected: AnyArray, actual: AnyArray, tolerance: Tolerance) -> ArrayDiff:
    """Only elements that are not equal are examined further."""
    unequal = np.flatnonzero(~((expected == actual) | (np.isnan(expected) & np.isnan(actual))))
    if not unequal.size:
        return ArrayDiff("equal", expected.size)
    first, second = expected.reshape(-1)[unequal], actual.reshape(-1)[unequal]
    finite = np.isfinite(first) & np.isfinite(second)
    wide = np.complex128 if first.dtype.kind == "c" else np.float64
    distance = np.zeros(first.shape)  # 0 where an element is not finite
    distance[finite] = np.abs(first[finite].astype(wide) - second[finite].astype(wide))
    magnitude = max_magnitude(expected)
    is_float = expected.dtype.name in _BITS
    near = finite & (distance <= tolerance.limit(expected.dtype) * magnitude)
    if tolerance.ulp and is_float:
        near |= finite & (_ulps(first, second) <= tolerance.ulp)
    count = int(np.count_nonzero(~near))
    worst = int(distance.argmax() if finite.all() else finite.argmin())
    max_abs = min(float(distance.max()), sys.float_info.max)
    return ArrayDiff(
        kind="values" if count > tolerance.share * expected.size else "close",
        size=expected.size,
        count=count,
        max_abs=max_abs,
        max_rel=max_abs / magnitude if magnitude else max_abs,
        ulp=int(_ulps(first[worst : worst + 1], second[worst : worst + 1])[0]) if is_float and finite[worst] else None,
        index=tuple(map(int, np.unravel_index(unequal[worst], expected.shape))),
        expected=_format_number(first[worst]),
        actual=_format_number(second[worst]),
        has_nonfinite=not finite.all(),
    )


def _ulps(first: AnyArray, second: AnyArray) -> NDArray[np.uint64]:
    """Number of floats of the type from one element to the other; both zeros are one float."""
    bits = _BITS[first.dtype.name]
    own, other = (np.ascontiguousarray(each).view(f"u{bits // 8}").astype(np.uint64) for each in (first, second))
    sign = np.uint64(2 ** (bits - 1))
    own_size, other_size = own & ~sign, other & ~sign
    distance: NDArray[np.uint64] = np.maximum(own_size, other_size) - np.minimum(own_size, other_size)
    return np.where((own & sign) == (other & sign), distance, own_size + other_size)


def _format_number(value: Any) -> str:
    if np.asarray(value).dtype.kind in "iub":
        return str(int(value))
    return f"{complex(value):g}" if np.iscomplexobj(value) else f"{float(value):g}"
