"""Registers a function on tensors as an operator that PyTorch can trace, differentiate and map over batches.

`torch.library.custom_op` does this too, but every call of its operators takes longer, and they have no forward mode.
Ours are faster because they promise more: no result shares memory with an input, no argument has a default, and callers
give all arguments by position. Derivatives are registered where PyTorch looks for those of its own operators, so that
`backward`, forward mode and the transforms of `torch.func` all find them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.library import Library, infer_schema, register_autograd, register_fake, register_vmap

from unpool.torch.compat import FORWARD_MODE, torch_internal
from unpool.torch.ops.registered.fast_path import HAS_DIRECT_CALLS, Operator, may_have_tangents

Rule: TypeAlias = Callable[..., tuple[Any, Any]]


def folded(operator: Any) -> Rule:
    """The rule of an operator on (N, C, ..) that treats every n by itself: the calls become parts of one batch."""

    def rule(info: Any, places: Any, *arguments: Any) -> tuple[Any, Any]:
        size, batch = info.batch_size, 0
        flat = []
        for argument, place in zip(arguments, places, strict=True):
            if isinstance(argument, Tensor):
                stacked = in_front(argument, place, size)
                batch = stacked.shape[1]
                flat.append(stacked.flatten(0, 1))
            else:
                flat.append(argument)
        found = operator(*flat)
        if isinstance(found, Tensor):
            return found.view(size, batch, *found.shape[1:]), 0
        return tuple(each.view(size, batch, *each.shape[1:]) for each in found), (0,) * len(found)

    return rule


def grouped(operator: Any) -> Rule:
    """The rule of a transposed convolution: calls that have their own weight or bias become groups of channels.

    Where weight and bias are the same for every call, the calls become parts of one batch.
    """

    def rule(info: Any, places: Any, x: Tensor, weight: Tensor, bias: Tensor | None, *others: Any) -> tuple[Any, Any]:
        if places[1] is None and places[2] is None:
            return folded(lambda x: operator(x, weight, bias, *others))(info, places[:1], x)
        size = info.batch_size
        stride, padding, output_padding, groups, dilation = others
        stacked = in_front(x, places[0], size).movedim(0, 1).flatten(1, 2)
        weights = in_front(weight, places[1], size).flatten(0, 1)
        biases = None if bias is None else in_front(bias, places[2], size).flatten()
        y = operator(stacked, weights, biases, stride, padding, output_padding, groups * size, dilation)
        return y.view(y.shape[0], size, y.shape[1] // size, *y.shape[2:]), 1

    return rule


def in_front(x: Tensor, place: int | None, size: int) -> Tensor:
    """The tensor with the axis of calls in front; repeated if it has none."""
    return x.unsqueeze(0).expand(size, *x.shape) if place is None else x.movedim(place, 0)


Function: TypeAlias = Callable[..., Any]

_LIBRARY: Any = Library("unpool", "FRAGMENT")  # type: ignore[no-untyped-call]

_below = torch_internal("torch._C._AutoDispatchBelowAutograd")
_after = torch_internal("torch._C._after_autograd_keyset")
_any_requires_grad = torch_internal("torch._C._any_requires_grad")
_is_transforming = torch_internal("torch._C._are_functorch_transforms_active")
_one_level = torch_internal("torch._functorch.utils.enable_single_level_autograd_function")
_is_forward_enabled = torch_internal("torch._C._is_fwd_grad_enabled")
_set_forward = torch_internal("torch.autograd.forward_ad._set_fwd_grad_enabled")

HAS_FORWARD_MODE = all(torch_internal(name) is not None for name in FORWARD_MODE)
"""Whether operators have derivatives in forward mode."""


def operator(
    fake: Function, keep: Function, gradient: Function, tangent: Function, batch: Function = folded
) -> Callable[[Function], Operator]:
    """Decorates a function that computes new tensors on the CPU or a GPU; its annotations become the schema.

    Args:
        fake: takes the same arguments, and returns tensors that are like the outputs, without computing them.
        keep: takes a context, the inputs and the output, keeps in the context what the derivatives need, and returns
            the tensors among that.
        gradient: takes the context and the gradients of the outputs, and returns one for each input.
        tangent: takes the context, the tensors that `keep` returned and the tangents of the inputs, and returns one for
            each output.
        batch: takes the operator and returns its rule for `torch.vmap`, as `torch.library.register_vmap` wants it.

    Returns:
        The decorator; what it makes of the function is the operator unpool::NAME, to be called with all arguments.
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
            _LIBRARY.impl(name, _differentiable(overload, keep, gradient, tangent), "Autograd", with_keyset=True)
        else:
            register_autograd(f"unpool::{name}", gradient, setup_context=_saving(keep), lib=_LIBRARY)
        return Operator(overload, kernel, _recorded(kernel, keep, gradient) if HAS_DIRECT_CALLS else overload)

    return decorate


def _recorded(kernel: Function, keep: Function, gradient: Function) -> Function:
    """The function with which `Operator.direct` calls a kernel whose gradient may be asked for."""

    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            output = kernel(*inputs)
            ctx.save_for_backward(*keep(ctx, inputs, output))
            return output

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return gradient(ctx, *grads)

    return _single_level(Recorded)


def _single_level(function: type[torch.autograd.Function]) -> Function:
    """`apply` without what transforms of `torch.func` need: whoever calls it has looked whether there are any."""
    record: Function = super(torch.autograd.Function, function).apply  # type: ignore[misc]  # Function's own starts anew
    return record


def _saving(keep: Function) -> Function:
    """The function with which `torch.library` keeps what the gradient needs."""

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*keep(ctx, inputs, output))

    return setup_context


def _differentiable(overload: Any, keep: Function, gradient: Function, tangent: Function) -> Function:
    """What PyTorch runs before the kernel of an operator: it records the call if a derivative may be asked for.

    With the inputs it records where PyTorch goes on to the kernel (`keyset`), and whether gradients and tangents were
    being recorded (`modes`). Recording a call switches both off; inside transforms of `torch.func`, where further
    transforms come before the kernel, they are switched on again on the way.
    """

    def go_on(keyset: Any, inputs: Sequence[Any]) -> Any:
        with _below():
            return overload.redispatch(keyset & _after, *inputs)

    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *call: Any) -> Any:
            *inputs, keyset, ctx.modes = call
            with _restored(ctx.modes):
                output = go_on(keyset, inputs)
            kept = keep(ctx, inputs, output)
            ctx.save_for_backward(*kept)
            ctx.save_for_forward(*kept)
            return output

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return *gradient(ctx, *grads), None, None

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            unpack: Any = forward_ad.unpack_dual
            primals = [unpack(each, level=0).primal for each in ctx.saved_tensors]
            with _restored(ctx.modes):
                return tangent(ctx, primals, *tangents[:-2])

    record = _single_level(Recorded)

    def run(keyset: Any, *inputs: Any) -> Any:
        if _is_transforming():
            with _one_level():
                return record(*inputs, keyset, (torch.is_grad_enabled(), _is_forward_enabled()))
        if (torch.is_grad_enabled() and _any_requires_grad(*inputs)) or may_have_tangents():
            return record(*inputs, keyset, None)
        return go_on(keyset, inputs)

    return run


_NOTHING = nullcontext()


def _restored(modes: tuple[bool, bool] | None) -> AbstractContextManager[None]:
    """A context in which gradients and tangents are recorded as `modes` says; one that changes nothing for None."""
    return _NOTHING if modes is None else _modes(*modes)


@contextmanager
def _modes(gradients: bool, tangents: bool) -> Iterator[None]:
    with torch.set_grad_enabled(gradients), _set_forward(tangents):
        yield
