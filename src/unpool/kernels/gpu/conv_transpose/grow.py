"""Transposed convolution: what is asked for, and the kernels in their order.

y[n, m, p * stride + t * dilation - begin] += x[n, c, p] * w[c, m, t]
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch

from unpool.geometry import Axis
from unpool.kernels.gpu.conv_transpose import products, sums
from unpool.kernels.gpu.conv_transpose.phases import Line, line_of
from unpool.kernels.gpu.elements import bits_of
from unpool.kernels.gpu.launch import LIMIT32, blocks
from unpool.kernels.gpu.launch import launch as start
from unpool.kernels.gpu.tiles import Strides, strides_of

Run: TypeAlias = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor], None]
"""Writes y of (x, w, b, y): x and y without gaps in one layout; w (C, M/groups, k1..kn); b (M,) or None."""

_LEAST = 8
"""Channels and maps of a group from which on blocks of products pay: matrix units take 16 of each."""


@dataclass(frozen=True, slots=True)
class Growth:
    """One call.

    Attributes:
        axes: one per spatial axis.
        batch: N.
        groups: of channels and maps.
        channels: of x, in a group.
        maps: of y, in a group.
        kind: of the elements, as `unpool.dtypes` calls it.
        is_channels_last: whether x and y are (N, D1..Dk, C) in memory.
        activation: its name, "" for none.
        params: what it takes.
    """

    axes: tuple[Axis, ...]
    batch: int
    groups: int
    channels: int
    maps: int
    kind: str
    is_channels_last: bool = False
    activation: str = ""
    params: tuple[float, ...] = ()


class Call(NamedTuple):
    """What kernels get beside their tensors; `positions` are those of a phase, at most."""

    lines: tuple[Line, ...]
    phases: int
    positions: int
    taps: int
    groups: int
    channels: int
    maps: int
    x: Strides
    y: Strides


@dataclass(frozen=True)
class How:
    """What compiled kernels depend on; blocks are of positions, maps and channels."""

    positions: int
    maps: int
    channels: int
    kind: str
    is_wide: bool
    has_bias: bool
    may_skip: bool
    precision: str
    activation: str
    params: tuple[float, ...]


def launch(growth: Growth) -> Run:
    """What computes a call."""
    lines = tuple(map(line_of, growth.axes))
    small, large = (math.prod(getattr(axis, name) for axis in growth.axes) for name in ("small", "large"))
    phases, length = (math.prod(getattr(line, name) for line in lines) for name in ("phases", "length"))
    taps = math.prod(line.window for line in lines)
    channels, maps = growth.groups * growth.channels, growth.groups * growth.maps
    call = Call(
        lines, phases, growth.batch * length, taps, growth.groups, growth.channels, growth.maps,
        strides_of(channels, small, growth.is_channels_last), strides_of(maps, large, growth.is_channels_last),
    )  # fmt: skip
    reach = max(line.large + line.begin + line.stride + line.window * line.dilation for line in lines)
    sizes = growth.batch * channels * small, growth.batch * maps * large, channels * growth.maps * taps, reach
    is_wide = max(sizes) >= LIMIT32
    ways = (products.add_products, products.blocks_of), (sums.add_sums, sums.blocks_of)
    is_dense = growth.kind != "float64" and min(growth.channels, growth.maps) >= _LEAST

    def run(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, y: torch.Tensor) -> None:
        packed, out = _packed(w, growth.groups, taps), bits_of(y)
        skips = torch.isfinite(w).all().to(torch.int32) if is_dense else packed
        tensors = x, packed, packed if b is None else b, out, skips
        for kernel, blocks_of in ways[not is_dense :]:
            how = _how(growth, blocks_of(call, growth.kind), b is not None, is_dense, is_wide)
            start(kernel, _programs(call, how), y.device, (*tensors, call, how))

    return run


def _packed(w: torch.Tensor, groups: int, taps: int) -> torch.Tensor:
    """Weights as (groups, taps, channels, maps), so that maps are neighbours."""
    return w.reshape(groups, w.shape[0] // groups, w.shape[1], taps).permute(0, 3, 1, 2).contiguous()


def _how(growth: Growth, sizes: tuple[int, int, int], has_bias: bool, may_skip: bool, is_wide: bool) -> How:
    is_exact = torch.get_float32_matmul_precision() == "highest"
    return How(
        *sizes, growth.kind, is_wide, has_bias, may_skip, "ieee" if is_exact else "tf32", growth.activation,
        growth.params,
    )  # fmt: skip


def _programs(call: Call, how: How) -> int:
    return call.phases * call.groups * blocks(call.positions, how.positions) * blocks(call.maps, how.maps)
