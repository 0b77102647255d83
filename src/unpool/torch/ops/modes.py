"""What PyTorch may be doing around a call of ours: export to ONNX, autocast, derivatives in forward mode."""

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
"""Torch's functions by name, taken at import: a script may put ours in their place in torch.nn.functional later."""


def torch_function(where: str) -> Callable[..., Any]:
    """The function of torch that is called in place of ours for small tensors, and while a model is exported to ONNX.

    Exporters know the operators of torch only. `unpool.torch.export` writes one MaxPool or MaxUnpool for each.
    """
    return _FUNCTIONS[where]


def in_autocast_type(x: Tensor) -> Tensor:
    """An operand of a convolution; where autocast is on, converted to the type in which it computes convolutions."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if _is_cast(x, kind) else x


def in_full_precision(x: Tensor) -> Tensor:
    """A tensor; where autocast is on, converted to float32, as for torch's operators that need full precision."""
    return x.float() if _is_cast(x, x.device.type) else x


def _is_cast(x: Tensor, kind: str) -> bool:
    """Whether autocast converts tensors like this one on devices of this kind."""
    return kind in _DEVICES and torch.is_autocast_enabled(kind) and x.dtype in _CAST


def check_tangents(where: str, *tensors: Tensor | None) -> None:
    """Refuse tangents where operators have no derivatives in forward mode: they would silently come out as 0.

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
