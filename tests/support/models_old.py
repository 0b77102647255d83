"""Whole networks in old opsets, each with what it computes, written in NumPy and the oracle."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests import oracle
from tests.support import models

Weights = dict[str, np.ndarray]


@dataclass(frozen=True)
class Network:
    """A model with one input, x, and one output, y; and the value of y for an x."""

    model: onnx.ModelProto
    compute: Any
    shape: tuple[int, ...]


def build(
    nodes: list[onnx.NodeProto], shape: tuple[int, ...], opset: int, ir: int, weights: Weights
) -> onnx.ModelProto:
    """A model from x to y; below IR version 4 weights are inputs too."""
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    listed = [helper.make_tensor_value_info(one.name, one.data_type, one.dims) for one in tensors] if ir < 4 else []
    graph = helper.make_graph(nodes, "old", [x, *listed], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


def conv(x: np.ndarray, w: np.ndarray, pad: int = 0) -> np.ndarray:
    x = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    return np.einsum("nchwij,mcij->nmhw", windows, w)


def norm(x: np.ndarray, weights: Weights, prefix: str) -> np.ndarray:
    scale, bias, mean, variance = (channel(weights[prefix + part]) for part in "sbmv")
    return (x - mean) / np.sqrt(variance + np.float32(1e-5)) * scale + bias


def channel(v: np.ndarray) -> np.ndarray:
    """(C,) beside (N, C, H, W)."""
    return v.reshape(-1, 1, 1)


def leaky(x: np.ndarray, slope: Any) -> np.ndarray:
    return np.where(x < 0, x * slope, x)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    grown = np.exp(x - x.max(axis=1, keepdims=True))
    return grown / grown.sum(axis=1, keepdims=True)


def segnet_1() -> Network:
    """Opset 1: no MaxUnpool yet, so it grows by ConvTranspose-1, whose output_shape has an odd total."""
    n = helper.make_node
    w = {
        "w1": models.random(4, 3, 3, 3),
        "w2": models.random(5, 4, 3, 3) / 6,
        "bias": models.random(5, seed=1),
        "w3": models.random(5, 4, 4, 3) / 6,
        "slope": models.random(4, seed=2),
        "w4": models.random(8, 3, 3, 3) / 9,
        "gain": models.random(3, seed=3),
        **models.batch_norm("n", 4),
    }
    nodes = [
        n("Conv", ["x", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        n("BatchNormalization", ["c1", "ns", "nb", "nm", "nv"], ["n1"], is_test=1, consumed_inputs=[0, 0, 0, 1, 1]),
        n("Relu", ["n1"], ["r1"], consumed_inputs=[0]),
        n("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        n("Conv", ["p1", "w2"], ["c2"], pads=[1, 1, 1, 1]),
        n("Add", ["c2", "bias"], ["a2"], broadcast=1, axis=1),
        n("LeakyRelu", ["a2"], ["r2"], alpha=0.25),
        n("MaxPool", ["r2"], ["p2"], kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_UPPER"),
        n("ConvTranspose", ["p2", "w3"], ["d2"], strides=[2, 2], output_shape=[5, 4]),
        n("PRelu", ["d2", "slope"], ["r3"]),
        n("Concat", ["r3", "p1"], ["skip"]),
        n("ConvTranspose", ["skip", "w4"], ["d1"], strides=[2, 2], auto_pad="SAME_LOWER"),
        n("Mul", ["d1", "gain"], ["m1"], broadcast=1, axis=1, consumed_inputs=[0, 0]),
        n("Dropout", ["m1"], ["o1"], is_test=1),
        n("Sigmoid", ["o1"], ["s1"]),
        n("Reshape", ["s1"], ["flat"], shape=[2, -1]),
        n("Softmax", ["flat"], ["y"], axis=1),
    ]

    def compute(x: np.ndarray) -> np.ndarray:
        r1 = np.maximum(norm(conv(x, w["w1"], 1), w, "n"), 0)
        p1 = oracle.max_pool(r1, kernel_shape=[2, 2], strides=[2, 2], version=1)
        r2 = leaky(conv(p1, w["w2"], 1) + channel(w["bias"]), np.float32(0.25))
        p2 = oracle.max_pool(r2, kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_UPPER", version=1)
        d2 = oracle.conv_transpose(p2, w["w3"], strides=[2, 2], output_shape=[5, 4], version=1)
        skip = np.concatenate([leaky(d2, channel(w["slope"])), p1], axis=1)
        d1 = oracle.conv_transpose(skip, w["w4"], strides=[2, 2], auto_pad="SAME_LOWER", version=1)
        return softmax(sigmoid(d1 * channel(w["gain"])).reshape(2, -1))

    return Network(build(nodes, (2, 3, 10, 8), 1, 3, w), compute, (2, 3, 10, 8))


def segnet_6() -> Network:
    """Opset 6: two poolings and two ConvTranspose-1, skips that broadcast, and a dense head."""
    n = helper.make_node
    w = {
        "w1": models.random(4, 3, 3, 3),
        "w2": models.random(4, 4, 3, 3),
        "w3": models.random(4, 2, 3, 3),
        "b3": models.random(4, seed=1),
        "slope": models.random(4, seed=2),
        "row": models.random(8, seed=3),
        "w4": models.random(4, 2, 3, 3),
        "dense": models.random(160, 8) / 10,
        "offset": models.random(8, seed=4),
        **models.batch_norm("n", 4),
        **models.batch_norm("k", 4, seed=9),
    }
    grow = {"strides": [2, 2], "output_shape": [5, 4], "group": 2, "auto_pad": "SAME_UPPER"}
    nodes = [
        n("Conv", ["x", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        n("BatchNormalization", ["c1", "ns", "nb", "nm", "nv"], ["n1"], is_test=1),
        n("Relu", ["n1"], ["r1"]),
        n("MaxPool", ["r1"], ["p1"], kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 0, 0]),
        n("Conv", ["p1", "w2"], ["c2"], pads=[1, 1, 1, 1]),
        n("PRelu", ["c2", "slope"], ["r2"]),
        n("MaxPool", ["r2"], ["p2"], kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_LOWER"),
        n("ConvTranspose", ["p2", "w3", "b3"], ["d2"], **grow),
        n("BatchNormalization", ["d2", "ks", "kb", "km", "kv"], ["n2"], is_test=1),
        n("Sum", ["n2", "p1", "p1"], ["skip"]),
        n("ConvTranspose", ["skip", "w4"], ["d1"], strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]),
        n("Sub", ["d1", "row"], ["s1"], broadcast=1),
        n("Flatten", ["s1"], ["flat"]),
        n("Gemm", ["flat", "dense", "offset"], ["y"], broadcast=1),
    ]

    def compute(x: np.ndarray) -> np.ndarray:
        r1 = np.maximum(norm(conv(x, w["w1"], 1), w, "n"), 0)
        p1 = oracle.max_pool(r1, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 0, 0], version=1)
        r2 = leaky(conv(p1, w["w2"], 1), channel(w["slope"]))
        p2 = oracle.max_pool(r2, kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_LOWER", version=1)
        d2 = oracle.conv_transpose(p2, w["w3"], w["b3"], **grow, version=1)
        skip = norm(d2, w, "k") + 2 * p1
        d1 = oracle.conv_transpose(skip, w["w4"], strides=[2, 2], pads=[1] * 4, output_padding=[1, 1], version=1)
        return (d1 - w["row"]).reshape(2, -1) @ w["dense"] + w["offset"]

    return Network(build(nodes, (2, 3, 10, 8), 6, 3, w), compute, (2, 3, 10, 8))


def segnet_9() -> Network:
    """Opset 9: MaxPool-8 with Indices, MaxUnpool-9 with and without output_shape, ConvTranspose-1 and Upsample-9."""
    n = helper.make_node
    w = {
        "w1": models.random(4, 3, 3, 3),
        "w2": models.random(4, 4, 3, 3),
        "slope": models.random(4, 1, 1, seed=2),
        "w3": models.random(4, 4, 3, 3),
        "w4": models.random(4, 2, 1, 1),
        "scales": np.float32([1, 1, 2, 1]),
        **models.batch_norm("n", 4),
    }
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        n("Conv", ["x", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        n("BatchNormalization", ["c1", "ns", "nb", "nm", "nv"], ["n1"]),
        n("Relu", ["n1"], ["r1"]),
        n("Shape", ["r1"], ["size"]),
        n("MaxPool", ["r1"], ["p1", "i1"], **pool),
        n("Conv", ["p1", "w2"], ["c2"], pads=[1, 1, 1, 1]),
        n("PRelu", ["c2", "slope"], ["r2"]),
        n("MaxPool", ["r2"], ["p2", "i2"], **pool),
        n("MaxUnpool", ["p2", "i2"], ["u2"], **pool),
        n("ConvTranspose", ["u2", "w3"], ["d2"], pads=[1, 1, 1, 1]),
        n("MaxUnpool", ["d2", "i1", "size"], ["u1"], **pool),
        n("ConvTranspose", ["u1", "w4"], ["d1"]),
        n("Upsample", ["d1", "scales"], ["y"]),
    ]

    def compute(x: np.ndarray) -> np.ndarray:
        r1 = np.maximum(norm(conv(x, w["w1"], 1), w, "n"), 0)
        p1, i1 = oracle.max_pool(r1, **pool, return_indices=True, version=8)
        p2, i2 = oracle.max_pool(leaky(conv(p1, w["w2"], 1), w["slope"]), **pool, return_indices=True, version=8)
        u2 = oracle.max_unpool(p2, i2, **pool, version=9)
        d2 = oracle.conv_transpose(u2, w["w3"], pads=[1] * 4, version=1)
        u1 = oracle.max_unpool(d2, i1, np.array(r1.shape), **pool, version=9)
        return oracle.conv_transpose(u1, w["w4"], version=1).repeat(2, axis=2)

    return Network(build(nodes, (2, 3, 9, 8), 9, 4, w), compute, (2, 3, 9, 8))
