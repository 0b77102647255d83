"""Transposed convolution on tensors, with torch.nn.functional's signatures, answers and gradients."""

from typing import Any

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_variadic

from unpool.torch.ops.arguments import Ints, add_batch_axis, per_axis
from unpool.torch.ops.eager_fallback import CONV_TRANSPOSE, DISJOINT_CONV_TRANSPOSE, is_small
from unpool.torch.ops.library import can_bypass_dispatcher
from unpool.torch.ops.library.conv_gradients import has_disjoint_windows
from unpool.torch.ops.library.conv_transpose import conv_transpose
from unpool.torch.ops.modes import check_tangents, in_autocast_type, torch_function


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Tensor:
    """As `conv_transpose2d`, along the axis of (N, C, L) or (C, L), with weight (C, M/groups, k).

    >>> conv_transpose1d(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[[1.0, 10.0, 100.0]]]), stride=2).tolist()
    [[1.0, 10.0, 102.0, 20.0, 203.0, 30.0, 300.0]]
    """
    return _conv_transpose(1, input, weight, bias, (stride, padding, output_padding, dilation), groups)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Tensor:
    """Transposed convolution of an image.

        size = (d - 1) * stride - 2 * padding + dilation * (k - 1) + output_padding + 1

    Args:
        input: (N, C, H, W), or without N; float16, bfloat16, float32 or float64; autocast casts it and the weights
            first, as in torch.
        weight: (C, M/groups, kH, kW), type of input.
        bias: (M,), type of input; zeros by default.
        stride: step between windows of the output in elements; an int, or one per spatial axis.
        padding: elements cropped from both sides of the output.
        output_padding: elements added at the end, below the larger of stride and dilation.
        groups: number of independent groups of channels.
        dilation: step between the taps of a window.

    Returns:
        (N, M, ..) in the type of input; 16-bit types are summed in float32 and rounded once.

    Raises:
        ArgumentError: a type, shape or setting that torch rejects too.

    Source: torch.nn.functional.conv_transpose2d.

    >>> conv_transpose2d(torch.ones(1, 1, 1, 2), torch.ones(1, 1, 1, 2), torch.tensor([0.5])).tolist()
    [[[[1.5, 2.5, 1.5]]]]
    """
    return _conv_transpose(2, input, weight, bias, (stride, padding, output_padding, dilation), groups)


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Tensor:
    """As `conv_transpose2d`, over a volume (N, C, D, H, W) or (C, D, H, W), with weight (C, M/groups, kD, kH, kW).

    >>> conv_transpose3d(torch.ones(1, 1, 1, 1, 1), torch.ones(1, 2, 2, 3, 4), stride=2).shape
    torch.Size([1, 2, 2, 3, 4])
    """
    return _conv_transpose(3, input, weight, bias, (stride, padding, output_padding, dilation), groups)


def _conv_transpose(
    rank: int, x: Tensor, weight: Tensor, bias: Tensor | None, settings: tuple[Ints, Ints, Ints, Ints], groups: int
) -> Tensor:
    where, bypasses = f"conv_transpose{rank}d", can_bypass_dispatcher(x, weight, bias)
    stride, padding, output_padding, dilation = settings
    if not bypasses:
        arguments: tuple[Any, ...] = (x, weight, bias, stride, padding, output_padding, groups, dilation)
        if has_torch_function_variadic(x, weight, bias):
            y: Tensor = handle_torch_function(_FUNCTIONS[rank], (x, weight, bias), *arguments)
            return y
        if torch.onnx.is_in_onnx_export():
            return torch_function(where)(*arguments)  # type: ignore[no-any-return]
        check_tangents(where, x, weight, bias)
    elif _is_small(rank, x, weight, bias, settings):
        try:
            return torch_function(where)(x, weight, bias, stride, padding, output_padding, groups, dilation)  # type: ignore[no-any-return]
        except RuntimeError:
            pass  # the call below raises unpool's error
    batch, is_unbatched = add_batch_axis(where, in_autocast_type(x), rank)
    y = (conv_transpose.call_kernel if bypasses else torch.ops.unpool.conv_transpose)(
        batch,
        in_autocast_type(weight),
        None if bias is None else in_autocast_type(bias),
        per_axis(where, "stride", stride, rank),
        per_axis(where, "padding", padding, rank),
        per_axis(where, "output_padding", output_padding, rank),
        groups,
        per_axis(where, "dilation", dilation, rank),
    )
    return y.squeeze(0) if is_unbatched else y


def _is_small(
    rank: int, x: Tensor, weight: Tensor, bias: Tensor | None, settings: tuple[Ints, Ints, Ints, Ints]
) -> bool:
    """True if the call is torch's own."""
    products = x.numel() * weight.numel() // max(1, len(weight))
    if not is_small(products, CONV_TRANSPOSE, x, weight, bias):
        return False
    if is_small(products, DISJOINT_CONV_TRANSPOSE, x, weight, bias) or not x.dim() == weight.dim() == rank + 2:
        return True
    stride, padding, _, dilation = (per_axis("conv_transpose", "settings", each, rank) for each in settings)
    return not has_disjoint_windows(x.shape[2:], weight.shape[2:], stride, padding, dilation)


_FUNCTIONS: dict[int, Any] = {1: conv_transpose1d, 2: conv_transpose2d, 3: conv_transpose3d}
