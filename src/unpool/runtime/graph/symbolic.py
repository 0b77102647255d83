"""Output sizes of the three operators where input sizes may be unknown: an int, a symbolic name, or None.

Axis by axis, a known size becomes the size that the operator computes. An unknown size keeps its name if the operator
leaves the axis as long as it is; it becomes an int if the result does not depend on it; else it becomes None.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from unpool.errors import UnpoolError
from unpool.operators import conv_transpose, max_pool, max_unpool
from unpool.operators.contract import Row
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.operators.resolve import Spec

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
    small = [_resized(partial(_pooled, spec, number), size) for number, size in enumerate(large)]
    return _in_layout(spec.row, (n, c, *small)), (n, c, *small)


def _max_unpool(spec: MaxUnpoolSpec, inputs: Sequence[Dims | None], output_shape: Dims | None) -> Dims:
    rank = len(spec.windows)
    outer = _unknown(rank) if inputs[1] is None or len(inputs[1]) != rank + 2 else inputs[1]
    n, c, *small = map(_either, _in_onnx_order(spec.row, inputs[0], rank), outer)
    if output_shape is not None:
        asked = output_shape if len(output_shape) == rank + 2 else _unknown(rank)
        return _in_layout(spec.row, (_either(n, asked[0]), _either(c, asked[1]), *asked[2:]))
    large = [_resized(partial(max_unpool.inferred_size, spec, number), size) for number, size in enumerate(small)]
    return _in_layout(spec.row, (n, c, *large))


def _conv_transpose(spec: ConvTransposeSpec, x: Dims | None, w: Dims | None) -> Dims | None:
    rank = _rank(spec, x, w)
    if rank is None:
        return None
    n, _, *small = _in_onnx_order(spec.row, x, rank)
    _, maps, *window = _unknown(rank) if w is None or len(w) != rank + 2 else w
    if spec.group > 1:
        maps = maps * spec.group if isinstance(maps, int) else None
    window_sizes = window if spec.kernel_shape is None else spec.kernel_shape
    large = [_grown(spec, window_sizes, number, size) for number, size in enumerate(small)]
    return _in_layout(spec.row, (n, maps, *large))


def _rank(spec: ConvTransposeSpec, x: Dims | None, w: Dims | None) -> int | None:
    """Number of spatial axes; None when neither the attributes nor an input tell it."""
    if spec.kernel_shape is not None:
        return len(spec.kernel_shape)
    return next((len(dims) - 2 for dims in (w, x) if dims is not None and len(dims) > 2), None)


def _pooled(spec: MaxPoolSpec, number: int, large: int) -> int:
    return max_pool.axis(spec, number, large).small


def _grown(spec: ConvTransposeSpec, kernel: Sequence[Dim], number: int, size: Dim) -> Dim:
    """Size of one axis; where the window is unknown, the size that every window gives, or None."""

    def by_window(unknown: int, small: int) -> int:
        sizes = tuple(one if isinstance(one, int) else unknown for one in kernel)
        return conv_transpose.axis(spec, number, conv_transpose.axis_rules(spec, sizes)[number], small).large

    narrow, wide = (_resized(partial(by_window, unknown), size) for unknown in (1, 2))
    return narrow if narrow == wide else None


def _resized(resize: Resize, size: Dim) -> Dim:
    """What `resize` makes of a size, which may be unknown.

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


def _either(first: Dim, second: Dim) -> Dim:
    """What is known of a size that two tensors share."""
    return second if isinstance(second, int) or first is None else first


def _unknown(rank: int) -> Dims:
    return (None,) * (rank + 2)


def _in_onnx_order(row: Row, dims: Dims | None, rank: int) -> Dims:
    """(N, C, D1..Dk) of an input in the row's layout; unknown where the rank does not fit."""
    if dims is None or len(dims) != rank + 2:
        return _unknown(rank)
    return (dims[0], dims[-1], *dims[1:-1]) if row.is_channels_last else dims


def _in_layout(row: Row, dims: Dims) -> Dims:
    return (dims[0], *dims[2:], dims[1]) if row.is_channels_last else dims
