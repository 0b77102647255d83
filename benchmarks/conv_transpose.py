"""ConvTranspose: its inputs, and how each engine is asked for it. The weights are constant."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

import unpool
from benchmarks.case import Call
from benchmarks.one_node import Arrays, one_node
from benchmarks.values import random_values


def arrays(call: Call, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """X, and W of a size that keeps Y near 1."""
    x = random_values(call, rng, call.shape)
    terms = call.shape[1] // call.group * max(1, call.window // call.stride) ** call.rank
    w = random_values(call, rng, call.w_shape).astype(np.float32) / np.sqrt(np.float32(terms))
    return {"X": x, "W": w.astype(call.numpy_type)}


def attributes(call: Call) -> dict[str, Any]:
    """ONNX's attributes, which are also the names of our keywords."""
    return {
        "kernel_shape": [call.window] * call.rank,
        "strides": [call.stride] * call.rank,
        "pads": [call.pad] * 2 * call.rank,
        "dilations": [call.dilation] * call.rank,
        "group": call.group,
    }


def model(call: Call, given: Arrays) -> onnx.ModelProto:
    """The call as a file, with W as a constant."""
    return one_node(call, "ConvTranspose", attributes(call), given, ["Y"], constant="W")


def by_unpool(call: Call, given: Arrays, threads: int) -> Callable[[], Any]:
    """Our function for constant weights, which are packed once, as a session's are."""
    x, grow = given["X"], unpool.prepare_conv_transpose(given["W"], **attributes(call))
    return lambda: grow(x, threads=threads)


def by_torch(call: Call, given: Arrays) -> Callable[[], Any]:
    """PyTorch's function."""
    from torch.nn import functional

    from benchmarks.engines.pytorch import to_tensor

    function = getattr(functional, f"conv_transpose{call.rank}d")
    x, w = to_tensor(given["X"]), to_tensor(given["W"])
    return lambda: function(x, w, None, call.stride, call.pad, 0, call.group, call.dilation)
