"""Resize and Upsample by a whole factor n or 1 / n, where every position is interpolated alike.

An element p of the result lies at x of the input, of `rate` n or 1 / n:

    asymmetric                  x = p / rate
    half_pixel and its kin      x = (p + 1/2) / rate - 1/2

A tile begins at a multiple of the total stride: at a shift of k elements of the input, and of k * rate of the result,
both whole. There x in the tile is x in the image less k, and the fraction of x, on which all weights depend, is the
same. Runtimes compute x with numbers of float32, so the rule computes it for every p as they do, and accepts the node
where nothing is rounded: then the same holds of their numbers.
"""

from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import onnx

from unpool.geometry import Window
from unpool.graph.nodes import attributes
from unpool.runtime.tiles.links import Link
from unpool.runtime.tiles.walk import Field, GraphWalk, Numbers, refusal

_HALF = (b"half_pixel", b"pytorch_half_pixel", b"half_pixel_symmetric")
_TAPS = {b"nearest": 0, b"linear": 1, b"bilinear": 1, b"cubic": 2}
"""Elements on either side of a position that a mode reads; "nearest" reads one in all."""

MAX_LENGTH = 2**23  # elements of an axis for which float32 holds p + 1/2 for every p


class _Axis(NamedTuple):
    """One resized axis: elements of the input and of the result, and their ratio."""

    large: int
    size: int
    rate: Fraction


class _Placement(NamedTuple):
    """The positions of the elements of a result, and the elements that they read."""

    mode: bytes
    transform: bytes
    nearest: bytes

    @property
    def is_half(self) -> bool:
        """True if the centre of an element is half an element from its begin."""
        return self.transform in _HALF


def resize(walk: GraphWalk, node: onnx.NodeProto) -> None:
    """Resize and Upsample: y[p] = sum over t of w[t](fraction of x) * input[floor(x) + t], for x of the module.

    `pytorch_half_pixel` has x = 0 where the result has a single element, so every tile gets two of the result or more.
    An axis of rate 1 is interpolated too, with weight 0 for the next element: NaN or infinity there gives NaN.
    `half_pixel_symmetric` adds L / 2 * (1 - size / (L * rate)) for L elements, which is 0 where L * rate is whole, also
    as float32 multiplies; onnxruntime adds the rest of x with float64 there, which is rounded elsewhere.
    """
    field, attrs = walk.field(node), attributes(node)
    is_old = node.op_type == "Upsample" or walk.opsets[""] < 11
    transform = attrs.get("coordinate_transformation_mode", b"asymmetric" if is_old else b"half_pixel")
    _check_attributes(node, transform, attrs)
    nearest = b"simple" if is_old else attrs.get("nearest_mode", b"round_prefer_floor")
    placement = _Placement(attrs.get("mode", b"nearest"), transform, nearest)
    taps = _TAPS[placement.mode]
    same = Link(Window(2 * taps), taps - 1) if taps else Link()
    shape, links = list(field.shape), [same] * len(field.shape)
    for number, axis in _axes(walk, node, field).items():
        shape[number] = axis.size
        if field.axes[number] is None or axis.rate == 1:
            continue
        if transform == b"half_pixel_symmetric" and axis.size != axis.large * axis.rate:
            raise refusal(
                node,
                f"has coordinate_transformation_mode half_pixel_symmetric and makes {axis.size} of {axis.large} "
                "elements, by which it shifts them; half_pixel does not",
            )
        if not _is_exact(axis.size, axis.rate, placement):
            raise refusal(
                node,
                f"places {axis.size} elements at multiples of {1 / axis.rate}, which float32 rounds; "
                "a factor that is a power of two is not rounded",
            )
        links[number] = _link(axis, placement)
    walk.add_output(node, Field(tuple(shape), field.axes), field.links(links))


def _check_attributes(node: onnx.NodeProto, transform: bytes, attrs: dict[str, Any]) -> None:
    """Refuse attributes by which an element depends on the size of the image."""
    if transform not in (*_HALF, b"asymmetric"):
        raise refusal(
            node,
            f"has coordinate_transformation_mode {transform.decode()}, which places elements by the size of the image; "
            "half_pixel, pytorch_half_pixel and asymmetric do not",
        )
    policy = attrs.get("keep_aspect_ratio_policy", b"stretch")
    if policy != b"stretch":
        raise refusal(node, f"has keep_aspect_ratio_policy {policy.decode()}, which compares axes; stretch does not")
    if attrs.get("antialias"):
        raise refusal(node, "has antialias 1, whose weights depend on the size of the image; antialias 0 is exact")


def _axes(walk: GraphWalk, node: onnx.NodeProto, field: Field) -> dict[int, _Axis]:
    """The resized axes; a spatial axis that changes by another factor than n or 1 / n is refused."""
    attrs, shape = attributes(node), field.shape
    numbers = [axis % len(shape) for axis in attrs.get("axes") or range(len(shape))]
    result_sizes = walk.sizes(node, 3)
    if result_sizes:
        pairs = list(zip(numbers, result_sizes, strict=True))
        if any(size < 1 or shape[axis] < 1 for axis, size in pairs):
            sizes = f"{list(result_sizes)} elements of {[shape[axis] for axis, _ in pairs]}"
            raise refusal(node, f"makes {sizes}, and an axis without elements has no factor")
        sized = {axis: _Axis(shape[axis], size, Fraction(size, shape[axis])) for axis, size in pairs}
        for axis, change in sized.items():
            if field.axes[axis] is not None and 1 not in (change.rate.numerator, change.rate.denominator):
                raise refusal(
                    node, f"changes {shape[axis]} elements to {change.size}, which is no whole factor; n or 1 / n is"
                )
        return sized
    place = 1 if node.op_type == "Upsample" or walk.opsets[""] < 11 else 2
    scales = attrs.get("scales")
    if not scales:
        scales = walk.numbers(node.input[place])
        if scales is None:
            raise refusal(node, "takes factors that it computes from elements")
    scaled = {}
    for axis, scale in zip(numbers, np.asarray(scales, np.float32).reshape(-1), strict=True):
        size = int(scale * np.float32(shape[axis]))
        rate = Fraction(float(scale))
        if field.axes[axis] is not None:
            rate = _whole_factor(node, scale)
            if size != shape[axis] * rate.numerator // rate.denominator:
                raise refusal(
                    node, f"makes {size} of {shape[axis]} elements, as float32 rounds {rate}; sizes are not rounded"
                )
        scaled[axis] = _Axis(shape[axis], size, rate)
    return scaled


def _whole_factor(node: onnx.NodeProto, scale: np.float32) -> Fraction:
    """The factor n or 1 / n that equals this number in float32."""
    one = np.float32(1)
    count = max(1, round(float(scale if scale >= 1 else one / scale))) if 0 < scale < MAX_LENGTH else 1
    for rate, exact in ((Fraction(count), np.float32(count)), (Fraction(1, count), one / np.float32(count))):
        if exact == scale:
            return rate
    raise refusal(node, f"has the scale {float(scale):.9g}, which is no whole factor; float32 of n or of 1 / n is")


@lru_cache(maxsize=64)
def _is_exact(size: int, rate: Fraction, placement: _Placement) -> bool:
    """True if floats give every position exactly: x itself, or for "nearest" the element that x rounds to.

    What holds for all p of the image holds for those of a tile, which are fewer.
    """
    if size > MAX_LENGTH:
        return False
    position = np.arange(size, dtype=np.int64)
    half = np.float32(0.5 if placement.is_half else 0)
    scale = np.float32(rate.numerator) / np.float32(rate.denominator)
    computed = (position.astype(np.float32) + half) / scale - half
    if placement.transform != b"half_pixel_symmetric":
        return _reads_exactly(computed, position, rate, placement)
    shift = np.float32(size) / (scale * np.float32(size / rate))
    finer = ((position + np.float64(half)) / np.float64(scale) - np.float64(half)).astype(np.float32)
    return bool(shift == 1) and all(_reads_exactly(places, position, rate, placement) for places in (computed, finer))


def _reads_exactly(places: Numbers, position: Numbers, rate: Fraction, placement: _Placement) -> bool:
    """True if places, as floats give them, are x for elements at positions of the result, or round to what x does."""
    computed = places.astype(np.float64)
    count = 2 * rate.numerator  # x is above / count
    above = 2 * position * rate.denominator
    if placement.is_half:
        above += rate.denominator - rate.numerator
    if placement.mode != b"nearest":
        return bool((computed * count == above).all())
    read, exact = {
        b"floor": (np.floor(computed), above // count),
        b"ceil": (np.ceil(computed), -(-above // count)),
        b"round_prefer_floor": (np.ceil(computed - 0.5), -((count - 2 * above) // (2 * count))),
        b"round_prefer_ceil": (np.floor(computed + 0.5), (2 * above + count) // (2 * count)),
    }[(b"ceil" if rate < 1 else b"floor") if placement.nearest == b"simple" else placement.nearest]
    return bool((read == exact).all())


def _link(axis: _Axis, placement: _Placement) -> Link:
    """The link of an axis: an element reads those around its position."""
    rate, taps = axis.rate, _TAPS[placement.mode]
    if rate < 1:
        stride, taps, is_pytorch = rate.denominator, max(taps, 1), placement.transform == b"pytorch_half_pixel"
        if is_pytorch and axis.size == 1:
            return Link(Window(2 * taps, stride), taps - 1)
        least = 2 * stride if is_pytorch else 1
        begin = taps - 1 - ((stride - 1) // 2 if placement.is_half else 0)
        return Link(Window(2 * taps, stride), begin, least=least)
    stride = rate.numerator
    if placement.mode == b"nearest":
        if placement.is_half or placement.nearest != b"floor":  # it may also read the element after the position
            return Link(Window(3 * stride, stride), stride, True)
        return Link(Window(stride, stride), 0, True)
    return Link(Window(2 * taps * stride, stride), taps * stride - (stride // 2 if placement.is_half else 0), True)
