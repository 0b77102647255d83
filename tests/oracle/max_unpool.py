"""MaxUnpool, sections 1 and 2 of the contract."""

from collections.abc import Sequence

import numpy as np

from tests.oracle.activation import activate, check_activation
from tests.oracle.rows import INT64, Refused, check_row, from_channels_first, to_channels_first
from tests.oracle.window import numbers

Axes = tuple[list[int], list[int], list[int]]


def unpool_axes(
    rank: int, kernel_shape: Sequence[int], strides: Sequence[int] | None, pads: Sequence[int] | None
) -> Axes:
    """Kernel, strides and pads of every spatial axis (2.5)."""
    kernel = numbers("kernel_shape", kernel_shape, rank, 1, 1)
    step = numbers("strides", strides, rank, 1, 1)
    edge = numbers("pads", pads, 2 * rank, 0, 0)
    return kernel, step, edge


def inferred_shape(shape: Sequence[int], axes: Axes) -> tuple[int, ...]:
    """(N, C, sizes) without output_shape; a size may come out negative (1.3)."""
    kernel, step, edge = axes
    rank = len(kernel)
    sizes = [(shape[2 + i] - 1) * step[i] + kernel[i] - edge[i] - edge[i + rank] for i in range(rank)]
    return (*shape[:2], *sizes)


def requested_shape(output_shape: np.ndarray, x: np.ndarray) -> tuple[int, ...]:
    """Check the output_shape input (1.5)."""
    if output_shape.dtype != INT64 or output_shape.shape != (x.ndim,):
        raise Refused(f"output_shape is {output_shape.dtype} {output_shape.shape}")
    shape = tuple(int(size) for size in output_shape)
    if min(shape) < 0 or shape[:2] != x.shape[:2]:
        raise Refused(f"output_shape {shape} for x {x.shape}")
    return shape


def is_consistent(indices: np.ndarray, shape: tuple[int, ...], axes: Axes) -> bool:
    """Whether every index decodes in `shape` to its own plane and to a cell of its own window (1.1)."""
    kernel, step, edge = axes
    count = int(np.prod(shape, dtype=object))
    for place in np.ndindex(*indices.shape):
        index = int(indices[place])
        if not 0 <= index < count:
            return False
        n, c, *large = (int(i) for i in np.unravel_index(index, shape))
        if (n, c) != place[:2]:
            return False
        for i, position in enumerate(large):
            start = place[2 + i] * step[i] - edge[i]
            if not start <= position < start + kernel[i]:
                return False
    return True


def counts_in_inferred(indices: np.ndarray, requested: tuple[int, ...], inferred: tuple[int, ...], axes: Axes) -> bool:
    """The decision of index_space="auto" (1.1)."""
    if requested == inferred or any(s < s0 for s, s0 in zip(requested, inferred, strict=True)):
        return False
    if min(inferred) < 0:
        return False
    return not is_consistent(indices, requested, axes) and is_consistent(indices, inferred, axes)


def scatter(x: np.ndarray, indices: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Zeros of `shape` with every value at its whole-tensor index; the last of duplicates stays (2.1-2.3)."""
    if min(shape) < 0:
        raise Refused(f"output shape {shape}")
    count = int(np.prod(shape, dtype=object))
    if any(not 0 <= int(index) < count for index in indices.reshape(-1)):
        raise Refused("index out of range")
    flat = np.zeros(count, x.dtype)
    values = np.ascontiguousarray(x).reshape(-1)
    for position, index in enumerate(indices.reshape(-1)):
        flat[index : index + 1] = values[position : position + 1]
    return flat.reshape(shape)


def placed(block: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The block at the origin of zeros of `shape`."""
    if any(size > room for size, room in zip(block.shape, shape, strict=True)):
        raise Refused(f"block {block.shape} does not fit into output_shape {shape}")
    y = np.zeros(shape, block.dtype)
    y[tuple(slice(size) for size in block.shape)] = block
    return y


def max_unpool(
    x: np.ndarray,
    indices: np.ndarray,
    output_shape: np.ndarray | None = None,
    *,
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    index_space: str = "auto",
    layout: str = "NCHW",
    activation: str | None = None,
    activation_params: Sequence[float] | None = None,
    version: int | None = None,
    compat: str = "spec",
) -> np.ndarray:
    """The values of x at their indices, zeros elsewhere; indices are (N, C, d1..dn) in both layouts (6.4)."""
    later = {"activation": activation, "activation_params": activation_params}
    check_row("MaxUnpool", version, layout, (x,), later)
    params = check_activation(activation, activation_params, x.dtype)
    first = to_channels_first(x, layout)
    axes = unpool_axes(first.ndim - 2, kernel_shape, strides, pads)
    if indices.dtype != INT64 or indices.shape != first.shape:
        raise Refused(f"indices {indices.dtype} {indices.shape} for x {first.shape}")
    inferred = inferred_shape(first.shape, axes)
    requested = inferred if output_shape is None else requested_shape(output_shape, first)
    if compat == "ort" and np.prod(requested, dtype=object) < np.prod(inferred, dtype=object):
        raise Refused("output_shape is smaller than the inferred shape")
    if index_space == "auto":  # 1.1, 1.2, 1.4
        small = compat == "spec" and counts_in_inferred(indices, requested, inferred, axes)
        index_space = "inferred" if small else "output"
    y = scatter(first, indices, inferred if index_space == "inferred" else requested)
    y = placed(y, requested)
    return from_channels_first(activate(y, activation, params, x.dtype), layout)
