"""Modes of PyTorch around a call: export to ONNX, autocast, derivatives in forward mode."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from unpool.errors import UnsupportedError
from unpool.torch.ops.library.register import HAS_FORWARD_MODE

_DEVICES = ("cpu", "cuda")
_CAST = (torch.float16, torch.bfloat16, torch.float32)

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"{family}{rank}d": getattr(torch.nn.functional, f"{family}{rank}d")
    for family in ("max_pool", "max_unpool", "conv_transpose")
    for rank in (1, 2, 3)
}
"""Torch's functions by name, from the time of import: a script may later replace them in torch.nn.functional."""


def torch_function(where: str) -> Callable[..., Any]:
    """The function of torch for small tensors, and during an export to ONNX.

    Exporters support the operators of torch only. `unpool.torch.export` writes one MaxPool or MaxUnpool for each.
    """
    return _FUNCTIONS[where]


def in_autocast_type(x: Tensor) -> Tensor:
    """An operand of a convolution; under autocast, in its type for convolutions."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if _is_cast(x, kind) else x


def in_full_precision(x: Tensor) -> Tensor:
    """A tensor; under autocast, in float32, as for torch's operators in full precision."""
    return x.float() if _is_cast(x, x.device.type) else x


def _is_cast(x: Tensor, kind: str) -> bool:
    """True if autocast converts tensors like this one on devices of this kind."""
    return kind in _DEVICES and torch.is_autocast_enabled(kind) and x.dtype in _CAST


def check_tangents(where: str, *tensors: Tensor | None) -> None:
    """Check that there are no tangents if operators have no derivatives in forward mode: they would silently be 0.

    Raises:
        UnsupportedError: operators have no such derivatives, and a tensor carries a tangent.
    """
    if HAS_FORWARD_MODE:
        return
    unpack: Any = forward_ad.unpack_dual
    if any(each is not None and unpack(each).tangent is not None for each in tensors):
        raise UnsupportedError(
            f"{where}: expected tensors without tangents, for torch {torch.__version__} lacks what forward mode needs "
            "here. Use backward mode, torch 2.13, or torch's own operator."
        )
