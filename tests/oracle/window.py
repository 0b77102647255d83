"""Sizes, paddings and attribute lists: the arithmetic of sections 1, 3 and 4, one axis at a time."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.oracle.rows import Refused

HIGHEST = 2**31 - 1


@dataclass(frozen=True)
class Pooled:
    """One spatial axis of a pool: tap t of window o reads large[o * stride + t * dilation - begin]."""

    large: int
    size: int
    window: int
    stride: int
    dilation: int
    begin: int


@dataclass(frozen=True)
class Grown:
    """One spatial axis of ConvTranspose: the output is full[begin : begin + size], zero outside."""

    small: int
    size: int
    full: int
    window: int
    stride: int
    dilation: int
    begin: int


def numbers(name: str, given: Sequence[int] | None, length: int, lowest: int, default: int) -> list[int]:
    """The attribute's values, or the default for each axis when it is absent (3.16, 2.5)."""
    if given is None:
        return [default] * length
    values = [int(value) for value in given]
    if len(values) != length or any(not lowest <= value <= HIGHEST for value in values):
        raise Refused(f"{name} {values}: {length} values from {lowest} to {HIGHEST}")
    return values


def check_auto_pad(auto_pad: str, pads: Sequence[int] | None, pads_may_stay: bool) -> str:
    """The auto_pad in force (3.8, 4.2)."""
    known = auto_pad or "NOTSET"
    if known not in ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"):
        raise Refused(f"auto_pad {auto_pad}")
    if known != "NOTSET" and any(pads or ()) and not pads_may_stay:
        raise Refused("pads beside auto_pad")
    return known


def truncated(numerator: int, denominator: int) -> int:
    """Quotient rounded toward zero, as C divides."""
    return abs(numerator) // denominator * (1 if numerator >= 0 else -1)


def ceiled(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


def windows(large: int, reach: int, stride: int, pads: tuple[int, int], ceil_mode: int, compat: str) -> int:
    """How many windows an axis holds under explicit pads (3.1, 3.2)."""
    begin, end = pads
    numerator = large + begin + end - reach
    if ceil_mode:
        return min(ceiled(numerator, stride), (large + begin - 1) // stride) + 1
    divided = truncated(numerator, stride) if compat == "ort" else numerator // stride
    return divided + 1


def pooled_axis(
    large: int,
    window: int,
    stride: int,
    dilation: int,
    pads: tuple[int, int],
    auto_pad: str,
    ceil_mode: int,
    compat: str,
) -> Pooled:
    """Resolve one axis of MaxPool (3.1 to 3.10)."""
    reach = (window - 1) * dilation + 1
    if auto_pad == "NOTSET":
        begin = pads[0]
        size = windows(large, reach, stride, pads, ceil_mode, compat)
    elif auto_pad == "VALID":
        begin = 0
        size = windows(large, reach, stride, (0, 0), ceil_mode if compat == "ort" else 0, compat)
    else:
        size = ceiled(large, stride)
        total = (size - 1) * stride + reach - large
        if compat == "ort":
            begin = truncated(total if auto_pad == "SAME_UPPER" else total + 1, 2)
        else:
            total = max(total, 0)
            begin = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
    if size < 0:
        raise Refused(f"output size {size}")
    return Pooled(large, size, window, stride, dilation, begin)


def odd_side(total: int, upper: bool) -> int:
    """Cells cut at the begin; the odd one goes to the end for SAME_UPPER (4.4); none if negative (4.8)."""
    total = max(total, 0)
    return total // 2 if upper else total - total // 2


def grown_axis(
    small: int,
    window: int,
    stride: int,
    dilation: int,
    more: int,
    pads: tuple[int, int],
    auto_pad: str,
    wanted: int | None,
    version: int,
    compat: str,
) -> Grown:
    """Resolve one axis of ConvTranspose (4.1-4.9); `more` is output_padding, `wanted` from output_shape."""
    reach = (window - 1) * dilation + 1
    full = (small - 1) * stride + reach
    upper = auto_pad == "SAME_UPPER"
    if wanted is not None:
        swapped = version == 1 and compat == "spec"
        size, begin = wanted, odd_side(full + more - wanted, upper is not swapped)
    elif auto_pad in ("NOTSET", "VALID"):
        begin, end = pads if auto_pad == "NOTSET" else (0, 0)
        size = full + more - begin - end
    else:
        total = full + more - small * stride
        shorter = compat == "ort" and total < 0
        size, begin = full + more if shorter else small * stride, odd_side(total, upper)
    if size < 0:
        raise Refused(f"output size {size}")
    return Grown(small, size, max(full, 0), window, stride, dilation, begin)
