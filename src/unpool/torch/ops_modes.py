"""What surrounds a call: ONNX export wants torch's own function, autocast changes the types of tensors."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from unpool.errors import UnsupportedError
from unpool.torch.ops_register import HAS_FORWARD_MODE

_CAST = (torch.float16, torch.bfloat16, torch.float32)


def exported(where: str) -> Callable[..., Any]:
    """The function of torch that a name stands for, to be called in place of ours while a model is written as ONNX.

    Exporters know the operators of torch only; `unpool.torch.export` writes one MaxPool or MaxUnpool for each.
    """
    function: Callable[..., Any] = getattr(torch.nn.functional, where)
    return function


def lowered(x: Tensor) -> Tensor:
    """An operand of a convolution in the type that autocast computes convolutions in."""
    return x.to(torch.get_autocast_dtype("cpu")) if torch.is_autocast_enabled("cpu") and x.dtype in _CAST else x


def widened(x: Tensor) -> Tensor:
    """A tensor in float32 where autocast is on, as for operators that torch keeps at full precision."""
    return x.float() if torch.is_autocast_enabled("cpu") and x.dtype in _CAST else x


def check_tangents(where: str, *tensors: Tensor | None) -> None:
    """Tangents need derivatives in forward mode; without these a tangent would come out as 0.

    Raises:
        UnsupportedError: operators have none, and a tensor carries a tangent.
    """
    if HAS_FORWARD_MODE:
        return
    unpack: Any = forward_ad.unpack_dual
    if any(each is not None and unpack(each).tangent is not None for each in tensors):
        raise UnsupportedError(
            f"{where}: expected tensors without tangents, for torch {torch.__version__} lacks what forward mode needs "
            "here. Use backward mode, torch 2.13, or torch's own operator."
        )
