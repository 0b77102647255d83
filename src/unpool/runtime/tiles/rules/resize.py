"""Resize and Upsample by whole factors: every position is interpolated alike."""

from collections.abc import Sequence
from fractions import Fraction

import onnx

from unpool.geometry import Window
from unpool.runtime.graph.nodes import attributes
from unpool.runtime.tiles.links import Link
from unpool.runtime.tiles.walk import Field, Walk, refusal

_HALF = (b"half_pixel", b"pytorch_half_pixel", b"half_pixel_symmetric")
_TAPS = {b"nearest": 0, b"linear": 1, b"bilinear": 1, b"cubic": 2}
"""Elements beside a place between two elements, on either side, that a mode reads; "nearest" is one of the two."""


def resize(walk: Walk, node: onnx.NodeProto) -> None:
    """Resize of any version, and Upsample."""
    field, given = walk.fields.get(node.input[0]), attributes(node)
    if field is None:
        raise refusal(node, "takes factors from the image")
    mode = given.get("mode", b"nearest")
    is_old = node.op_type == "Upsample" or walk.opsets[""] < 11
    placing = given.get("coordinate_transformation_mode", b"asymmetric" if is_old else b"half_pixel")
    if placing not in (*_HALF, b"asymmetric") or given.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        raise refusal(node, f"places its elements by the size of the image ({placing.decode()})")
    is_half = placing in _HALF
    rounds = is_half or not (is_old or given.get("nearest_mode") == b"floor")
    shape, links = list(field.shape), [Link()] * len(field.shape)
    for axis, (size, rate) in _sizes(walk, node, field.shape).items():
        shape[axis] = size
        if field.axes[axis] is not None:
            if 1 not in (rate.numerator, rate.denominator) or (rate < 1 and given.get("antialias")):
                raise refusal(node, f"changes {field.shape[axis]} elements to {size}, which is no whole factor")
            links[axis] = _link(rate, mode, is_half=is_half, rounds=rounds)
    walk.put(node, node.output[0], Field(tuple(shape), field.axes), {node.input[0]: field.links(links)})


def _sizes(walk: Walk, node: onnx.NodeProto, have: Sequence[int]) -> dict[int, tuple[int, Fraction]]:
    """By axis, the size that it gets, and by which factor its elements become more."""
    given = attributes(node)
    axes = given.get("axes", range(len(have)))
    asked = walk.ints(node, 3)
    if asked:
        pairs = zip(axes, asked, strict=True)
        return {axis % len(have): (size, Fraction(size, have[axis])) for axis, size in pairs}
    place = 1 if node.op_type == "Upsample" or walk.opsets[""] < 11 else 2
    scales = given.get("scales") or _floats(walk, node, place)
    rates = [Fraction(scale).limit_denominator(1000) for scale in scales]
    return {axis % len(have): (int(have[axis] * rate), rate) for axis, rate in zip(axes, rates, strict=True)}


def _floats(walk: Walk, node: onnx.NodeProto, place: int) -> list[float]:
    found = walk.known(node.input[place])
    if found is None:
        raise refusal(node, "takes factors that it computes from elements")
    walk.use(node, node.input[place])
    return [float(one) for one in found.reshape(-1)]


def _link(rate: Fraction, mode: bytes, *, is_half: bool, rounds: bool) -> Link:
    """What an element reads: those around its place, which is at p / rate, or for half pixels (p + 1/2) / rate - 1/2.

    Args:
        rate: elements made per element of the input.
        mode: of the interpolation.
        is_half: which of the two places.
        rounds: whether "nearest" may read the element behind the place, too.
    """
    taps = _TAPS[mode]
    if rate == 1:
        return Link()
    if rate < 1:
        stride, taps = rate.denominator, max(taps, 1)
        return Link(Window(2 * taps, stride), taps - 1 - ((stride - 1) // 2 if is_half else 0))
    stride = rate.numerator
    if mode == b"nearest":
        return Link(Window(3 * stride, stride), stride, True) if rounds else Link(Window(stride, stride), 0, True)
    return Link(Window(2 * taps * stride, stride), taps * stride - (stride // 2 if is_half else 0), True)
