"""The operator unpool::conv_transpose. Its gradients are operators themselves, and so have gradients too."""

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

from torch import Tensor

from unpool.geometry import Window
from unpool.operators import resolve
from unpool.operators.resolve import Spec
from unpool.torch.ops.arguments import FLOATS, ArgumentError, check_tensor, conv_transpose_sizes
from unpool.torch.ops.library import tensors
from unpool.torch.ops.library.conv_gradients import gradients
from unpool.torch.ops.library.register import group_rule, operator


def _fake(x: Tensor, *others: Any) -> Tensor:
    return tensors.empty(x, _shape(x, *others), other=others[0])


def _shape(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
) -> list[int]:
    """The shape of the result, after all checks of the arguments."""
    where = f"conv_transpose{len(stride)}d"
    _check_operands(where, x, weight, bias, groups)
    windows = [Window(*each) for each in zip(weight.shape[2:], stride, dilation, strict=True)]
    return [
        x.shape[0],
        weight.shape[1] * groups,
        *conv_transpose_sizes(where, x.shape[2:], windows, padding, output_padding),
    ]


def _check_operands(where: str, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> None:
    check_tensor(where, "input", x, FLOATS)
    for name, each in (("weight", weight), ("bias", bias)):
        if each is not None:
            check_tensor(where, name, each, (x.dtype,))
    channels = x.shape[1]
    if weight.dim() != x.dim() or weight.shape[0] != channels or 0 in weight.shape or 0 in x.shape[2:]:
        raise ArgumentError(
            f"{where}: weight needs the shape ({channels}, M/groups, k1..kn) without empty axes for an input of "
            f"{list(x.shape)}, got {list(weight.shape)}. Pass the weight of a layer with {channels} channels."
        )
    if groups < 1 or channels % groups:
        raise ArgumentError(f"{where}: groups needs to divide the {channels} channels, got {groups}. Pass a divisor.")
    maps = weight.shape[1] * groups
    if bias is not None and list(bias.shape) != [maps]:
        raise ArgumentError(f"{where}: bias needs the shape [{maps}], got {list(bias.shape)}. Give one per output map.")


def _spec(x: Tensor, weight: Tensor, bias: Tensor | None, *settings: Any) -> Spec:
    """The Spec of the arguments, after all checks."""
    _shape(x, weight, bias, *settings)
    stride, padding, output_padding, groups, dilation = settings
    attributes = {
        "strides": stride,
        "pads": (*padding, *padding),
        "output_padding": output_padding,
        "dilations": dilation,
        "group": groups,
    }
    return resolve.spec("ConvTranspose", attributes, domain=tensors.domain_of(x))


def _save(ctx: Any, inputs: tuple[Any, ...], _: Tensor) -> tuple[Tensor, ...]:
    x, weight, bias, *ctx.settings = inputs
    ctx.bias_sizes = None if bias is None else list(bias.shape)
    ctx.set_materialize_grads(False)  # no zeros for inputs without a tangent
    return x, weight


def _gradient(ctx: Any, grad: Tensor | None) -> tuple[Any, ...]:
    if grad is None:
        return (None,) * 8
    x, weight = ctx.saved_tensors
    needed = [*ctx.needs_input_grad[:2], ctx.bias_sizes is not None and ctx.needs_input_grad[2]]
    computed = gradients(grad, x, weight, ctx.settings, ctx.bias_sizes, needed)
    return *computed, None, None, None, None, None


def _tangent(ctx: Any, saved: Sequence[Tensor], *tangents: Any) -> Tensor:
    """The tangent of the output, by the product rule: one part for each input with a tangent."""
    x, weight = saved
    x_tangent, weight_tangent, bias_tangent, *_ = tangents
    parts: list[Tensor] = []
    if x_tangent is not None:
        parts.append(conv_transpose(x_tangent, weight, None, *ctx.settings))
    if weight_tangent is not None:
        parts.append(conv_transpose(x, weight_tangent, None, *ctx.settings))
    if bias_tangent is not None:
        sizes = _shape(x, weight, None, *ctx.settings)
        parts.append(bias_tangent.view(-1, *[1] * (x.dim() - 2)) + bias_tangent.new_zeros(sizes))
    return reduce(add, parts)


@operator(_fake, _save, _gradient, _tangent, group_rule)
def conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
) -> Tensor:
    """Transposed convolution of a batched tensor; 16-bit types are summed in float32."""
    if tensors.has_channels_last(weight) and x.dim() == weight.dim() and not tensors.has_channels_last(x):
        x = tensors.channels_last(x)  # as torch does
    settings = stride, padding, output_padding, groups, dilation
    return tensors.run(_spec, settings, (x, weight, bias))[0]
