"""Registers a function on tensors as an operator that PyTorch can trace and differentiate.

As `torch.library.custom_op` does, without what that adds to every call: no result here shares memory with an input, and
no argument has a default or goes by its name.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import _C
from torch.library import Library, infer_schema, register_fake

Function: TypeAlias = Callable[..., Any]

_LIBRARY: Any = Library("unpool", "FRAGMENT")  # type: ignore[no-untyped-call]


def operator(fake: Function, keep: Function, gradient: Function) -> Function:
    """Decorates a function that computes new tensors on the CPU; its annotations become the schema.

    Args:
        fake: takes the same arguments, and returns tensors that are like the outputs, without computing them.
        keep: takes a context, the inputs and the output, and keeps in the context what `gradient` needs.
        gradient: takes the context and the gradients of the outputs, and returns one for each input.

    Returns:
        The decorator; what it makes of the function is the operator unpool::NAME, to be called with all arguments.
    """

    def decorate(kernel: Function) -> Any:
        name = kernel.__name__
        _LIBRARY.define(name + infer_schema(kernel, mutates_args=()), tags=torch.Tag.pt2_compliant_tag)
        _LIBRARY.impl(name, torch.compiler.disable(kernel), "CPU")  # type: ignore[no-untyped-call]
        register_fake(f"unpool::{name}", fake, lib=_LIBRARY)
        overload = getattr(torch.ops.unpool, name).default
        _LIBRARY.impl(name, _differentiable(overload, keep, gradient), "Autograd", with_keyset=True)
        return overload

    return decorate


def _differentiable(overload: Any, keep: Function, gradient: Function) -> Function:
    """What PyTorch runs before the kernel of an operator: it remembers the call if a gradient may be asked for.

    The last thing that is remembered is PyTorch's own: where it goes on from here.
    """

    def go_on(keyset: _C.DispatchKeySet, inputs: tuple[Any, ...]) -> Any:
        with _C._AutoDispatchBelowAutograd():
            return overload.redispatch(keyset & _C._after_autograd_keyset, *inputs)

    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *call: Any) -> Any:
            *inputs, keyset = call
            output = go_on(keyset, tuple(inputs))
            keep(ctx, inputs, output)
            return output

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return *gradient(ctx, *grads), None

    def run(keyset: _C.DispatchKeySet, *inputs: Any) -> Any:
        if torch.is_grad_enabled() and _C._any_requires_grad(*inputs):
            return Recorded.apply(*inputs, keyset)  # type: ignore[no-untyped-call]
        return go_on(keyset, inputs)

    return run
