"""The window that an exported MaxUnpool states, for ATen's unpooling has none, and which opset can hold it."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from unpool.errors import UnsupportedError
from unpool.geometry import Fitted, Window, fitted, pooled_size
from unpool.operators import contract

FIRST_OPSET = 9
"""The first opset with MaxUnpool."""

Setting: TypeAlias = tuple[list[int], list[int], list[int], list[int]]
"""Window, strides, pads (at both ends) and dilations of a pool, each per spatial axis."""


def check_opset(where: str, opset: int | None) -> None:
    """Refuse opsets without MaxUnpool.

    Raises:
        UnsupportedError: opset is below 9.
    """
    if opset is not None and opset < FIRST_OPSET:
        raise UnsupportedError(
            f"{where}: opset must be at least {FIRST_OPSET}, the first with MaxUnpool, "
            f"got {opset}. Export with a newer opset_version."
        )


def check_type(operator: str, opset: int, dtype: str) -> None:
    """Refuse types that the operator has only in later opsets, if at all.

    Args:
        operator: one of unpool's.
        opset: of the file.
        dtype: NumPy's name of the type.

    Raises:
        UnsupportedError: the operator's version in this opset has no such type.
    """
    row = contract.row(operator, "", opset)
    if dtype not in row.value_types:
        later = [one.since_version for one in contract.rows_of(operator, "") if dtype in one.value_types]
        where = f"Export with opset_version {later[0]} or later" if later else "Export another type"
        raise UnsupportedError(
            f"export: {operator}-{row.since_version} of opset {opset} takes {', '.join(row.value_types)}, "
            f"got {dtype}. {where}."
        )


def unpool_window(small: Any, large: Any, pooled: Fitted | None) -> Fitted:
    """Window of one axis for which MaxUnpool infers `large` from `small`, and `pooled` where one of them is dynamic.

    Args:
        small: elements along the axis of the input, an int if it is static.
        large: the same of the output.
        pooled: window of the pool that found the indices, None if it is not known.
    """
    known = [size if isinstance(size, int) else None for size in (small, large)]
    return fitted(known[0], known[1], pooled)


def is_inferred(small: Sequence[Any], large: Sequence[Any], windows: Sequence[Fitted]) -> bool:
    """Whether all sizes are static and the windows alone lead from `small` to `large`."""
    return all(
        isinstance(size, int) and (size - 1) * stride + window - 2 * padding == grown
        for size, grown, (window, stride, padding) in zip(small, large, windows, strict=True)
    )


def pooled_window(window: int, stride: int, padding: int, dilation: int, *, ceil: bool) -> Fitted:
    """Window of an unpooling whose sizes are dynamic, from that of its pool.

    MaxUnpool has no dilation, so the window is all that the pool's window reaches over. A ceil_mode pool counts windows
    that hang over the end; there the window is cut to its first element inside, so that the shape that MaxUnpool infers
    is in no case larger than the pool's input.
    """
    return Fitted(padding + 1 if ceil else Window(window, stride, dilation).reach, stride, padding)


def pooled_sizes(large: Sequence[Any], setting: Setting, *, ceil: bool) -> list[int | None]:
    """Elements along the spatial axes of a pool's output, None where they are dynamic.

    Args:
        large: the same of its input, ints where they are static.
        setting: of the pool.
        ceil: its ceil_mode.

    Example:
        >>> pooled_sizes([7, None, 8], ([2, 2, 3], [2, 2, 2], [0, 0, 1], [1, 1, 1]), ceil=True)
        [4, None, 5]
    """
    return [
        pooled_size(size, Window(window, step, dilation), pad, pad, ceil=ceil) if isinstance(size, int) else None
        for size, window, step, pad, dilation in zip(large, *setting, strict=True)
    ]


def ceil_ends(large: Sequence[Any], setting: Setting) -> list[int] | None:
    """Padding at the ends that says what ceil_mode says: the last window ends where the padding ends.

    It is smaller than the pool's padding where ceil_mode drops a window that would start in the padding. Shape
    inference before MaxPool-22 counts that window, so there only the padding is read alike. Negative where elements
    stay over.

    Args:
        large: elements along the spatial axes of the pool's input, ints where they are static.
        setting: of the pool.

    Returns:
        one number per axis, None if a size is dynamic.

    Example:
        >>> ceil_ends([8, 7], ([3, 2], [2, 2], [1, 0], [1, 1])), ceil_ends([6], ([1], [2], [0], [1]))
        ([2, 1], [-1])
    """
    ends = []
    for size, count, *one in zip(large, pooled_sizes(large, setting, ceil=True), *setting, strict=True):
        if count is None:
            return None
        window, stride, pad, dilation = one
        ends.append((count - 1) * stride + (window - 1) * dilation + 1 - size - pad)
    return ends


def per_axis(setting: Any, rank: int) -> list[int]:
    """ATen's int or list of ints, spread over the spatial axes; an empty list stays empty.

    Example:
        >>> per_axis(2, 3), per_axis([2, 3], 2), per_axis([], 2)
        ([2, 2, 2], [2, 3], [])
    """
    values = [setting] if isinstance(setting, int) else list(setting)
    return values * rank if len(values) == 1 else values
