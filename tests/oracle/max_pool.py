"""MaxPool, section 3 of the contract."""

from collections.abc import Sequence

import numpy as np

from tests.oracle.activation import activate, check_activation
from tests.oracle.rows import Refused, check_row, from_channels_first, to_channels_first
from tests.oracle.window import Pooled, check_auto_pad, numbers, pooled_axis


def pool_axes(
    shape: Sequence[int],
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None,
    pads: Sequence[int] | None,
    dilations: Sequence[int] | None,
    auto_pad: str,
    ceil_mode: int,
    compat: str,
) -> list[Pooled]:
    """One record for every spatial axis of a channels-first shape."""
    rank = len(shape) - 2
    if ceil_mode not in (0, 1):
        raise Refused(f"ceil_mode {ceil_mode}")
    mode = check_auto_pad(auto_pad, pads, pads_may_stay=compat == "ort")
    kernel = numbers("kernel_shape", kernel_shape, rank, 1, 1)
    step = numbers("strides", strides, rank, 1, 1)
    spread = numbers("dilations", dilations, rank, 1, 1)
    edge = numbers("pads", pads, 2 * rank, 0, 0)
    if compat == "ort" and any(edge[i] >= kernel[i % rank] for i in range(2 * rank)):
        raise Refused("pads >= kernel_shape")
    return [
        pooled_axis(shape[2 + i], kernel[i], step[i], spread[i], (edge[i], edge[i + rank]), mode, ceil_mode, compat)
        for i in range(rank)
    ]


def wins(value: float, best: float) -> bool:
    """First NaN, else the first largest (3.12, 3.13)."""
    return best == best and (value != value or value > best)


def winner(values: np.ndarray, place: tuple[int, ...], axes: Sequence[Pooled]) -> tuple[int, ...] | None:
    """Coordinate of the window's maximum in row-major window order; None when it sees only padding."""
    n, c, *small = place
    best: tuple[int, ...] | None = None
    for tap in np.ndindex(*(axis.window for axis in axes)):
        at = [o * a.stride + t * a.dilation - a.begin for o, t, a in zip(small, tap, axes, strict=True)]
        if any(not 0 <= position < a.large for position, a in zip(at, axes, strict=True)):
            continue
        if best is None or wins(values[n, c, *at], values[best]):
            best = (n, c, *at)
    return best


def linear(coordinate: tuple[int, ...], shape: Sequence[int], storage_order: int) -> int:
    """Whole-tensor index without padding; storage_order only orders the spatial tuple (3.14)."""
    n, c, *spatial = coordinate
    pairs = list(zip(spatial, shape[2:], strict=True))
    flat = 0
    for position, size in pairs if storage_order == 0 else reversed(pairs):
        flat = flat * size + position
    return (n * shape[1] + c) * int(np.prod(shape[2:], dtype=np.int64)) + flat


def slide(x: np.ndarray, axes: Sequence[Pooled], storage_order: int) -> tuple[np.ndarray, np.ndarray]:
    """Y and Indices of a channels-first x; an empty window gives the lowest value and -1 (3.10)."""
    shape = (*x.shape[:2], *(axis.size for axis in axes))
    lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    y = np.full(shape, lowest, x.dtype)
    indices = np.full(shape, -1, np.int64)
    with np.errstate(all="ignore"):
        values = x.astype(np.float64)
    elements = np.ascontiguousarray(x).reshape(-1)
    for flat, place in enumerate(np.ndindex(*shape)):
        best = winner(values, place, axes)
        if best is not None:
            source = linear(best, x.shape, 0)
            y.reshape(-1)[flat : flat + 1] = elements[source : source + 1]
            indices[place] = linear(best, x.shape, storage_order)
    return y, indices


def max_pool(
    x: np.ndarray,
    *,
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    storage_order: int = 0,
    return_indices: bool = False,
    layout: str = "NCHW",
    activation: str | None = None,
    activation_params: Sequence[float] | None = None,
    version: int | None = None,
    compat: str = "spec",
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """Y, or (Y, Indices) with return_indices; Indices are (N, C, D1..Dn) in both layouts (6.4)."""
    later = {
        "storage_order": storage_order,
        "return_indices": return_indices,
        "ceil_mode": ceil_mode,
        "dilations": dilations,
        "activation": activation,
        "activation_params": activation_params,
    }
    check_row("MaxPool", version, layout, (x,), later)
    if storage_order not in (0, 1):
        raise Refused(f"storage_order {storage_order}")
    params = check_activation(activation, activation_params, x.dtype)
    first = to_channels_first(x, layout)
    axes = pool_axes(first.shape, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode, compat)
    y, indices = slide(first, axes, storage_order)
    y = from_channels_first(activate(y, activation, params, x.dtype), layout)
    return (y, indices) if return_indices else y
