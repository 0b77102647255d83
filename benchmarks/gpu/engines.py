"""Who computes a case on a GPU, and how each is asked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Any, TypeAlias

import torch
from torch import Tensor

from benchmarks.case import Call
from benchmarks.gpu.cases import FORWARD, GpuCase

Tensors: TypeAlias = Mapping[str, Tensor]
"""X, W, I (per plane) and dY, as far as a case has them."""

Step: TypeAlias = Callable[[], Sequence[Tensor]]
"""Computes a case once: its outputs, and, trained, the first of them and the gradients."""


@dataclass(frozen=True)
class Engine:
    """One that is measured.

    Attributes:
        title: its name in tables.
        prepare: makes the step of a case.
        takes: whether it has a case.
        release: version of its package.
        searches: whether cuDNN tries all its algorithms first and keeps the best.
    """

    title: str
    prepare: Callable[[GpuCase, Tensors], Step]
    takes: Callable[[GpuCase], bool]
    release: Callable[[], str]
    searches: bool = False


def _functions(module: Callable[[], Any], *, is_compiled: bool = False) -> Callable[[GpuCase, Tensors], Step]:
    """Steps through the functions of a module that is like torch.nn.functional; `module` imports it."""

    def prepare(case: GpuCase, given: Tensors) -> Step:
        call = forward_of(module(), case.call)
        forward = torch.compile(call, dynamic=False) if is_compiled else call
        return _step(forward, case, given)

    return prepare


def forward_of(module: Any, call: Call) -> Callable[..., Any]:
    """A function of the call's tensors, in their order."""
    function = getattr(module, f"{call.operator}{call.rank}d")
    if call.operator == "max_pool":
        window = call.window, call.stride, call.pad, call.dilation
        return lambda x: function(x, *window, return_indices=call.indices)
    if call.operator == "max_unpool":
        return lambda x, indices: function(x, indices, call.window, call.stride)
    settings = call.stride, call.pad, 0, call.group, call.dilation
    return lambda x, w: function(x, w, None, *settings)


def _step(forward: Callable[..., Any], case: GpuCase, given: Tensors) -> Step:
    others = [given[name] for name in ("W", "I") if name in given]
    if case.way == FORWARD:

        def once() -> Sequence[Tensor]:
            with torch.no_grad():
                made = forward(given["X"], *others)
            return made if isinstance(made, tuple) else (made,)

        return once
    leaves = [each.detach().requires_grad_() for each in (given["X"], *others) if each.is_floating_point()]
    constant = [each for each in others if not each.is_floating_point()]

    def trained() -> Sequence[Tensor]:
        made = forward(*leaves, *constant)
        first = made[0] if isinstance(made, tuple) else made
        return first.detach(), *torch.autograd.grad(first, leaves, given["dY"])

    return trained


def _ours() -> Any:
    import unpool.torch

    return unpool.torch


def _theirs() -> Any:
    return torch.nn.functional


def _by_cupy(case: GpuCase, given: Tensors) -> Step:
    """A filter of maxima, which CuPy has for windows at every element."""
    import cupy
    from cupyx.scipy.ndimage import maximum_filter

    x, size = cupy.from_dlpack(given["X"]), (1, 1, *[case.call.window] * case.call.rank)
    return lambda: (torch.from_dlpack(maximum_filter(x, size, mode="constant", cval=-cupy.inf)),)


def _has_cupy(case: GpuCase) -> bool:
    call = case.call
    is_filter = call.operator == "max_pool" and not call.indices and call.stride == 1 == call.dilation
    return is_filter and call.window == 2 * call.pad + 1 and call.dtype == "float32" and case.way == FORWARD


def _has_cudnn(case: GpuCase) -> bool:
    return case.call.operator == "conv_transpose"


def _is_compiled(case: GpuCase) -> bool:
    """A transposed convolution is cuDNN's there too."""
    return not _has_cudnn(case)


def _version_of(package: str) -> Callable[[], str]:
    return lambda: version(package)


def _version_of_ours() -> str:
    import unpool

    return unpool.__version__


def _version_of_cudnn() -> str:
    return str(torch.backends.cudnn.version())


def _version_of_cupy() -> str:
    return str(import_module("cupy").__version__)


def _always(_: GpuCase) -> bool:
    return True


COMPILED = "compile"
"""The engine that takes seconds to compile each case."""

ENGINES: Mapping[str, Engine] = {
    "unpool": Engine("unpool", _functions(_ours), _always, _version_of_ours),
    "torch": Engine("PyTorch", _functions(_theirs), _always, _version_of("torch")),
    COMPILED: Engine("torch.compile", _functions(_theirs, is_compiled=True), _is_compiled, _version_of("torch")),
    "cudnn": Engine("cuDNN, searched", _functions(_theirs), _has_cudnn, _version_of_cudnn, searches=True),
    "cupy": Engine("CuPy", _by_cupy, _has_cupy, _version_of_cupy),
}  # fmt: skip
"""By the name in results; ours comes first."""
