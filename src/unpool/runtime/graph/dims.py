"""Symbolic dimensions: expressions of named sizes, and the output dimensions of the three operators.

Two expressions that are equal in every call look alike. `output_dims` goes axis by axis: a known size becomes the size
that the operator computes. A dynamic size keeps its name if the operator does not change it, becomes an int if the
result does not depend on it, and otherwise becomes None.
"""

import math
import re
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import NamedTuple, TypeAlias

from unpool.errors import UnpoolError
from unpool.operators import conv_transpose, max_pool, max_unpool
from unpool.operators.contract import Row
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.operators.resolve import Spec

MULTIPLE = re.compile(r"([1-9]\d{0,8})\*([A-Za-z_]\w*)")
"""The name of a size such as 2*half, as torch writes the multiples of a Dim."""

MAX_NAMES = 32
MAX_LETTERS = 2000
MAX_BITS = 128
"""Names in a product, letters of these, and bits of its factor: without a limit, a size that is squared again and again
doubles all of them."""


class DimExpr(NamedTuple):
    """`factor` times the product of the named sizes, plus `plus`, divided by `by` and rounded down; names are sorted.

    Negative numbers only come from axes shorter than a window, which no call can have, so how a division rounds them
    is of no interest.

    >>> str(DimExpr(1, ("height",), 1, 2))
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
        """True if nothing is added to it or divided."""
        return self.plus == 0 and self.by == 1


DimExprs: TypeAlias = tuple[DimExpr | None, ...]


def divide(size: DimExpr, plus: int, by: int) -> DimExpr | None:
    """(size + plus) // by; None where the numbers grow too long.

    >>> half = divide(DimExpr(1, ("height",)), 0, 2)
    >>> divide(half, 0, 2) == divide(DimExpr(1, ("height",)), 0, 4)
    True
    >>> divide(DimExpr(4, ("height",)), 1, 2)
    DimExpr(factor=2, names=('height',), plus=0, by=1)
    """
    plus, by = size.plus + plus * size.by, by * size.by
    if not size.names:
        return DimExpr((size.factor + plus) // by)
    common = math.gcd(size.factor, by)
    if max(abs(plus), by).bit_length() > MAX_BITS:
        return None
    return DimExpr(size.factor // common, size.names, plus // common, by // common)


def multiply(sizes: Sequence[DimExpr | None]) -> DimExpr | None:
    """All sizes multiplied; None if one is unknown.

    >>> multiply([DimExpr(2), DimExpr(3, ("n",))])
    DimExpr(factor=6, names=('n',), plus=0, by=1)
    >>> str(multiply([DimExpr(2), DimExpr(1, ("height",), -2, 2)]))
    '2*(height)//2-2'
    """
    known = [size for size in sizes if size is not None]
    names = [name for size in known for name in size.names]
    is_long = len(names) > MAX_NAMES or sum(map(len, names)) > MAX_LETTERS
    bits = sum(max(size.factor, abs(size.plus)).bit_length() for size in known)
    if len(known) < len(sizes) or is_long or bits > MAX_BITS:
        return None
    return reduce(_multiply_two, known, DimExpr(1))


def upsample(size: DimExpr | None, stride: int, rest: int) -> DimExpr | None:
    """The size of an axis that windows have grown, size * stride + rest; None if that is unknown.

    >>> upsample(DimExpr(3), 2, 1), str(upsample(DimExpr(1, ("height",), 0, 2), 2, 1))
    (DimExpr(factor=7, names=(), plus=0, by=1), '2*(height)//2+1')
    """
    steps = multiply((size, DimExpr(stride)))
    return None if steps is None else divide(steps, rest, 1)


def as_int(size: DimExpr | None) -> int | None:
    """The size as an int, if it is one."""
    return None if size is None or size.names else size.factor


def as_ints(sizes: Sequence[DimExpr | None]) -> tuple[int, ...] | None:
    """The sizes as ints, if all of them are."""
    found = [as_int(size) for size in sizes]
    return tuple(one for one in found if one is not None) if None not in found else None


def _multiply_two(one: DimExpr, other: DimExpr) -> DimExpr:
    if DimExpr(1) in (one, other):
        return other if one == DimExpr(1) else one
    if not (one.names and other.names) and not (one.is_product and other.is_product):
        return _multiply_by_int(*((one.factor, other) if not one.names else (other.factor, one)))
    first, second = (size if size.is_product else DimExpr(1, (str(size),)) for size in (one, other))
    return DimExpr(first.factor * second.factor, tuple(sorted(first.names + second.names)))


def _multiply_by_int(count: int, size: DimExpr) -> DimExpr:
    """So many times a size, multiples of a divisor outside of its division: 2 * ((h - 2) // 2) is 2 * (h // 2) - 2."""
    steps, rest = divmod(size.plus, size.by)
    whole = size._replace(plus=rest)
    factor, names = (whole.factor, whole.names) if whole.is_product else (1, (str(whole),))
    return DimExpr(factor * count, names, steps * count)


Dim: TypeAlias = int | str | None
Dims: TypeAlias = tuple[Dim, ...]
Resize: TypeAlias = Callable[[int], int]

BEYOND_ALL = 2**40  # more than any pads or output_padding could move back to where it was


def output_dims(spec: Spec, inputs: Sequence[Dims | None], output_shape: Dims | None = None) -> tuple[Dims | None, ...]:
    """Dims of each output, two for MaxPool.

    Args:
        spec: the attributes of the node.
        inputs: dims of each input, None where the rank is unknown.
        output_shape: the value of MaxUnpool's third input, () when it is unknown; None when it is not connected.

    Returns:
        dims that are right whenever a call succeeds; None where the rank is unknown, and where every call fails.

    >>> from unpool.operators import resolve
    >>> pool = resolve.spec("MaxPool", {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [0, 1, 0, 1]}, opset=22)
    >>> output_dims(pool, [("batch", 3, 9, "width")])[0]
    ('batch', 3, 4, 'width')
    """
    if isinstance(spec, MaxPoolSpec):
        return _max_pool(spec, inputs[0])
    if isinstance(spec, MaxUnpoolSpec):
        return (_max_unpool(spec, inputs, output_shape),)
    return (_conv_transpose(spec, *inputs[:2]),)


def _max_pool(spec: MaxPoolSpec, x: Dims | None) -> tuple[Dims, Dims]:
    n, c, *large = _in_onnx_order(spec.row, x, len(spec.windows))
    small = [_apply(partial(_pooled, spec, number), size) for number, size in enumerate(large)]
    return _in_layout(spec.row, (n, c, *small)), (n, c, *small)


def _max_unpool(spec: MaxUnpoolSpec, inputs: Sequence[Dims | None], output_shape: Dims | None) -> Dims:
    rank = len(spec.windows)
    outer = _dynamic_dims(rank) if inputs[1] is None or len(inputs[1]) != rank + 2 else inputs[1]
    n, c, *small = map(_merge_dims, _in_onnx_order(spec.row, inputs[0], rank), outer)
    if output_shape is not None:
        asked = output_shape if len(output_shape) == rank + 2 else _dynamic_dims(rank)
        return _in_layout(spec.row, (_merge_dims(n, asked[0]), _merge_dims(c, asked[1]), *asked[2:]))
    large = [_apply(partial(max_unpool.inferred_size, spec, number), size) for number, size in enumerate(small)]
    return _in_layout(spec.row, (n, c, *large))


def _conv_transpose(spec: ConvTransposeSpec, x: Dims | None, w: Dims | None) -> Dims | None:
    rank = _spatial_rank(spec, x, w)
    if rank is None:
        return None
    n, _, *small = _in_onnx_order(spec.row, x, rank)
    _, maps, *window = _dynamic_dims(rank) if w is None or len(w) != rank + 2 else w
    if spec.group > 1:
        maps = maps * spec.group if isinstance(maps, int) else None
    window_sizes = window if spec.kernel_shape is None else spec.kernel_shape
    large = [_conv_transposed_dim(spec, window_sizes, number, size) for number, size in enumerate(small)]
    return _in_layout(spec.row, (n, maps, *large))


def _spatial_rank(spec: ConvTransposeSpec, x: Dims | None, w: Dims | None) -> int | None:
    """Number of spatial axes; None when neither the attributes nor an input tell it."""
    if spec.kernel_shape is not None:
        return len(spec.kernel_shape)
    return next((len(dims) - 2 for dims in (w, x) if dims is not None and len(dims) > 2), None)


def _pooled(spec: MaxPoolSpec, number: int, large: int) -> int:
    return max_pool.axis(spec, number, large).small


def _conv_transposed_dim(spec: ConvTransposeSpec, kernel: Sequence[Dim], number: int, size: Dim) -> Dim:
    """Size of one axis; where the window is unknown, the size that every window gives, or None."""

    def by_window(unknown: int, small: int) -> int:
        sizes = tuple(one if isinstance(one, int) else unknown for one in kernel)
        return conv_transpose.axis(spec, number, conv_transpose.axis_rules(spec, sizes)[number], small).large

    narrow, wide = (_apply(partial(by_window, unknown), size) for unknown in (1, 2))
    return narrow if narrow == wide else None


def _apply(resize: Resize, size: Dim) -> Dim:
    """Result of `resize` for a size, which may be unknown.

    `resize` never falls when the size grows, so where it gives the same for the least and the greatest size, it gives
    that for all sizes between them.
    """
    if isinstance(size, int):
        return _attempt(resize, size)
    least, most = _attempt(resize, 1), _attempt(resize, BEYOND_ALL)
    if least == most:
        return least
    return size if most == BEYOND_ALL else None


def _attempt(resize: Resize, size: int) -> int | None:
    try:
        made = resize(size)
    except (UnpoolError, IndexError):
        return None
    return made if made >= 0 else None


def _merge_dims(first: Dim, second: Dim) -> Dim:
    """Known value of a size that two tensors share."""
    return second if isinstance(second, int) or first is None else first


def _dynamic_dims(rank: int) -> Dims:
    return (None,) * (rank + 2)


def _in_onnx_order(row: Row, dims: Dims | None, rank: int) -> Dims:
    """(N, C, D1..Dk) of an input in the row's layout; unknown where the rank does not fit."""
    if dims is None or len(dims) != rank + 2:
        return _dynamic_dims(rank)
    return (dims[0], dims[-1], *dims[1:-1]) if row.is_channels_last else dims


def _in_layout(row: Row, dims: Dims) -> Dims:
    return (dims[0], *dims[2:], dims[1]) if row.is_channels_last else dims
