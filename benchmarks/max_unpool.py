"""MaxUnpool: its inputs, and how each engine is asked for it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

import unpool
from benchmarks.case import Call
from benchmarks.one_node import Arrays, one_node
from benchmarks.values import random_values, whole_tensor


def arrays(call: Call, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """X, and I with an element of its own window for every element of X."""
    place = np.zeros(call.x_shape, np.int64)
    for axis, (small, large) in enumerate(zip(call.x_shape[2:], call.shape[2:], strict=True), 2):
        begin = np.arange(small) * call.stride
        begin = begin.reshape([-1 if other == axis else 1 for other in range(len(call.shape))])
        place = place * large + begin + rng.integers(0, call.window, call.x_shape)
    return {"X": random_values(call, rng, call.x_shape), "I": whole_tensor(place, call.shape[2:])}


def attributes(call: Call) -> dict[str, Any]:
    """ONNX's attributes, which are also the names of our keywords."""
    return {"kernel_shape": [call.window] * call.rank, "strides": [call.stride] * call.rank}


def model(call: Call, given: Arrays) -> onnx.ModelProto:
    """The call as a file."""
    return one_node(call, "MaxUnpool", attributes(call), given, ["Y"])


def by_unpool(call: Call, given: Arrays, threads: int) -> Callable[[], Any]:
    """Our function."""
    x, indices, keywords = given["X"], given["I"], attributes(call)
    return lambda: unpool.max_unpool(x, indices, **keywords, threads=threads)


def by_torch(call: Call, given: Arrays) -> Callable[[], Any]:
    """PyTorch's function, whose indices count in one plane."""
    from torch.nn import functional

    from benchmarks.engines.pytorch import to_tensor

    function = getattr(functional, f"max_unpool{call.rank}d")
    x, indices = to_tensor(given["X"]), to_tensor(unpool.to_torch_indices(given["I"], call.shape[2:]))
    return lambda: function(x, indices, call.window, call.stride)
