"""Whole networks in old opsets, each with what it computes, written in NumPy and the oracle."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from tests import oracle
from tests.support import models

Weights = dict[str, np.ndarray]


@dataclass(frozen=True)
class Network:
    """A model with one input, x, and one output, y; and the value of y for an x."""

    model: onnx.ModelProto
    compute: Any
    shape: tuple[int, ...]


def build(nodes: str, shape: tuple[int, ...], opset: int, ir: int, weights: Weights) -> onnx.ModelProto:
    """A model from x to y; below IR version 4 weights are inputs too."""
    given = {"x": shape, **({name: value.shape for name, value in weights.items()} if ir < 4 else {})}
    inputs = ", ".join(f"float[{', '.join(map(str, size))}] {name}" for name, size in given.items())
    return models.model(f"old ({inputs}) => (float[] y) {{ {nodes} }}", opset=opset, ir=ir, **weights)


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


def segnet_1() -> Network:
    """Opset 1: no MaxUnpool yet, so it grows by ConvTranspose-1, whose output_shape has an odd total."""
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
    nodes = """
        c1 = Conv <pads = [1, 1, 1, 1]> (x, w1)
        n1 = BatchNormalization <is_test = 1, consumed_inputs = [0, 0, 0, 1, 1]> (c1, ns, nb, nm, nv)
        r1 = Relu <consumed_inputs = [0]> (n1)
        p1 = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r1)
        c2 = Conv <pads = [1, 1, 1, 1]> (p1, w2)
        a2 = Add <broadcast = 1, axis = 1> (c2, bias)
        r2 = LeakyRelu <alpha = 0.25> (a2)
        p2 = MaxPool <kernel_shape = [3, 2], strides = [2, 2], auto_pad = "SAME_UPPER"> (r2)
        d2 = ConvTranspose <strides = [2, 2], output_shape = [5, 4]> (p2, w3)
        r3 = PRelu (d2, slope)
        skip = Concat (r3, p1)
        d1 = ConvTranspose <strides = [2, 2], auto_pad = "SAME_LOWER"> (skip, w4)
        m1 = Mul <broadcast = 1, axis = 1, consumed_inputs = [0, 0]> (d1, gain)
        o1 = Dropout <is_test = 1> (m1)
        s1 = Sigmoid (o1)
        flat = Reshape <shape = [2, -1]> (s1)
        y = Softmax <axis = 1> (flat)
    """

    def compute(x: np.ndarray) -> np.ndarray:
        r1 = np.maximum(norm(conv(x, w["w1"], 1), w, "n"), 0)
        p1 = oracle.max_pool(r1, kernel_shape=[2, 2], strides=[2, 2], version=1)
        r2 = leaky(conv(p1, w["w2"], 1) + channel(w["bias"]), np.float32(0.25))
        p2 = oracle.max_pool(r2, kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_UPPER", version=1)
        d2 = oracle.conv_transpose(p2, w["w3"], strides=[2, 2], output_shape=[5, 4], version=1)
        skip = np.concatenate([leaky(d2, channel(w["slope"])), p1], axis=1)
        d1 = oracle.conv_transpose(skip, w["w4"], strides=[2, 2], auto_pad="SAME_LOWER", version=1)
        s1 = 1 / (1 + np.exp(-d1 * channel(w["gain"])))
        grown = np.exp(s1.reshape(2, -1))
        return grown / grown.sum(axis=1, keepdims=True)

    return Network(build(nodes, (2, 3, 10, 8), 1, 3, w), compute, (2, 3, 10, 8))


def segnet_6() -> Network:
    """Opset 6: two poolings and two ConvTranspose-1, skips that broadcast, and a dense head."""
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
    nodes = """
        c1 = Conv <pads = [1, 1, 1, 1]> (x, w1)
        n1 = BatchNormalization <is_test = 1> (c1, ns, nb, nm, nv)
        r1 = Relu (n1)
        p1 = MaxPool <kernel_shape = [3, 2], strides = [2, 2], pads = [1, 0, 0, 0]> (r1)
        c2 = Conv <pads = [1, 1, 1, 1]> (p1, w2)
        r2 = PRelu (c2, slope)
        p2 = MaxPool <kernel_shape = [2, 2], strides = [2, 2], auto_pad = "SAME_LOWER"> (r2)
        d2 = ConvTranspose <strides = [2, 2], output_shape = [5, 4], group = 2, auto_pad = "SAME_UPPER"> (p2, w3, b3)
        n2 = BatchNormalization <is_test = 1> (d2, ks, kb, km, kv)
        skip = Sum (n2, p1, p1)
        d1 = ConvTranspose <strides = [2, 2], pads = [1, 1, 1, 1], output_padding = [1, 1]> (skip, w4)
        s1 = Sub <broadcast = 1> (d1, row)
        flat = Flatten (s1)
        y = Gemm <broadcast = 1> (flat, dense, offset)
    """

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
    nodes = f"""
        c1 = Conv <pads = [1, 1, 1, 1]> (x, w1)
        n1 = BatchNormalization (c1, ns, nb, nm, nv)
        r1 = Relu (n1)
        size = Shape (r1)
        p1, i1 = MaxPool <{models.POOL}> (r1)
        c2 = Conv <pads = [1, 1, 1, 1]> (p1, w2)
        r2 = PRelu (c2, slope)
        p2, i2 = MaxPool <{models.POOL}> (r2)
        u2 = MaxUnpool <{models.POOL}> (p2, i2)
        d2 = ConvTranspose <pads = [1, 1, 1, 1]> (u2, w3)
        u1 = MaxUnpool <{models.POOL}> (d2, i1, size)
        d1 = ConvTranspose (u1, w4)
        y = Upsample (d1, scales)
    """

    def compute(x: np.ndarray) -> np.ndarray:
        r1 = np.maximum(norm(conv(x, w["w1"], 1), w, "n"), 0)
        p1, i1 = oracle.max_pool(r1, **pool, return_indices=True, version=8)
        p2, i2 = oracle.max_pool(leaky(conv(p1, w["w2"], 1), w["slope"]), **pool, return_indices=True, version=8)
        u2 = oracle.max_unpool(p2, i2, **pool, version=9)
        d2 = oracle.conv_transpose(u2, w["w3"], pads=[1] * 4, version=1)
        u1 = oracle.max_unpool(d2, i1, np.array(r1.shape), **pool, version=9)
        return oracle.conv_transpose(u1, w["w4"], version=1).repeat(2, axis=2)

    return Network(build(nodes, (2, 3, 9, 8), 9, 4, w), compute, (2, 3, 9, 8))
