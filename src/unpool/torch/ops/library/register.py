"""Registration of functions on tensors as operators that PyTorch can trace, differentiate and map over batches.

`torch.library.custom_op` does this too, but calls of its operators take longer, and they have no forward mode. These
operators are faster because they are restricted: no result shares memory with an input, no argument has a default, and
all arguments are positional. Derivatives are registered like those of PyTorch's own operators, so that `backward`,
forward mode and the transforms of `torch.func` all find them.

A rule for `torch.vmap` makes one call of an operator out of many, which lie along one axis of the arguments. It takes
PyTorch's record of that axis, its position in each argument (None if the argument is the same for all calls), and the
arguments. It returns the outputs, and the position of the axis in each of them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.library import Library, infer_schema, register_autograd, register_fake, register_vmap

from unpool.torch.compat import FORWARD_MODE, torch_internal
from unpool.torch.ops.library.fast_path import HAS_FAST_PATH, Operator, is_in_forward_mode

Rule: TypeAlias = Callable[..., tuple[Any, Any]]


def batch_rule(operator: Any) -> Rule:
    """The rule of an operator on (N, C, ..) that treats every n separately: the calls become parts of one batch."""

    def rule(info: Any, places: Any, *arguments: Any) -> tuple[Any, Any]:
        size, batch = info.batch_size, 0
        flat = []
        for argument, place in zip(arguments, places, strict=True):
            if isinstance(argument, Tensor):
                stacked = move_batch_first(argument, place, size)
                batch = stacked.shape[1]
                flat.append(stacked.flatten(0, 1))
            else:
                flat.append(argument)
        found = operator(*flat)
        if isinstance(found, Tensor):
            return found.view(size, batch, *found.shape[1:]), 0
        return tuple(each.view(size, batch, *each.shape[1:]) for each in found), (0,) * len(found)

    return rule


def group_rule(operator: Any) -> Rule:
    """The rule of a transposed convolution: calls with different weights or biases become groups of channels.

    If weight and bias are the same for all calls, the calls become parts of one batch.
    """

    def rule(info: Any, places: Any, x: Tensor, weight: Tensor, bias: Tensor | None, *others: Any) -> tuple[Any, Any]:
        if places[1] is None and places[2] is None:
            return batch_rule(lambda x: operator(x, weight, bias, *others))(info, places[:1], x)
        size = info.batch_size
        stride, padding, output_padding, groups, dilation = others
        stacked = move_batch_first(x, places[0], size).movedim(0, 1).flatten(1, 2)
        weights = move_batch_first(weight, places[1], size).flatten(0, 1)
        biases = None if bias is None else move_batch_first(bias, places[2], size).flatten()
        y = operator(stacked, weights, biases, stride, padding, output_padding, groups * size, dilation)
        return y.view(y.shape[0], size, y.shape[1] // size, *y.shape[2:]), 1

    return rule


def move_batch_first(x: Tensor, place: int | None, size: int) -> Tensor:
    """The tensor with the axis of calls as its first; expanded if it has none."""
    return x.unsqueeze(0).expand(size, *x.shape) if place is None else x.movedim(place, 0)


Function: TypeAlias = Callable[..., Any]

_LIBRARY: Any = Library("unpool", "FRAGMENT")  # type: ignore[no-untyped-call]

_below = torch_internal("torch._C._AutoDispatchBelowAutograd")
_after = torch_internal("torch._C._after_autograd_keyset")
_any_requires_grad = torch_internal("torch._C._any_requires_grad")
_is_transforming = torch_internal("torch._C._are_functorch_transforms_active")
_enable_single_level = torch_internal("torch._functorch.utils.enable_single_level_autograd_function")
_is_forward_enabled = torch_internal("torch._C._is_fwd_grad_enabled")
_set_forward = torch_internal("torch.autograd.forward_ad._set_fwd_grad_enabled")

HAS_FORWARD_MODE = all(torch_internal(name) is not None for name in FORWARD_MODE)
"""True if operators have derivatives in forward mode."""


def operator(
    fake: Function, save: Function, gradient: Function, tangent: Function, batch: Function = batch_rule
) -> Callable[[Function], Operator]:
    """A decorator that registers a function which computes new tensors on the CPU or a GPU.

    Args:
        fake: takes the same arguments, and returns tensors that are like the outputs, without computing them.
        save: takes a context, the inputs and the output, saves the values that derivatives need in the context, and
            returns the tensors that they need.
        gradient: takes the context and the gradients of the outputs, and returns one for each input.
        tangent: takes the context, the tensors that `save` returned and the tangents of the inputs, and returns one for
            each output.
        batch: takes the operator and returns its rule for `torch.vmap`, as for `torch.library.register_vmap`.

    Returns:
        The decorator; it turns a function into the operator unpool::NAME, called with all arguments. The annotations of
        the function become the schema.
    """

    def decorate(kernel: Function) -> Operator:
        name = kernel.__name__
        _LIBRARY.define(name + infer_schema(kernel, mutates_args=()), tags=torch.Tag.pt2_compliant_tag)
        for device in ("CPU", "CUDA"):
            _LIBRARY.impl(name, torch.compiler.disable(kernel), device)  # type: ignore[no-untyped-call]
        register_fake(f"unpool::{name}", fake, lib=_LIBRARY)
        overload = getattr(torch.ops.unpool, name).default
        register_vmap(f"unpool::{name}", batch(overload), lib=_LIBRARY)
        if HAS_FORWARD_MODE:
            _LIBRARY.impl(name, _differentiable(overload, save, gradient, tangent), "Autograd", with_keyset=True)
        else:
            register_autograd(f"unpool::{name}", gradient, setup_context=_setup_context(save), lib=_LIBRARY)
        return Operator(overload, kernel, _recorder(kernel, save, gradient) if HAS_FAST_PATH else overload)

    return decorate


def _recorder(kernel: Function, save: Function, gradient: Function) -> Function:
    """A function that calls a kernel and records it for its gradient, for `Operator.call_kernel`."""

    class KernelCall(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            output = kernel(*inputs)
            ctx.save_for_backward(*save(ctx, inputs, output))
            return output

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return gradient(ctx, *grads)

    return _single_level(KernelCall)


def _single_level(function: type[torch.autograd.Function]) -> Function:
    """`apply` without the support of transforms of `torch.func`, for callers that have checked that there are none."""
    record: Function = super(torch.autograd.Function, function).apply  # type: ignore[misc]  # Function.apply handles transforms first
    return record


def _setup_context(save: Function) -> Function:
    """The function of `torch.library` that saves the values for the gradient."""

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*save(ctx, inputs, output))

    return setup_context


def _differentiable(overload: Any, save: Function, gradient: Function, tangent: Function) -> Function:
    """The autograd kernel of an operator: it records the call if a derivative may be needed.

    With the inputs it records the dispatch keys of the call (`keyset`), and whether gradients and tangents were being
    recorded (`modes`). Recording a call turns both off; inside transforms of `torch.func`, where further transforms
    come before the kernel, they are turned on again for these.
    """

    def redispatch(keyset: Any, inputs: Sequence[Any]) -> Any:
        with _below():
            return overload.redispatch(keyset & _after, *inputs)

    class DispatchedCall(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *call: Any) -> Any:
            *inputs, keyset, ctx.modes = call
            with _with_modes(ctx.modes):
                output = redispatch(keyset, inputs)
            saved = save(ctx, inputs, output)
            ctx.save_for_backward(*saved)
            ctx.save_for_forward(*saved)
            return output

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return *gradient(ctx, *grads), None, None

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            unpack: Any = forward_ad.unpack_dual
            primals = [unpack(each, level=0).primal for each in ctx.saved_tensors]
            with _with_modes(ctx.modes):
                return tangent(ctx, primals, *tangents[:-2])

    record = _single_level(DispatchedCall)

    def run(keyset: Any, *inputs: Any) -> Any:
        if _is_transforming():
            with _enable_single_level():
                return record(*inputs, keyset, (torch.is_grad_enabled(), _is_forward_enabled()))
        if (torch.is_grad_enabled() and _any_requires_grad(*inputs)) or is_in_forward_mode():
            return record(*inputs, keyset, None)
        return redispatch(keyset, inputs)

    return run


_NO_CHANGE = nullcontext()


def _with_modes(modes: tuple[bool, bool] | None) -> AbstractContextManager[None]:
    """A context with the given recording of gradients and tangents; None leaves both as they are."""
    return _NO_CHANGE if modes is None else _modes(*modes)


@contextmanager
def _modes(gradients: bool, tangents: bool) -> Iterator[None]:
    with torch.set_grad_enabled(gradients), _set_forward(tangents):
        yield
