"""A window for an unpooling that says nothing of its own: the one from which MaxUnpool infers the size it has."""

from collections.abc import Sequence
from typing import NamedTuple

import onnx

from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.resolve import spec as resolve_spec
from unpool.runtime.nodes import attributes, domain


class Fitted(NamedTuple):
    """Window, stride and padding at both ends, of one axis, in elements."""

    window: int = 1
    stride: int = 1
    padding: int = 0


def fitted(small: int | None, large: int | None, pooled: Fitted | None) -> Fitted:
    """The window under which `small` positions grow to `large`; the pool's where a size is unknown.

        (small - 1) * stride + window - 2 * padding = large

    >>> fitted(3, 7, None), fitted(3, 7, Fitted(3, 2, 1))
    (Fitted(window=3, stride=2, padding=0), Fitted(window=3, stride=2, padding=0))
    >>> fitted(4, 3, None)
    Fitted(window=2, stride=1, padding=1)
    """
    if small is None or large is None:
        return pooled or Fitted()
    if small < 1 or large < 1:
        return Fitted()
    if large < small:
        return Fitted(small - large + 1, 1, small - large)
    stride = large // small
    if pooled is not None and (small - 1) * pooled.stride < large:
        stride = pooled.stride
    return Fitted(large - (small - 1) * stride, stride)


def windows_of(pool: onnx.NodeProto | None, opset: int, rank: int) -> list[Fitted | None]:
    """The reach of the windows of a MaxPool over the first of `rank` axes, None where it does not tell.

    Windows that may hang over the end are cut to their first element inside, so that no shape inferred from them is
    larger than what was pooled.
    """
    spec = None if pool is None else resolve_spec("MaxPool", attributes(pool), domain=domain(pool), opset=opset)
    if not isinstance(spec, MaxPoolSpec):
        return [None] * rank
    found: list[Fitted | None] = []
    for window, (begin, end) in zip(spec.windows, spec.pads, strict=True):
        is_plain = spec.padding == "NOTSET" and begin == end
        found.append(Fitted(begin + 1 if spec.ceil else window.reach, window.stride, begin) if is_plain else None)
    return (found + [None] * rank)[:rank]


def as_attributes(windows: Sequence[Fitted]) -> dict[str, list[int]]:
    """The windows as attributes of a MaxUnpool."""
    pads = [one.padding for one in windows]
    return {
        "kernel_shape": [one.window for one in windows],
        "strides": [one.stride for one in windows],
        **({"pads": pads * 2} if any(pads) else {}),
    }
