"""Transposed convolution: what is asked for, and the kernels in their order.

    y[n, m, p * stride + t * dilation - begin] += x[n, c, p] * w[c, m, t]

Its gradient by x is a convolution, which the same kernels compute: they walk the line from the small side, and
channels and maps change places.

    dX[n, c, p] = sum over maps m, taps t: w[c, m, t] * grad[n, m, p * stride + t * dilation - begin]
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import torch

from unpool.geometry import Axis
from unpool.kernels.gpu.conv_transpose import products, sums
from unpool.kernels.gpu.conv_transpose.blocks import Blocks
from unpool.kernels.gpu.conv_transpose.phases import Line, adjoint_line_of, line_of
from unpool.kernels.gpu.elements import KINDS, bits_of
from unpool.kernels.gpu.launch import LIMIT32, Start, blocks
from unpool.kernels.gpu.layouts import channels_last, exchange
from unpool.kernels.gpu.tiles import Strides, strides_of

_IN_FLOAT64 = ("Sigmoid", "Tanh")
"""Activations that take two registers for each sum."""

Run: TypeAlias = Callable[[torch.Tensor, "Packed", torch.Tensor | None, torch.Tensor], None]
"""Writes y of (x, w, b, y): x and y without gaps in one layout; w packed; b (M,) or None."""

_MOST_PROGRAMS = 1024
"""Of a kernel that mostly has nothing to do, so that it is gone quickly."""

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


class Packed(NamedTuple):
    """Weights in the order of the kernels: (groups, taps, channels, maps), so that maps are neighbours.

    `check` is their sum, one float32 on the device, which says whether all of them are finite; None where no kernel
    asks.
    """

    w: torch.Tensor
    check: torch.Tensor | None


class Sizes(NamedTuple):
    """How many of each there are; `positions` are those of a phase, at most, channels and maps those of a group."""

    phases: int
    positions: int
    taps: int
    groups: int
    channels: int
    maps: int


class Call(NamedTuple):
    """What kernels get beside their tensors."""

    lines: tuple[Line, ...]
    sizes: Sizes
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


def pack(w: torch.Tensor, groups: int, *, is_adjoint: bool = False) -> Packed:
    """Weights (C, M/groups, k1..kn) for `launch`, or, where `is_adjoint`, for `launch_adjoint`."""
    sizes = groups, w.shape[0] // groups, w.shape[1], math.prod(w.shape[2:])
    packed = w.reshape(sizes).permute(0, 3, 2, 1) if is_adjoint else w.reshape(sizes).permute(0, 3, 1, 2)
    check = w.sum(dtype=torch.float32) if is_dense(KINDS[w.dtype], *sizes[1:3]) else None
    return Packed(packed.contiguous(), check)


def launch(growth: Growth) -> Run:
    """What computes a call."""
    return _walk(growth, tuple(map(line_of, growth.axes)))


def launch_adjoint(growth: Growth) -> Run:
    """What computes the gradient of a call by x: it takes the gradient of y for x, and writes dX for y."""
    turned = replace(growth, channels=growth.maps, maps=growth.channels, activation="", params=())
    return _walk(turned, tuple(map(adjoint_line_of, growth.axes)))


def is_dense(kind: str, channels: int, maps: int) -> bool:
    """Whether blocks of products pay for groups of so many channels and maps."""
    return kind != "float64" and min(channels, maps) >= _LEAST


def call_of(growth: Growth, lines: tuple[Line, ...]) -> Call:
    """What kernels get of a call; channels are those of what is read, maps of what is written."""
    small, large, phases, length, taps = (
        math.prod(getattr(line, name) for line in lines) for name in ("small", "large", "phases", "length", "window")
    )
    channels, maps = growth.groups * growth.channels, growth.groups * growth.maps
    return Call(
        lines, Sizes(phases, growth.batch * length, taps, growth.groups, growth.channels, growth.maps),
        strides_of(channels, small, growth.is_channels_last), strides_of(maps, large, growth.is_channels_last),
    )  # fmt: skip


def farthest(growth: Growth, call: Call) -> int:
    """No place in a tensor and no position along an axis that a kernel computes is larger."""
    reaches = (
        axis.large + abs(axis.begin) + (axis.small + 1) * axis.window.stride + axis.window.reach for axis in growth.axes
    )
    sizes = call.sizes
    weights = sizes.groups * sizes.channels * sizes.maps * sizes.taps
    return max(growth.batch * call.x.batch, growth.batch * call.y.batch, weights, *reaches)


def _walk(growth: Growth, lines: tuple[Line, ...]) -> Run:
    if not is_dense(growth.kind, growth.channels, growth.maps):
        return _walker(growth, lines, (sums,))
    walk = _walker(replace(growth, is_channels_last=True), lines, (products, sums))
    return walk if growth.is_channels_last else _turning(growth, lines, walk)


def _walker(growth: Growth, lines: tuple[Line, ...], ways: Sequence[Any]) -> Run:
    """What starts the kernels of the modules `ways`; the last of them runs where the first one must not."""
    call = call_of(growth, lines)
    is_wide = farthest(growth, call) >= LIMIT32

    @lru_cache(8)
    def starts(has_bias: bool, precision: str) -> list[Start]:
        return [_start(way, growth, call, is_wide, has_bias, len(ways) > 1, precision) for way in ways]

    def run(x: torch.Tensor, w: Packed, b: torch.Tensor | None, y: torch.Tensor) -> None:
        check = w.w if w.check is None else w.check
        for start in starts(b is not None, precision()):
            start(x, w.w, w.w if b is None else b, bits_of(y), check)

    return run


def _turning(growth: Growth, lines: tuple[Line, ...], walk: Run) -> Run:
    """A walk that wants channels last, for tensors that have them first."""
    small, large = (math.prod(getattr(line, name) for line in lines) for name in ("small", "large"))
    turned = channels_last(growth.batch, growth.groups * growth.channels, small)
    back = exchange(growth.batch, large, growth.groups * growth.maps)

    def run(x: torch.Tensor, w: Packed, b: torch.Tensor | None, y: torch.Tensor) -> None:
        made = torch.empty_like(y)
        walk(turned(x), w, b, made)
        back(bits_of(made), bits_of(y))

    return run


def _start(
    way: Any, growth: Growth, call: Call, is_wide: bool, has_bias: bool, may_skip: bool, precision: str
) -> Start:
    """One of the ways: `products` or `sums`; sums that may be skipped are few programs, with many blocks each."""
    sizes, is_tight = call.sizes, is_wide or growth.activation in _IN_FLOAT64
    block: Blocks = way.blocks_of(sizes, growth.kind, is_tight or (way is sums and len(call.lines) > 2))
    how = How(
        *block[:3], growth.kind, is_wide, has_bias, may_skip, precision, growth.activation, growth.params,
    )  # fmt: skip
    programs = sizes.phases * sizes.groups * blocks(sizes.positions, how.positions) * blocks(sizes.maps, how.maps)
    if way is sums and may_skip:
        programs = min(programs, _MOST_PROGRAMS)
    return Start(way.KERNEL, programs, call, how, block.warps, block.stages)


def precision() -> str:
    """How float32 is multiplied, as torch.set_float32_matmul_precision says."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
