"""Registration of functions on tensors as operators that PyTorch can trace, differentiate and map over batches.

`torch.library.custom_op` does this too, but calls of its operators take longer, and they have no forward mode. These
operators are faster because they are restricted: no result shares memory with an input, no argument has a default, and
all arguments are positional. Derivatives are registered like those of PyTorch's own operators, so that `backward`,
forward mode and the transforms of `torch.func` all find them.

Calls bypass PyTorch's dispatcher where it would only record a gradient and run the kernel. Both are Python: the
dispatcher converts all arguments into its own types and back, twice, which takes longer than a small call computes. It
is needed for everything else that observes a call: transforms of `torch.func`, torch.compile, tracers, modes,
profilers, tangents, subclasses of tensors, and other devices.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.library import Library, register_autograd, register_fake, register_vmap
from torch.overrides import has_torch_function

from unpool.torch.compat import FAST_PATH, FORWARD_MODE, torch_internal, torch_internal_attribute

Function: TypeAlias = Callable[..., Any]

_LIBRARY: Any = Library("unpool", "FRAGMENT")  # type: ignore[no-untyped-call]

_below = torch_internal("torch._C._AutoDispatchBelowAutograd")
_after = torch_internal("torch._C._after_autograd_keyset")
_any_requires_grad = torch_internal("torch._C._any_requires_grad")
_is_transforming = torch_internal("torch._C._are_functorch_transforms_active")
_enable_single_level = torch_internal("torch._functorch.utils.enable_single_level_autograd_function")
_SingleLevelFunction: Any = torch_internal("torch.autograd.function._SingleLevelFunction") or torch.autograd.Function
"""Base of functions whose `apply` leaves transforms of `torch.func` to its caller."""

_is_forward_enabled = torch_internal("torch._C._is_fwd_grad_enabled")
_set_forward = torch_internal("torch.autograd.forward_ad._set_fwd_grad_enabled")
_keys = torch_internal("torch._C._dispatch_keys")
_included = torch_internal("torch._C._dispatch_tls_local_include_set")
_is_profiling = torch_internal("torch.autograd._profiler_enabled")
_key, _key_set = torch_internal("torch._C.DispatchKey"), torch_internal("torch._C.DispatchKeySet")

HAS_FORWARD_MODE = all(torch_internal(name) is not None for name in FORWARD_MODE)
"""True if operators have derivatives in forward mode."""

HAS_FAST_PATH = all(torch_internal(name) is not None for name in (*FORWARD_MODE, *FAST_PATH))
"""True if this torch allows calls without the dispatcher."""


def can_bypass_dispatcher(*tensors: Tensor | None) -> bool:
    """True if only autograd and the kernel would observe a call on these tensors, on the CPU or a CUDA device."""
    if not HAS_FAST_PATH or torch.compiler.is_compiling() or has_torch_function(tensors):
        return False
    if _included().raw_repr() not in _plain_threads() or is_in_forward_mode() or _is_profiling():
        return False
    plain = _plain_tensors(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
    for each in tensors:  # noqa: SIM110 - a generator takes three times as long
        if each is not None and _keys(each).raw_repr() not in plain:
            return False
    return True


def is_in_forward_mode() -> bool:
    """True if the caller is inside forward mode, where tensors can carry tangents."""
    level = torch_internal_attribute(forward_ad, "torch.autograd.forward_ad._current_level")
    return level is None or level >= 0


@cache
def _plain_threads() -> frozenset[int]:
    """The dispatch keys of a thread without modes, and of one in inference mode."""
    always = _key_set(_key.BackendSelect)
    return frozenset(((always | _key_set(_key.ADInplaceOrView)).raw_repr(), always.raw_repr()))


@cache
def _plain_tensors(has_cuda: bool) -> frozenset[int]:
    """The dispatch keys of plain tensors; first called in a thread without modes."""
    keys = set()
    for device in ("cpu", "cuda")[: 1 + has_cuda]:
        for is_inference in (False, True):
            with torch.inference_mode(is_inference):
                keys.add(_keys(torch.empty(0, device=device)).raw_repr())
    return frozenset(keys)


@dataclass(frozen=True, slots=True)
class TensorOperator:
    """An operator unpool::NAME, called with all arguments by position, the given number of tensors first.

    `overload` calls it through the dispatcher, `kernel` computes it, and `record` also records what its gradient needs.
    """

    overload: Any
    kernel: Function
    record: Function
    tensors: int

    def __call__(self, *inputs: Any) -> Any:
        """Call the kernel if possible, else the dispatcher."""
        return self.call_kernel(*inputs) if can_bypass_dispatcher(*inputs[: self.tensors]) else self.overload(*inputs)

    def call_kernel(self, *inputs: Any) -> Any:
        """Call the kernel without the dispatcher, if `can_bypass_dispatcher`; recorded if a gradient may be needed."""
        is_recorded = torch.is_grad_enabled() and _any_requires_grad(*inputs)
        return self.record(*inputs) if is_recorded else self.kernel(*inputs)


def batch_rule(operator: Function, info: Any, places: Any, *arguments: Any) -> tuple[Any, Any]:
    """The rule for `torch.vmap` of an operator on (N, C, ..) that treats every n separately.

    A rule makes one call out of many, which lie along one axis of the arguments; here they become parts of one batch.
    It takes PyTorch's record of that axis, its position in each argument (None if the argument is the same for all
    calls), and the arguments. It returns the outputs, and the position of the axis in each of them.
    """
    size = info.batch_size
    pairs = zip(arguments, places, strict=True)
    stacked = [move_batch_first(each, place, size) if isinstance(each, Tensor) else each for each, place in pairs]
    outputs = operator(*[each.flatten(0, 1) if isinstance(each, Tensor) else each for each in stacked])
    batch = stacked[0].shape[1]
    if isinstance(outputs, Tensor):
        return outputs.view(size, batch, *outputs.shape[1:]), 0
    return tuple(each.view(size, batch, *each.shape[1:]) for each in outputs), (0,) * len(outputs)


def move_batch_first(x: Tensor, place: int | None, size: int) -> Tensor:
    """The tensor with the axis of calls as its first; expanded if it has none."""
    return x.unsqueeze(0).expand(size, *x.shape) if place is None else x.movedim(place, 0)


def operator(
    arguments: str,
    fake: Function,
    save: Function,
    gradient: Function,
    tangent: Function,
    batch: Function = batch_rule,
    outputs: str = "Tensor",
) -> Callable[[Function], TensorOperator]:
    """A decorator that registers a function which computes new tensors on the CPU or a GPU as unpool::NAME.

    `arguments` (tensors first) and `outputs` are its schema in the words of `torch.library.define`. `fake` takes the
    same arguments, and returns tensors like the outputs without computing them. `save` takes a context, the inputs and
    the output, saves the values that derivatives need in the context, and returns the tensors that they need.
    `gradient` takes the context and the gradients of the outputs, and returns one for each input. `tangent` takes the
    operator, the context, the tensors that `save` returned and the tangents of the inputs, and returns one for each
    output. `batch` is as `batch_rule`.
    """

    def decorate(kernel: Function) -> TensorOperator:
        name = kernel.__name__
        _LIBRARY.define(f"{name}({arguments}) -> {outputs}", tags=torch.Tag.pt2_compliant_tag)
        for device in ("CPU", "CUDA"):
            _LIBRARY.impl(name, torch.compiler.disable(kernel), device)  # type: ignore[no-untyped-call]
        register_fake(f"unpool::{name}", fake, lib=_LIBRARY)
        overload = getattr(torch.ops.unpool, name).default
        register_vmap(f"unpool::{name}", partial(batch, overload), lib=_LIBRARY)
        if HAS_FORWARD_MODE:
            rules = save, gradient, partial(tangent, overload)
            _LIBRARY.impl(name, _differentiable(overload, *rules), "Autograd", with_keyset=True)
        else:

            def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
                ctx.save_for_backward(*save(ctx, inputs, output))

            register_autograd(f"unpool::{name}", gradient, setup_context=setup_context, lib=_LIBRARY)
        record = recorder(kernel, save, gradient) if HAS_FAST_PATH else overload
        return TensorOperator(overload, kernel, record, arguments.count("Tensor"))

    return decorate


def recorder(kernel: Function, save: Function, gradient: Function) -> Function:
    """A function that calls a kernel and records it for its gradient, for `TensorOperator.call_kernel`."""

    class KernelCall(_SingleLevelFunction):  # type: ignore[misc]  # Any, where torch names no type
        backward = staticmethod(gradient)

        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            output = kernel(*inputs)
            ctx.save_for_backward(*save(ctx, inputs, output))
            return output

    return KernelCall.apply  # type: ignore[no-any-return]


def _differentiable(overload: Any, save: Function, gradient: Function, tangent: Function) -> Function:
    """The autograd kernel of an operator: it records the call if a derivative may be needed.

    With the inputs it records the dispatch keys of the call (`keyset`), and whether gradients and tangents were being
    recorded (`modes`, a function that returns a context with both). Recording a call turns both off; inside transforms
    of `torch.func`, where further transforms come before the kernel, they are turned on again for these.
    """

    def redispatch(keyset: Any, inputs: Sequence[Any]) -> Any:
        with _below():
            return overload.redispatch(keyset & _after, *inputs)

    class DispatchedCall(_SingleLevelFunction):  # type: ignore[misc]  # likewise
        @staticmethod
        def forward(ctx: Any, *call: Any) -> Any:
            *inputs, keyset, ctx.modes = call
            with ctx.modes():
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
            primals = [unpack(each, level=0).primal for each in ctx.saved_tensors]
            with ctx.modes():
                return tangent(ctx, primals, *tangents[:-2])

    record, unpack = DispatchedCall.apply, cast(Any, forward_ad.unpack_dual)

    def run(keyset: Any, *inputs: Any) -> Any:
        if _is_transforming():
            modes = partial(_modes, torch.is_grad_enabled(), _is_forward_enabled())
            with _enable_single_level():
                return record(*inputs, keyset, modes)
        if (torch.is_grad_enabled() and _any_requires_grad(*inputs)) or is_in_forward_mode():
            return record(*inputs, keyset, nullcontext)
        return redispatch(keyset, inputs)

    return run


@contextmanager
def _modes(gradients: bool, tangents: bool) -> Iterator[None]:
    with torch.set_grad_enabled(gradients), _set_forward(tangents):
        yield
