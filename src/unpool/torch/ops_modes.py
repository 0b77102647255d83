"""What surrounds a call: ONNX export wants torch's own function, autocast changes the types of tensors, forward-mode
differentiation is refused.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from unpool.errors import UnsupportedError

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


def refuse_tangents(where: str, *tensors: Tensor | None) -> None:
    """Operators registered from Python have no forward-mode derivative; without this check it would come out as 0.

    Raises:
        UnsupportedError: a tensor carries a tangent.
    """
    if torch.compiler.is_compiling():
        return
    unpack: Any = forward_ad.unpack_dual
    if any(each is not None and unpack(each).tangent is not None for each in tensors):
        raise UnsupportedError(
            f"{where}: expected tensors without tangents, got one of forward-mode differentiation. Use backward mode, "
            "or torch's own operator."
        )
