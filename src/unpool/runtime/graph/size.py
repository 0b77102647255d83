"""Sizes of which only the names of others are known, in a form in which two that are equal in every call look alike."""

import math
import re
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple, TypeAlias

MULTIPLE = re.compile(r"([1-9]\d{0,8})\*([A-Za-z_]\w*)")
"""The name of a size such as 2*half, as torch writes the multiples of a Dim."""

MOST_NAMES = 32
MOST_LETTERS = 2000
MOST_BITS = 128
"""Names in a product, letters of these, and bits of its factor: without a limit, a size that is squared again and again
doubles all of them."""


class Size(NamedTuple):
    """`factor` times the product of the named sizes, plus `plus`, divided by `by` and rounded down; names are sorted.

    Negative numbers only come from axes shorter than a window, which no call can have, so how a division rounds them
    is of no interest.

    >>> str(Size(1, ("height",), 1, 2))
    '(height+1)//2'
    """

    factor: int
    names: tuple[str, ...] = ()
    plus: int = 0
    by: int = 1

    def __str__(self) -> str:
        text = "*".join((*(str(self.factor) for _ in range(self.factor != 1 or not self.names)), *self.names))
        text += f"{self.plus:+}" if self.plus else ""
        return f"({text})//{self.by}" if self.by > 1 else text

    @property
    def is_product(self) -> bool:
        """Whether nothing is added to it or divided."""
        return self.plus == 0 and self.by == 1


Sizes: TypeAlias = tuple[Size | None, ...]


def quotient(size: Size, plus: int, by: int) -> Size | None:
    """(size + plus) // by; None where the numbers grow too long.

    >>> half = quotient(Size(1, ("height",)), 0, 2)
    >>> quotient(half, 0, 2) == quotient(Size(1, ("height",)), 0, 4)
    True
    >>> quotient(Size(4, ("height",)), 1, 2)
    Size(factor=2, names=('height',), plus=0, by=1)
    """
    plus, by = size.plus + plus * size.by, by * size.by
    if not size.names:
        return Size((size.factor + plus) // by)
    common = math.gcd(size.factor, by)
    if max(abs(plus), by).bit_length() > MOST_BITS:
        return None
    return Size(size.factor // common, size.names, plus // common, by // common)


def product(sizes: Sequence[Size | None]) -> Size | None:
    """All sizes multiplied; None if one is unknown.

    >>> product([Size(2), Size(3, ("n",))])
    Size(factor=6, names=('n',), plus=0, by=1)
    >>> str(product([Size(2), Size(1, ("height",), -2, 2)]))
    '2*(height)//2-2'
    """
    known = [size for size in sizes if size is not None]
    names = [name for size in known for name in size.names]
    is_long = len(names) > MOST_NAMES or sum(map(len, names)) > MOST_LETTERS
    bits = sum(max(size.factor, abs(size.plus)).bit_length() for size in known)
    if len(known) < len(sizes) or is_long or bits > MOST_BITS:
        return None
    return reduce(_multiplied, known, Size(1))


def grown(size: Size | None, stride: int, rest: int) -> Size | None:
    """The size of an axis that windows have grown, size * stride + rest; None if that is unknown.

    >>> grown(Size(3), 2, 1), str(grown(Size(1, ("height",), 0, 2), 2, 1))
    (Size(factor=7, names=(), plus=0, by=1), '2*(height)//2+1')
    """
    steps = product((size, Size(stride)))
    return None if steps is None else quotient(steps, rest, 1)


def number(size: Size | None) -> int | None:
    """The size as an int, if it is one."""
    return None if size is None or size.names else size.factor


def numbers(sizes: Sequence[Size | None]) -> tuple[int, ...] | None:
    """The sizes as ints, if all of them are."""
    found = [number(size) for size in sizes]
    return tuple(one for one in found if one is not None) if None not in found else None


def _multiplied(one: Size, other: Size) -> Size:
    if Size(1) in (one, other):
        return other if one == Size(1) else one
    if not (one.names and other.names) and not (one.is_product and other.is_product):
        return _times(*((one.factor, other) if not one.names else (other.factor, one)))
    first, second = (size if size.is_product else Size(1, (str(size),)) for size in (one, other))
    return Size(first.factor * second.factor, tuple(sorted(first.names + second.names)))


def _times(count: int, size: Size) -> Size:
    """So many times a size, multiples of a divisor outside of its division: 2 * ((h - 2) // 2) is 2 * (h // 2) - 2."""
    steps, rest = divmod(size.plus, size.by)
    whole = size._replace(plus=rest)
    factor, names = (whole.factor, whole.names) if whole.is_product else (1, (str(whole),))
    return Size(factor * count, names, steps * count)
