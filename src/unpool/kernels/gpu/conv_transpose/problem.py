"""A transposed convolution as its kernels take it.

y[n, m, p * stride + t * dilation - begin] += x[n, c, p] * w[c, m, t]
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from unpool.geometry import Axis
from unpool.kernels.gpu.conv_transpose.phases import PhaseDim, ShuffleDim, shuffle_dim_of, subpixel_dim_of
from unpool.kernels.gpu.elements import KINDS
from unpool.kernels.gpu.tiles import TensorStrides, strides_of

MIN_DENSE = 8  # channels and maps of a group that make dense products worthwhile: matrix units take 16 of each
_BLOCK_MAPS = {"float32": 64}  # that a program computes; 128 in 16-bit floats


class PackedWeights(NamedTuple):
    """Weights in the order of the kernels: (groups, taps, channels, maps), so that maps are neighbours.

    Those of a sub-pixel convolution are (groups, taps of a phase, channels, phases, maps). `check` is their sum, a
    float32 on the device, finite if all of them are; None where no kernel reads it.
    """

    w: torch.Tensor
    check: torch.Tensor | None


class ConvSizes(NamedTuple):
    """Counts; `positions` are those of the longest phase in all images, channels and maps those of a group.

    The maps of a sub-pixel convolution are those of all phases; `y_maps` are those of y.
    """

    phases: int
    positions: int
    taps: int
    groups: int
    channels: int
    maps: int
    y_maps: int


class ConvArgs(NamedTuple):
    """Arguments of the kernels in addition to their tensors; `shuffle` is for sub-pixel convolutions."""

    dims: tuple[PhaseDim, ...]
    shuffle: tuple[ShuffleDim, ...]
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

    @property
    def is_subpixel(self) -> bool:
        """True if all phases are computed together."""
        windows = [axis.window for axis in self.axes]
        taps, strides, dilations = zip(*((each.size, each.stride, each.dilation) for each in windows), strict=True)
        return _is_subpixel(self.kind, self.channels, self.maps, taps, WindowStrides(strides, dilations))

    def args(self, dims: tuple[PhaseDim, ...]) -> ConvArgs:
        """Arguments of the kernels; channels are those of the input, maps those of the output."""
        small, large, phases, length, taps = (
            math.prod(getattr(dim, name) for dim in dims) for name in ("small", "large", "phases", "length", "window")
        )
        shuffle = tuple(ShuffleDim(1, dim.large, 0) for dim in dims)
        sizes = ConvSizes(phases, self.batch * length, taps, self.groups, self.channels, self.maps, self.maps)
        x = strides_of(self.groups * self.channels, small, self.is_channels_last)
        return ConvArgs(dims, shuffle, sizes, x, strides_of(self.groups * self.maps, large, self.is_channels_last))

    def subpixel_args(self) -> ConvArgs:
        """Arguments of the kernels for a sub-pixel convolution."""
        args = self.args(tuple(map(subpixel_dim_of, self.axes)))
        shuffle = tuple(map(shuffle_dim_of, self.axes))
        phases, large = (math.prod(getattr(dim, name) for dim in shuffle) for name in ("stride", "large"))
        y = strides_of(self.groups * self.maps, large, self.is_channels_last)
        return args._replace(shuffle=shuffle, sizes=args.sizes._replace(maps=phases * self.maps), y=y)

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


class WindowStrides(NamedTuple):
    """Strides and dilations of windows, by axis."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]


def pack(w: torch.Tensor, groups: int, strides: WindowStrides | None) -> PackedWeights:
    """Weights (C, M/groups, k1..kn) in the order of `launch`, or, without strides, of `launch_adjoint`."""
    return packer(tuple(w.shape), w.dtype, groups, strides)(w)


def packer(
    shape: tuple[int, ...], dtype: torch.dtype, groups: int, strides: WindowStrides | None
) -> Callable[[torch.Tensor], PackedWeights]:
    """`pack` for all weights of a shape and a type."""
    kind, channels, maps, taps = KINDS[dtype], shape[0] // groups, shape[1], shape[2:]
    has_check = _is_dense(kind, channels, maps)
    sizes: tuple[int, ...] = (groups, channels, maps, math.prod(taps))
    order: tuple[int, ...] = (0, 3, 2, 1) if strides is None else (0, 3, 1, 2)
    if strides is not None and _is_subpixel(kind, channels, maps, taps, strides):
        has_check, rank = True, len(taps)
        split = ((tap // stride, stride) for tap, stride in zip(taps, strides.strides, strict=True))
        sizes = (groups, channels, maps, *(size for pair in split for size in pair))
        order = (0, *range(3, 3 + 2 * rank, 2), 1, *range(4, 4 + 2 * rank, 2), 2)

    def run(w: torch.Tensor) -> PackedWeights:
        check = w.sum(dtype=torch.float32) if has_check else None
        return PackedWeights(w.reshape(sizes).permute(order).contiguous(), check)

    return run


def _is_subpixel(kind: str, channels: int, maps: int, taps: Sequence[int], windows: WindowStrides) -> bool:
    """True if all phases together make dense products, and one alone would not, or would not fill a block.

    Strides have to divide windows that are not dilated. Maps of y are written together, 16 at a time; if there are
    others, phases are faster.
    """
    phases = math.prod(windows.strides)
    divides = all(tap % stride == 0 for tap, stride in zip(taps, windows.strides, strict=True))
    if phases == 1 or max(windows.dilations) > 1 or not divides or not _is_dense(kind, channels, phases * maps):
        return False
    return maps < MIN_DENSE or (maps % 16 == 0 and maps < _BLOCK_MAPS.get(kind, 128))


def _is_dense(kind: str, channels: int, maps: int) -> bool:
    return kind != "float64" and min(channels, maps) >= MIN_DENSE


def precision() -> str:
    """Precision of float32 products, as set by torch.set_float32_matmul_precision."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
