"""Transposed convolution on a GPU: which kernel runs a call, and why.

| inputs | kernel | why |
|---|---|---|
| 8 channels and 8 maps of a group or more, up to float32, finite weights | add_products | dense products of blocks |
| fewer maps, but 8 of all phases together | add_products | likewise |
| groups of few channels or maps, float64, weights with NaN or infinity | add_sums | padding is not multiplied |

Both work on phases, the positions that are equal modulo the stride: neighbours in a phase need neighbouring inputs, by
the same taps (`phases.py`). If a phase has few maps, all phases are computed together, as a sub-pixel convolution.

Only the device can check whether weights are finite: where `add_products` may run, both kernels start, and one of them
ends at once. There tensors are channels-last, or are copied to be so (`tiles.py`): then a step reads neighbours in
memory.

The gradient by x is a convolution by the same two kernels (`launch_adjoint`), where channels and maps change places:

    dX[n, c, p] = sum over maps m, taps t: w[c, m, t] * grad[n, m, p * stride + t * dilation - begin]

The gradient by the weights has a kernel of its own, `weight_gradient.py`.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

import torch

from unpool.kernels.gpu.conv_transpose.kernels import ConvMeta, add_products, add_sums, block_shape, is_scattered
from unpool.kernels.gpu.conv_transpose.phases import PhaseDim, adjoint_dim_of, dim_of
from unpool.kernels.gpu.conv_transpose.problem import (
    ConvArgs,
    GpuConvProblem,
    PackedWeights,
    WindowStrides,
    pack,
    packer,
    precision,
)  # fmt: skip
from unpool.kernels.gpu.launch import LIMIT32, Launcher, blocks
from unpool.kernels.gpu.tiles import to_channels_last, transpose

__all__ = ["GpuConvProblem", "PackedWeights", "WindowStrides", "launch", "launch_adjoint", "pack", "packer"]

# writes y of (x, w, b, y): x and y without gaps in one layout; w packed; b (M,) or None
Run: TypeAlias = Callable[[torch.Tensor, PackedWeights, torch.Tensor | None, torch.Tensor], None]

_FLOAT64_ACTIVATIONS = ("Sigmoid", "Tanh")  # take two registers for each sum
_MAX_SUM_PROGRAMS = 1024  # of `add_sums` where it mostly has nothing to do: few end quickly


def launch(problem: GpuConvProblem) -> Run:
    """A function that computes a transposed convolution."""
    return _launch(problem, None if problem.is_subpixel else tuple(map(dim_of, problem.axes)))


def launch_adjoint(problem: GpuConvProblem) -> Run:
    """A function that computes the gradient by x: its x is the gradient of y, its y is dX."""
    adjoint = replace(problem, channels=problem.maps, maps=problem.channels, activation="", params=())
    return _launch(adjoint, tuple(map(adjoint_dim_of, problem.axes)))


def _launch(problem: GpuConvProblem, dims: tuple[PhaseDim, ...] | None) -> Run:
    """A function that computes phases with these axes, or, without any, a sub-pixel convolution."""
    if problem.is_channels_last or not (problem.is_dense or dims is None):
        return _run_kernels(problem, dims)
    run_last = _run_kernels(replace(problem, is_channels_last=True), dims)
    small, large = (math.prod(getattr(each, name) for each in dims or problem.axes) for name in ("small", "large"))
    copy_x = to_channels_last(problem.batch, problem.groups * problem.channels, small)
    copy_y = transpose(problem.batch, large, problem.groups * problem.maps)

    def run(x: torch.Tensor, w: PackedWeights, b: torch.Tensor | None, y: torch.Tensor) -> None:
        y_last = torch.empty_like(y)
        run_last(copy_x(x), w, b, y_last)
        copy_y(y_last, y)

    return run


def _run_kernels(problem: GpuConvProblem, dims: tuple[PhaseDim, ...] | None) -> Run:
    """A function that starts the kernels; `add_sums` runs where `add_products` must not."""
    is_subpixel = dims is None
    args = problem.subpixel_args() if dims is None else problem.args(dims)
    kinds = (True, False) if problem.is_dense or is_subpixel else (False,)

    @lru_cache(8)
    def launchers(has_bias: bool, precision: str) -> list[Launcher]:
        may_skip = len(kinds) > 1
        return [_launcher(problem, args, is_dense, may_skip, is_subpixel, has_bias, precision) for is_dense in kinds]

    def run(x: torch.Tensor, w: PackedWeights, b: torch.Tensor | None, y: torch.Tensor) -> None:
        check = w.w if w.check is None else w.check
        for launcher in launchers(b is not None, precision()):
            launcher(x, w.w, w.w if b is None else b, y, check)

    return run


def _launcher(
    problem: GpuConvProblem, args: ConvArgs, is_dense: bool, may_skip: bool, is_subpixel: bool, has_bias: bool,
    precision: str,
) -> Launcher:  # fmt: skip
    """Sums that may be skipped are few programs, with many blocks each."""
    sizes, is_wide = args.sizes, problem.largest_offset(args) >= LIMIT32
    is_tight = is_wide or problem.activation in _FLOAT64_ACTIVATIONS
    is_tight |= len(args.dims) > 2 and (not is_dense or is_scattered(sizes))
    block = block_shape(sizes, problem.kind, len(args.dims), is_dense=is_dense, is_tight=is_tight)
    meta = ConvMeta(
        *block[:3], problem.kind, is_wide, has_bias, may_skip, is_subpixel, precision, problem.activation,
        problem.params,
    )  # fmt: skip
    programs = sizes.phases * sizes.groups * blocks(sizes.positions, meta.positions) * blocks(sizes.maps, meta.maps)
    if may_skip and not is_dense:
        programs = min(programs, _MAX_SUM_PROGRAMS)
    kernel = add_products if is_dense else add_sums
    return Launcher(kernel, programs, args, meta, block.warps, block.stages, floats=(0, 1, 2, 4))
