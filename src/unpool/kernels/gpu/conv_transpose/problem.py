"""A transposed convolution as its kernels take it.

y[n, m, p * stride + t * dilation - begin] += x[n, c, p] * w[c, m, t]
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from unpool.geometry import Axis
from unpool.kernels.gpu.conv_transpose.phases import PhaseDim
from unpool.kernels.gpu.elements import KINDS
from unpool.kernels.gpu.tiles import TensorStrides, strides_of

_MIN_DENSE = 8  # channels and maps of a group that make dense products worthwhile: matrix units take 16 of each


class PackedWeights(NamedTuple):
    """Weights in the order of the kernels: (groups, taps, channels, maps), so that maps are neighbours.

    `check` is their sum, a float32 on the device, finite if all of them are; None where no kernel reads it.
    """

    w: torch.Tensor
    check: torch.Tensor | None


class ConvSizes(NamedTuple):
    """Counts; `positions` are those of the longest phase in all images, channels and maps those of a group."""

    phases: int
    positions: int
    taps: int
    groups: int
    channels: int
    maps: int


class ConvArgs(NamedTuple):
    """Arguments of the kernels in addition to their tensors."""

    dims: tuple[PhaseDim, ...]
    sizes: ConvSizes
    x: TensorStrides
    y: TensorStrides


@dataclass(frozen=True, slots=True)
class GpuConvProblem:
    """One call."""

    axes: tuple[Axis, ...]
    batch: int
    groups: int
    channels: int  # of x, in a group
    maps: int  # of y, in a group
    kind: str  # of the elements, by its name in `unpool.dtypes`
    is_channels_last: bool = False  # x and y are (N, D1..Dk, C) in memory
    activation: str = ""
    params: tuple[float, ...] = ()

    @property
    def is_dense(self) -> bool:
        """True if its groups are large enough for dense products."""
        return _is_dense(self.kind, self.channels, self.maps)

    def args(self, dims: tuple[PhaseDim, ...]) -> ConvArgs:
        """Arguments of the kernels; channels are those of the input, maps those of the output."""
        small, large, phases, length, taps = (
            math.prod(getattr(dim, name) for dim in dims) for name in ("small", "large", "phases", "length", "window")
        )
        sizes = ConvSizes(phases, self.batch * length, taps, self.groups, self.channels, self.maps)
        x = strides_of(self.groups * self.channels, small, self.is_channels_last)
        return ConvArgs(dims, sizes, x, strides_of(self.groups * self.maps, large, self.is_channels_last))

    def largest_offset(self, args: ConvArgs) -> int:
        """Upper bound of places in tensors and positions along axes that a kernel computes."""
        reaches = (x.large + abs(x.begin) + (x.small + 1) * x.window.stride + x.window.reach for x in self.axes)
        weights = self.groups * self.channels * self.maps * args.sizes.taps
        return max(self.batch * args.x.batch, self.batch * args.y.batch, weights, *reaches)


class BlockShape(NamedTuple):
    """The block of y that one program computes."""

    positions: int
    maps: int
    channels: int  # multiplied in one step
    warps: int = 4
    stages: int | None = None  # steps whose loads overlap; None for Triton's own choice


def pack(w: torch.Tensor, groups: int, *, is_adjoint: bool = False) -> PackedWeights:
    """Weights (C, M/groups, k1..kn) in the order of `launch`, or, if `is_adjoint`, of `launch_adjoint`."""
    return packer(tuple(w.shape), w.dtype, groups, is_adjoint=is_adjoint)(w)


def packer(
    shape: tuple[int, ...], dtype: torch.dtype, groups: int, *, is_adjoint: bool = False
) -> Callable[[torch.Tensor], PackedWeights]:
    """`pack` for all weights of a shape and a type."""
    sizes = groups, shape[0] // groups, shape[1], math.prod(shape[2:])
    order = (0, 3, 2, 1) if is_adjoint else (0, 3, 1, 2)
    has_check = _is_dense(KINDS[dtype], *sizes[1:3])

    def run(w: torch.Tensor) -> PackedWeights:
        check = w.sum(dtype=torch.float32) if has_check else None
        return PackedWeights(w.reshape(sizes).permute(order).contiguous(), check)

    return run


def _is_dense(kind: str, channels: int, maps: int) -> bool:
    return kind != "float64" and min(channels, maps) >= _MIN_DENSE


def precision() -> str:
    """Precision of float32 products, as set by torch.set_float32_matmul_precision."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
