"""Max unpooling on PyTorch's indices, and the gradients of all three operators, on a GPU.

PyTorch's indices count inside their own plane; see `unpool.per_plane` for the CPU. The gradients of a transposed
convolution are the same in every run; 16-bit floats are added in float32 and rounded once.

    y[n, m, p * stride + t * dilation - padding] += x[n, c, p] * w[c, m, t]
"""

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch

from unpool.errors import IndicesError
from unpool.execute.gpu.index_checks import raise_known, raise_or_defer
from unpool.geometry import Axis, Window, window_between
from unpool.kernels.gpu import max_unpool as unpooling
from unpool.kernels.gpu.conv_transpose import GpuConvProblem, launch_adjoint, pack
from unpool.kernels.gpu.conv_transpose.problem import MIN_DENSE
from unpool.kernels.gpu.conv_transpose.weight_gradient import launch as launch_weight_gradient
from unpool.kernels.gpu.elements import KINDS
from unpool.kernels.gpu.max_unpool import gradient as unpool_gradient
from unpool.kernels.gpu.max_unpool.check_indices import NO_POSITION

_CACHE_SIZE = 1024
MIN_PADDED = 3  # maps of a call that is worth zeros for dense products


def max_unpool(x: torch.Tensor, indices: torch.Tensor, spatial: tuple[int, ...], check: str = "later") -> torch.Tensor:
    """Zeros (N, C, *spatial), with every element of x at its index; of equal ones the last in row-major order wins.

    check="now" waits, and raises if an index is wrong.
    """
    raise_known()
    run, shape, to_error = _unpooling(x.shape, spatial, x.dtype)
    y = torch.empty(shape, dtype=x.dtype, device=x.device)
    raise_or_defer(run(x.contiguous(), indices.contiguous(), y, False), check, to_error)
    return y


def max_pool_backward(
    grad: torch.Tensor, indices: torch.Tensor, spatial: tuple[int, ...], windows: tuple[tuple[int, ...], ...] = ()
) -> torch.Tensor:
    """Gradient of MaxPool with respect to X (N, C, *spatial); an index of -1 skips an element.

    `windows` are the sizes, strides, paddings and dilations of the pool that made the indices, one int per spatial axis
    in each; none if the indices may point anywhere.
    """
    raise_known()
    grad, indices = grad.contiguous(), indices.contiguous()
    if windows:
        y = torch.empty((*grad.shape[:2], *spatial), dtype=grad.dtype, device=grad.device)
        _gradient(tuple(grad.shape), spatial, windows, KINDS[grad.dtype])(grad, indices, y)
        return y
    y, result = unpool_gradient.scatter_add(grad, indices, math.prod(spatial))
    raise_or_defer(result, "later", partial(_error, "max_pool_backward", tuple(indices.shape), math.prod(spatial)))
    return y.view(*y.shape[:2], *spatial)


def max_unpool_backward(grad: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Gradient of MaxUnpool with respect to X: the elements of grad at the indices; -1 gives 0."""
    raise_known()
    flat = grad.contiguous().flatten(2)
    y, result = unpool_gradient.gather_elements(flat, indices.contiguous())
    raise_or_defer(result, "later", partial(_error, "max_unpool_backward", tuple(indices.shape), flat.shape[2]))
    return y


@lru_cache(_CACHE_SIZE)
def _unpooling(shape: tuple[int, ...], spatial: tuple[int, ...], dtype: torch.dtype) -> tuple[unpooling.Run, Any, Any]:
    """The call for the windows that most pools with these sizes have, its output shape, and its error of a result.

    Indices of other windows are handled too.
    """
    axes = []
    for small, large in zip(shape[2:], spatial, strict=True):
        window = window_between(small, large, None)
        axes.append(Axis(large, small, Window(window.size, window.stride), window.padding))
    to_error = partial(_error, "max_unpool", tuple(shape), math.prod(spatial))
    problem = unpooling.GpuUnpoolProblem(tuple(axes), spatial, shape[0], shape[1], KINDS[dtype], per_plane=True)
    return unpooling.launch(problem), (*shape[:2], *spatial), to_error


@lru_cache(_CACHE_SIZE)
def _gradient(
    shape: tuple[int, ...], spatial: tuple[int, ...], windows: tuple[tuple[int, ...], ...], kind: str
) -> unpool_gradient.Run:
    axes = tuple(
        Axis(large, small, Window(size, stride, dilation), padding)
        for large, small, size, stride, padding, dilation in zip(spatial, shape[2:], *windows, strict=True)
    )
    return unpool_gradient.launch(axes, shape[0], shape[1], kind)


def _error(where: str, shape: tuple[int, ...], plane: int, result: list[int]) -> IndicesError | None:
    if result[0] == NO_POSITION:
        return None
    at = [int(each) for each in np.unravel_index(result[0], shape)]
    return IndicesError(
        f"{where}: indices need values from 0 to {plane - 1} in their own plane, got another at {at}. "
        "Pass the indices of the same pool."
    )


class ConvSettings(NamedTuple):
    """Attributes of a transposed convolution: one int per spatial axis, and the number of groups."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


def input_gradient(grad: torch.Tensor, w: torch.Tensor, spatial: tuple[int, ...], conv: ConvSettings) -> torch.Tensor:
    """Gradient with respect to x, (N, C, *spatial) in the memory order of grad: the convolution of grad by w."""
    missing = _missing_maps(w.shape, conv, grad.dtype)
    grad, w = _pad_maps(grad, missing), _pad_maps(w, missing)
    is_last, (grad,) = _to_same_order(grad)
    outer = grad.shape[0], w.shape[0]
    y = grad.new_empty((outer[0], *spatial, outer[1]) if is_last else (*outer, *spatial))
    y = y.movedim(-1, 1) if is_last else y
    packed = pack(w, conv.groups, None)
    _input_gradient(_problem(grad, w.shape, spatial, conv, is_last))(grad, packed, None, y)
    return y


def weight_gradient(x: torch.Tensor, grad: torch.Tensor, window: tuple[int, ...], conv: ConvSettings) -> torch.Tensor:
    """Gradient with respect to w, (C, M/groups, *window): for every tap, x times grad, added over all positions."""
    channels, maps = x.shape[1], grad.shape[1] // conv.groups
    missing = _missing_maps((channels, maps), conv, grad.dtype)
    is_last, (x, grad) = _to_same_order(x, _pad_maps(grad, missing))
    weights = channels, maps + missing, *window
    gradient = _weight_gradient(_problem(grad, weights, x.shape[2:], conv, is_last))(x, grad)
    return gradient[:, :maps].contiguous() if missing else gradient


def _missing_maps(w_shape: Sequence[int], conv: ConvSettings, dtype: torch.dtype) -> int:
    """Maps of zeros that make dense products of a call to few maps.

    On an H100 that takes 0.2 to 0.9 times as long for three maps, and up to 2.8 times for one.
    """
    channels, maps = w_shape[:2]
    is_few = MIN_PADDED <= maps < MIN_DENSE <= channels and conv.groups == 1 and dtype != torch.float64
    return MIN_DENSE - maps if is_few else 0


def _pad_maps(x: torch.Tensor, count: int) -> torch.Tensor:
    """The tensor with so many zeros more along axis 1."""
    return torch.nn.functional.pad(x, (*(0, 0) * (x.dim() - 2), 0, count)) if count else x


_input_gradient = lru_cache(_CACHE_SIZE)(launch_adjoint)
_weight_gradient = lru_cache(_CACHE_SIZE)(launch_weight_gradient)


def _problem(
    grad: torch.Tensor, w_shape: tuple[int, ...], spatial: tuple[int, ...], conv: ConvSettings, is_channels_last: bool
) -> GpuConvProblem:
    """The transposed convolution with the gradient `grad` of y; `spatial` are the sizes of x."""
    channels, maps, *window = w_shape
    rows: Any = zip(grad.shape[2:], spatial, window, conv.stride, conv.padding, conv.dilation, strict=True)
    axes = tuple(Axis(out, into, Window(size, step, spread), begin) for out, into, size, step, begin, spread in rows)
    kind = KINDS[grad.dtype]
    return GpuConvProblem(axes, grad.shape[0], conv.groups, channels // conv.groups, maps, kind, is_channels_last)


def _to_same_order(*tensors: torch.Tensor) -> tuple[bool, tuple[torch.Tensor, ...]]:
    """True if the first tensor lies channels-last in memory, and all of them without gaps in its order."""
    first = tensors[0]
    last = (0, *range(2, first.dim()), 1)
    is_last = not first.is_contiguous() and first.permute(last).is_contiguous()
    if not is_last:
        return False, tuple(each.contiguous() for each in tensors)
    return True, tuple(each.permute(last).contiguous().movedim(-1, 1) for each in tensors)
