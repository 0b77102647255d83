"""ONNX attributes of an exported pool or unpooling, from ATen's arguments, and the opsets and types that have both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import lt
from typing import Any

from unpool.errors import UnsupportedError
from unpool.geometry import UnpoolWindow, Window, pooled_size, upsampled_size, window_between, window_undoing
from unpool.operators import contract

FIRST_OPSET = 9
"""The first opset with MaxUnpool."""

FIRST_CEIL = 10
"""The first opset whose MaxPool has ceil_mode and dilations."""


@dataclass(frozen=True, slots=True)
class AtenPool:
    """The windows of a pool, as ATen describes it.

    Attributes:
        windows: one per axis.
        pads: elements of padding at both ends, one number per axis.
        ceil: ATen's ceil_mode.
    """

    windows: tuple[Window, ...]
    pads: tuple[int, ...]
    ceil: bool


def pool_of(rank: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> AtenPool:
    """A pool over `rank` spatial axes from ATen's arguments, each an int, or a list of one or `rank` ints.

    An empty stride means the window's size.

    Example:
        >>> pool_of(1, 3, [], 1, 1, False)
        AtenPool(windows=(Window(size=3, stride=3, dilation=1),), pads=(1,), ceil=False)
    """
    kernel = _spread(kernel_size, rank)
    steps, dilations = _spread(stride, rank) or kernel, _spread(dilation, rank)
    return AtenPool(tuple(map(Window, kernel, steps, dilations)), tuple(_spread(padding, rank)), ceil)


def _spread(setting: Any, rank: int) -> list[int]:
    """One int per axis; an empty list stays empty."""
    values = [setting] if isinstance(setting, int) else list(setting)
    return values * rank if len(values) == 1 else values


def pool_attributes(pool: AtenPool, large: Sequence[Any], opset: int) -> dict[str, Any]:
    """The attributes of a MaxPool of this opset; `large` are spatial sizes of its input, ints if they are static.

    Padding replaces ceil_mode if the opset has no ceil_mode, or if the last window of a pool would start in the
    padding: shape inference before MaxPool-22 counts that window, ATen does not.

    Raises:
        UnsupportedError: the opset is below 10, and the pool has dilations, or ceil_mode and dynamic sizes.
    """
    dilations = [window.dilation for window in pool.windows]
    ends = ceil_ends(large, pool) if pool.ceil else None
    if opset < FIRST_CEIL and (set(dilations) != {1} or (pool.ceil and ends is None)):
        what = "ceil_mode with dynamic sizes" if set(dilations) == {1} else f"dilation {dilations}"
        raise UnsupportedError(
            f"export: MaxPool of opset {opset} has no dilations and no ceil_mode, got {what}. "
            f"Export with opset_version {FIRST_CEIL} or later."
        )
    is_padded = ends is not None and (opset < FIRST_CEIL or any(map(lt, ends, pool.pads)))
    attributes: dict[str, Any] = {
        "kernel_shape": [window.size for window in pool.windows],
        "strides": [window.stride for window in pool.windows],
        "pads": [*pool.pads, *((max(0, end) for end in ends) if ends is not None and is_padded else pool.pads)],
    }
    if opset < FIRST_CEIL:
        return attributes
    return attributes | {"dilations": dilations, "ceil_mode": int(pool.ceil and not is_padded)}


def pooled_sizes(large: Sequence[Any], pool: AtenPool) -> list[int | None]:
    """Elements along the spatial axes of a pool's output, None for dynamic ones.

    >>> pooled_sizes([7, None, 8], pool_of(3, [2, 2, 3], 2, [0, 0, 1], 1, True))
    [4, None, 5]
    """
    return [
        pooled_size(size, window, pad, pad, ceil=pool.ceil) if isinstance(size, int) else None
        for size, window, pad in zip(large, pool.windows, pool.pads, strict=True)
    ]


def ceil_ends(large: Sequence[Any], pool: AtenPool) -> list[int] | None:
    """Padding at the ends that gives a pool without ceil_mode the windows of one with it; None if a size is dynamic.

    The last window then ends with the padding. This is less than the pool's own padding if ceil_mode drops a window
    that would start in the padding, and negative if no window covers the last elements.

    >>> ceil_ends([8, 7], pool_of(2, [3, 2], 2, [1, 0], 1, True)), ceil_ends([6], pool_of(1, 1, 2, 0, 1, True))
    ([2, 1], [-1])
    """
    small = pooled_sizes(large, pool)
    known = [count for count in small if count is not None]
    if len(known) < len(small):
        return None
    return [
        upsampled_size(count, window, padding=size + pad)
        for count, window, size, pad in zip(known, pool.windows, large, pool.pads, strict=True)
    ]


def pool_windows(attributes: Mapping[str, Any], rank: int) -> list[UnpoolWindow | None]:
    """For each of `rank` axes the window of an unpooling that undoes a MaxPool; None for axes that the pool lacks.

    Opset 9 has no ceil_mode: there it is recognised by different padding at begins and ends.

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
    """One window per axis that makes MaxUnpool infer `large` from `small`; that of `pools` if a size is dynamic."""
    known = ([size if isinstance(size, int) else None for size in sizes] for sizes in (small, large))
    return list(map(window_between, *known, pools))


def is_inferred(small: Sequence[Any], large: Sequence[Any], windows: Sequence[UnpoolWindow]) -> bool:
    """True if all sizes are static and the windows alone lead from `small` to `large`."""
    return all(
        isinstance(size, int) and window.output_size(size) == unpooled
        for size, unpooled, window in zip(small, large, windows, strict=True)
    )


def check_opset(where: str, opset: int | None) -> None:
    """Refuse an opset below 9, which has no MaxUnpool."""
    if opset is not None and opset < FIRST_OPSET:
        raise UnsupportedError(
            f"{where}: opset must be at least {FIRST_OPSET}, the first with MaxUnpool, "
            f"got {opset}. Export with a newer opset_version."
        )


def check_type(operator: str, opset: int, dtype: str) -> None:
    """Refuse a type, by NumPy's name, that the operator's version in this opset lacks."""
    row = contract.row(operator, "", opset)
    if dtype not in row.value_types:
        later = [one.since_version for one in contract.rows_of(operator, "") if dtype in one.value_types]
        where = f"Export with opset_version {later[0]} or later" if later else "Export another type"
        raise UnsupportedError(
            f"export: {operator}-{row.since_version} of opset {opset} takes {', '.join(row.value_types)}, "
            f"got {dtype}. {where}."
        )
