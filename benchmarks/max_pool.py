"""MaxPool: its inputs, and how each engine is asked for it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

import unpool
from benchmarks.case import Call
from benchmarks.one_node import Arrays, one_node
from benchmarks.values import random_values


def arrays(call: Call, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """X in the layout of the call."""
    n, c, *spatial = call.shape
    return {"X": random_values(call, rng, (n, *spatial, c) if call.layout == "NHWC" else call.shape)}


def attributes(call: Call) -> dict[str, Any]:
    """ONNX's attributes, which are also the names of our keywords."""
    return {
        "kernel_shape": [call.window] * call.rank,
        "strides": [call.stride] * call.rank,
        "pads": [call.pad] * 2 * call.rank,
        "dilations": [call.dilation] * call.rank,
    }


def model(call: Call, given: Arrays) -> onnx.ModelProto:
    """The call as a file."""
    return one_node(call, "MaxPool", attributes(call), given, ["Y", "Indices"] if call.indices else ["Y"])


def by_unpool(call: Call, given: Arrays, threads: int) -> Callable[[], Any]:
    """Our function."""
    x, keywords = given["X"], attributes(call)
    keywords |= {"return_indices": call.indices, "layout": call.layout, "threads": threads}
    return lambda: unpool.max_pool(x, **keywords)


def by_torch(call: Call, given: Arrays) -> Callable[[], Any]:
    """PyTorch's function; channels last is its memory format."""
    from torch.nn import functional

    from benchmarks.engines.pytorch import to_tensor

    function = getattr(functional, f"max_pool{call.rank}d")
    x = to_tensor(given["X"])
    x = x.movedim(-1, 1) if call.layout == "NHWC" else x
    return lambda: function(x, call.window, call.stride, call.pad, call.dilation, return_indices=call.indices)
