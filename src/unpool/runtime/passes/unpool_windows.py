"""The windows of a MaxUnpool that takes the place of nodes without any: read off a MaxPool, written as attributes."""

from collections.abc import Sequence

import onnx

from unpool.geometry import UnpoolWindow, window_undoing
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import window_attributes
from unpool.operators.resolve import spec as resolve_spec
from unpool.runtime.graph.nodes import attributes, domain


def windows_undoing(pool: onnx.NodeProto | None, opset: int, rank: int) -> list[UnpoolWindow | None]:
    """For each of `rank` spatial axes the window with which an unpooling undoes a MaxPool.

    Returns:
        `window_undoing` per axis; None where there is no pool, and for axes that it pads unevenly or by auto_pad.
    """
    spec = None if pool is None else resolve_spec("MaxPool", attributes(pool), domain=domain(pool), opset=opset)
    if not isinstance(spec, MaxPoolSpec):
        return [None] * rank
    found: list[UnpoolWindow | None] = []
    for window, (begin, end) in zip(spec.windows, spec.pads, strict=True):
        is_plain = spec.padding == "NOTSET" and begin == end
        found.append(window_undoing(window, begin, ceil=spec.ceil) if is_plain else None)
    return (found + [None] * rank)[:rank]


def short_attributes(windows: Sequence[UnpoolWindow]) -> dict[str, list[int]]:
    """The windows as attributes of a MaxUnpool, without pads that are all zero."""
    return {name: values for name, values in window_attributes(windows).items() if any(values)}
