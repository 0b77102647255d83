"""A window for an unpooling that says nothing of its own: the one from which MaxUnpool infers the size it has."""

from collections.abc import Sequence

import onnx

from unpool.geometry import Fitted
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.resolve import spec as resolve_spec
from unpool.runtime.nodes import attributes, domain


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
        "kernel_shape": [one.size for one in windows],
        "strides": [one.stride for one in windows],
        **({"pads": pads * 2} if any(pads) else {}),
    }
