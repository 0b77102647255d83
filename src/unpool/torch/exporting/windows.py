"""The window that an exported MaxUnpool states: ATen's unpooling has none, only the size of its output."""

from collections.abc import Mapping, Sequence
from typing import Any

from unpool.geometry import UnpoolWindow, Window, window_between, window_undoing


def pool_windows(attributes: Mapping[str, Any], rank: int) -> list[UnpoolWindow | None]:
    """For each of `rank` axes the window with which an unpooling undoes a pool; None for axes that the pool has not.

    Args:
        attributes: of the MaxPool node. Without ceil_mode, which opset 9 has not, other padding at the ends than at the
            begins stands for it.
        rank: number of spatial axes.

    Example:
        >>> pool_windows({"kernel_shape": [3], "strides": [2], "pads": [1, 1], "dilations": [2], "ceil_mode": 0}, 2)
        [UnpoolWindow(size=5, stride=2, padding=1), None]
    """
    sizes = attributes["kernel_shape"]
    ones = [1] * len(sizes)
    pads = list(attributes.get("pads", [0, 0] * len(sizes)))
    begins, ends = pads[: len(sizes)], pads[len(sizes) :]
    ceil = bool(attributes.get("ceil_mode", begins != ends))
    windows = map(Window, sizes, attributes.get("strides", ones), attributes.get("dilations", ones))
    found = [window_undoing(window, begin, ceil=ceil) for window, begin in zip(windows, begins, strict=True)]
    return [*found, *[None] * rank][:rank]


def unpool_windows(
    small: Sequence[Any], large: Sequence[Any], pools: Sequence[UnpoolWindow | None]
) -> list[UnpoolWindow]:
    """One window per axis for which MaxUnpool infers `large` from `small`; that of `pools` where a size is dynamic.

    Args:
        small: elements along the axes of the input, ints where they are static.
        large: the same of the output.
        pools: what `pool_windows` says of the pool that found the indices.
    """
    known = ([size if isinstance(size, int) else None for size in sizes] for sizes in (small, large))
    return list(map(window_between, *known, pools))


def is_inferred(small: Sequence[Any], large: Sequence[Any], windows: Sequence[UnpoolWindow]) -> bool:
    """Whether all sizes are static and the windows alone lead from `small` to `large`."""
    return all(
        isinstance(size, int) and window.grown(size) == grown
        for size, grown, window in zip(small, large, windows, strict=True)
    )
