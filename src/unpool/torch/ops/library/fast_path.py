"""Calls of kernels without PyTorch's dispatcher, where it would only record a gradient and run the kernel.

Both are Python: the dispatcher converts all arguments into its own types and back, twice, which takes longer than a
small call computes. It is needed for everything else that observes a call: transforms of `torch.func`, torch.compile,
tracers, modes, profilers, tangents, subclasses of tensors, and other devices.
"""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import has_torch_function

from unpool.torch.compat import FAST_PATH, FORWARD_MODE, torch_internal, torch_internal_attribute

_keys = torch_internal("torch._C._dispatch_keys")
_included = torch_internal("torch._C._dispatch_tls_local_include_set")
_is_profiling = torch_internal("torch.autograd._profiler_enabled")
_key, _key_set = torch_internal("torch._C.DispatchKey"), torch_internal("torch._C.DispatchKeySet")
_any_requires_grad = torch_internal("torch._C._any_requires_grad")

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
    found = set()
    for device in ("cpu", "cuda")[: 1 + has_cuda]:
        for is_inference in (False, True):
            with torch.inference_mode(is_inference):
                found.add(_keys(torch.empty(0, device=device)).raw_repr())
    return frozenset(found)


class Operator:
    """An operator unpool::NAME, called with all arguments by position, tensors first.

    Attributes:
        overload: calls it through the dispatcher.
        kernel: computes it.
        record: calls the kernel, and records what the gradient needs.
        tensors: number of its arguments that are tensors.
    """

    def __init__(self, overload: Any, kernel: Callable[..., Any], record: Callable[..., Any]) -> None:
        """As attributes."""
        self.overload = overload
        self.kernel = kernel
        self.record = record
        annotations = [each.annotation for each in inspect.signature(kernel).parameters.values()]
        self.tensors = sum(each in (Tensor, Tensor | None) for each in annotations)

    def __call__(self, *inputs: Any) -> Any:
        """Call the kernel if possible, else the dispatcher."""
        return self.call_kernel(*inputs) if can_bypass_dispatcher(*inputs[: self.tensors]) else self.overload(*inputs)

    def call_kernel(self, *inputs: Any) -> Any:
        """Call the kernel without the dispatcher, if `can_bypass_dispatcher`; recorded if a gradient may be needed."""
        is_recorded = torch.is_grad_enabled() and _any_requires_grad(*inputs)
        return self.record(*inputs) if is_recorded else self.kernel(*inputs)
