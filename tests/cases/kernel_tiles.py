"""Pools of windows that tile the lanes, each larger than a block, for one chosen kernel."""

import itertools

import numpy as np

from tests.cases.kernel_pools import TYPES, WIDEST_LANES, Kernel, PoolCase, Rng, near_block
from tests.cases.values import pool_values
from tests.support.kernel_choice import is_chosen
from unpool.geometry import Axis, Window, pooling_walk
from unpool.kernels.cpu.max_pool import tiles

KERNELS = tuple(
    Kernel(kind, step, has_indices, is_separable=False, by_tiles=True)
    for kind, step, has_indices in itertools.product(TYPES, tiles.STEPS, (True, False))
    if is_chosen(kind, step, has_indices)
)
WIDE_KERNELS = (Kernel(np.float16, 1, has_indices=True, is_separable=False, by_tiles=True, is_wide=True),)


def leading_axis(rng: Rng, rank: int) -> tuple[int, int, int, int]:
    """Size, window, stride and dilation of an axis whose windows leave gaps, but neither overlap nor end outside."""
    window, dilation = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    reach = (window - 1) * dilation + 1
    stride = reach + int(rng.integers(0, 3))
    small = int(rng.integers(1, 6 if rank < 4 else 3))
    return (small - 1) * stride + reach + int(rng.integers(0, stride)), window, stride, dilation


def padded_axis(rng: Rng, rank: int) -> tuple[int, int, int, int, int, int]:
    """Size, window, stride, dilation and pads of an axis with any windows, but none that is empty."""
    while True:
        window, stride, dilation = int(rng.integers(1, 4 if rank > 2 else 6)), *(int(n) for n in rng.integers(1, 4, 2))
        begin, end = (int(pad) for pad in rng.integers(0, window + 1, 2))
        size, reach = int(rng.integers(1, 10 if rank < 4 else 5)), (window - 1) * dilation + 1
        small = (size + begin + end - reach) // stride + 1
        if small > 0 and pooling_walk(Axis(size, small, Window(window, stride, dilation), begin)).count.all():
            return size, window, stride, dilation, begin, end


def row_lanes(rng: Rng, kernel: Kernel) -> int:
    """Outputs in a row: at most half a register for one half of the kernels, more for the others."""
    half = tiles.block_lanes(np.dtype(kernel.kind).itemsize, 1, is_exact=False)
    if (TYPES.index(kernel.kind) + tiles.STEPS.index(kernel.stride)) % 2 == 0:
        return int(rng.integers(1, half + 1))
    return max(half + 1, near_block(rng, WIDEST_LANES) if rng.random() < 0.7 else int(rng.integers(1, 20)))


def tile_case(number: int, kernels: tuple[Kernel, ...] = KERNELS) -> PoolCase:
    """A case that the tiles take; every second one has no NaN, two of four find the last one."""
    rng = np.random.default_rng(number)
    kernel, nan_last = kernels[number % len(kernels)], number // len(kernels) % 4 > 1
    layout = "NHWC" if kernel.stride == 1 and rng.random() < 0.7 else "NCHW"
    rank, step = int(rng.integers(1, 5)), kernel.stride
    is_padded = layout == "NHWC" and rng.random() < 0.7
    axes = [padded_axis(rng, rank) if is_padded else (*leading_axis(rng, rank), 0, 0) for _ in range(rank)]
    lanes = row_lanes(rng, kernel)
    channels = lanes if layout == "NHWC" else int(rng.integers(1, 4))
    if layout == "NCHW":
        axes[-1] = lanes * step + int(rng.integers(0, step)), step, step, 1, 0, 0
    sizes, window, stride, dilation, begin, end = zip(*axes, strict=True)
    batch = int(rng.integers(1, 3))
    shape = (batch, *sizes, channels) if layout == "NHWC" else (batch, channels, *sizes)
    attributes = {
        "kernel_shape": list(window),
        "strides": list(stride),
        "dilations": list(dilation),
        "pads": [*begin, *end],
        "ceil_mode": 0,
        "storage_order": int(rng.random() < 0.2),
    }
    x = pool_values(rng, shape, np.dtype(kernel.kind))
    if number // len(kernels) % 2:
        x[x != x] = 1
    gaps = tuple(int(gap) for gap in rng.integers(0, 64, 3))
    name = f"{number}: {kernel} {nan_last=} {layout} {shape} {attributes}"
    return PoolCase(name, kernel, x, attributes, layout, 1, gaps, nan_last)
