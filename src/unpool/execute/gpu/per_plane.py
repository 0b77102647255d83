"""Max unpooling and the gradients of pools on a GPU, on indices that count inside their own plane, as PyTorch's do.

As `unpool.per_plane`, for tensors on a CUDA device.
"""

import math
from functools import lru_cache, partial

import numpy as np
import torch

from unpool.errors import IndicesError
from unpool.execute.gpu.verdicts import judge, raise_known
from unpool.geometry import Axis, Window, window_between
from unpool.kernels.gpu import max_unpool as unpooling
from unpool.kernels.gpu.elements import KINDS
from unpool.kernels.gpu.max_pool import gradient
from unpool.kernels.gpu.max_unpool import cells
from unpool.kernels.gpu.max_unpool import per_plane as kernels
from unpool.kernels.gpu.max_unpool.judge import NOTHING

_KEPT = 1024


def max_unpool(x: torch.Tensor, indices: torch.Tensor, spatial: tuple[int, ...], check: str = "later") -> torch.Tensor:
    """Zeros, with every element of x where its index says; of equal indices the last in row-major order wins.

    Args:
        x: (N, C, d1..dk).
        indices: int64 in the shape of x, each from 0 to D1 * .. * Dk - 1.
        spatial: D1..Dk.
        check: "now" waits, and raises if an index is wrong.

    Returns:
        (N, C, D1..Dk) in the type of x.
    """
    raise_known()
    y = torch.empty((*x.shape[:2], *spatial), dtype=x.dtype, device=x.device)
    verdict = _unpooling(tuple(x.shape), spatial, KINDS[x.dtype])(x.contiguous(), indices.contiguous(), y, False)
    judge(verdict, check, partial(_error, "max_unpool", tuple(indices.shape), math.prod(spatial)))
    return y


def max_pool_backward(
    grad: torch.Tensor, indices: torch.Tensor, spatial: tuple[int, ...], windows: tuple[tuple[int, ...], ...] = ()
) -> torch.Tensor:
    """Gradient of MaxPool with respect to X; indices that are not of this pool give another result.

    Args:
        grad: (N, C, d1..dk).
        indices: int64 (N, C, d1..dk), per plane; -1 leaves an element out.
        spatial: D1..Dk of X.
        windows: sizes, strides, paddings and dilations of the pool's windows, one int per spatial axis in each; none
            where the indices may point anywhere.

    Returns:
        (N, C, D1..Dk) in the type of grad.
    """
    raise_known()
    grad, indices = grad.contiguous(), indices.contiguous()
    if windows:
        y = torch.empty((*grad.shape[:2], *spatial), dtype=grad.dtype, device=grad.device)
        _gradient(tuple(grad.shape), spatial, windows, KINDS[grad.dtype])(grad, indices, y)
        return y
    y, verdict = kernels.spread(grad, indices, math.prod(spatial))
    judge(verdict, "later", partial(_error, "max_pool_backward", tuple(indices.shape), math.prod(spatial)))
    return y.view(*y.shape[:2], *spatial)


def max_unpool_backward(grad: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Gradient of MaxUnpool with respect to X; of equal indices each reads the gradient of the place they share.

    Args:
        grad: (N, C, D1..Dk).
        indices: int64 (N, C, d1..dk), per plane; -1 gives 0.

    Returns:
        (N, C, d1..dk) in the type of grad.
    """
    raise_known()
    flat = grad.contiguous().flatten(2)
    y, verdict = kernels.collect(flat, indices.contiguous())
    judge(verdict, "later", partial(_error, "max_unpool_backward", tuple(indices.shape), flat.shape[2]))
    return y


@lru_cache(_KEPT)
def _unpooling(shape: tuple[int, ...], spatial: tuple[int, ...], kind: str) -> unpooling.Run:
    """The call for windows that lead to these sizes: those of most pools, and any others go another way."""
    axes = []
    for small, large in zip(shape[2:], spatial, strict=True):
        window = window_between(small, large, None)
        axes.append(Axis(large, small, Window(window.size, window.stride), window.padding))
    return unpooling.launch(unpooling.Unpool(tuple(axes), spatial, shape[0], shape[1], kind, per_plane=True))


@lru_cache(_KEPT)
def _gradient(
    shape: tuple[int, ...], spatial: tuple[int, ...], windows: tuple[tuple[int, ...], ...], kind: str
) -> gradient.Run:
    axes = tuple(
        Axis(large, small, Window(size, stride, dilation), padding)
        for large, small, size, stride, padding, dilation in zip(spatial, shape[2:], *windows, strict=True)
    )
    if cells.fits(axes, is_channels_last=False):
        return kernels.add_near(axes, shape[0], shape[1], kind)
    return gradient.launch(axes, shape[0], shape[1], kind, is_channels_last=False)


def _error(where: str, shape: tuple[int, ...], plane: int, verdict: list[int]) -> IndicesError | None:
    if verdict[0] == NOTHING:
        return None
    at = [int(each) for each in np.unravel_index(verdict[0], shape)]
    return IndicesError(
        f"{where}: indices need values from 0 to {plane - 1} in their own plane, got another at {at}. "
        "Pass the indices of the same pool."
    )
