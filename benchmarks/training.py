"""One step of training through an operator, forward and backward: `unpool.torch` and PyTorch's own functions."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

import unpool
from benchmarks.case import Call, Training
from benchmarks.engines import operator
from benchmarks.engines.pytorch import to_tensor
from benchmarks.one_node import Arrays
from benchmarks.values import random_values


def arrays(case: Training, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The inputs of the call and dY, the gradient of its first output."""
    return {**operator(case.call).arrays(case.call, rng), "dY": random_values(case, rng, case.call.y_shape)}


def by_unpool(case: Training, given: Arrays, threads: int) -> Callable[[], Any]:
    """A step through our operators."""
    import unpool.torch

    torch.set_num_threads(threads)
    return _step(unpool.torch, case.call, given)


def by_torch(case: Training, given: Arrays) -> Callable[[], Any]:
    """A step through PyTorch's."""
    return _step(torch.nn.functional, case.call, given)


def _step(functions: ModuleType, call: Call, given: Arrays) -> Callable[[], tuple[Tensor, ...]]:
    """Makes the first output and the gradients of all inputs but indices."""
    function = getattr(functions, f"{call.operator}{call.rank}d")
    leaves = [to_tensor(given[name]).requires_grad_() for name in ("X", "W") if name in given]
    forward, grad = _forward(function, call, leaves, given), to_tensor(given["dY"])

    def step() -> tuple[Tensor, ...]:
        for leaf in leaves:
            leaf.grad = None
        with torch.enable_grad():
            y = forward()
            y.backward(grad)
        return y.detach(), *[leaf.grad for leaf in leaves if leaf.grad is not None]

    return step


def _forward(function: Callable[..., Any], call: Call, leaves: list[Tensor], given: Arrays) -> Callable[[], Tensor]:
    if call.operator == "max_pool":
        window = call.window, call.stride, call.pad, call.dilation
        return lambda: function(*leaves, *window, return_indices=True)[0]  # type: ignore[no-any-return]
    if call.operator == "max_unpool":
        indices = to_tensor(unpool.to_torch_indices(given["I"], call.shape[2:]))
        return lambda: function(*leaves, indices, call.window, call.stride)  # type: ignore[no-any-return]
    settings = call.stride, call.pad, 0, call.group, call.dilation
    return lambda: function(*leaves, None, *settings)  # type: ignore[no-any-return]
