"""Section 6 of the contract: the domain com.ms.internal.nhwc."""

import ml_dtypes
import numpy as np

from cases_record import Case, block, deconv, pool, unpool

INF = np.inf
NAN = np.nan
NHWC = {"layout": "NHWC"}
X = block((1, 3, 1), [-3, -1, -2])
PAIR = block((1, 2, 1), [-3, 4])
DECONV_X = block((1, 2, 2), 1)
DECONV_W = block((2, 2, 2), [1, 10, 2, 20, 100, 0, -200, 0])
FLOAT32_MAX = float(np.finfo(np.float32).max)


def active(why: str, values: list[float], name: str, params: list[float] | None = None, **given: object) -> list[Case]:
    """A kernel-1 pool of [-3, 4, NaN] under an activation; no values is a refusal."""
    x = block((1, 3, 1), [-3, 4, NAN])
    y = block((1, 3, 1), values) if values else None
    if params is not None:
        given["activation_params"] = params
    return pool("6.5", why, x, y, kernel_shape=[1], activation=name, **NHWC, **given)


VERSIONS: list[Case] = [
    *pool(
        "6.1",
        "opset 22 is version 12",
        block((1, 3, 1), [1, 3, 2]),
        block((1, 2, 1), [3, 3]),
        kernel_shape=[2],
        opsets=(1, 8, 10, 11, 12, 21, 22),
        **NHWC,
    ),
    *pool(
        "6.1",
        "no bfloat16 with an opset",
        block((1, 1, 1), [1], ml_dtypes.bfloat16),
        None,
        kernel_shape=[1],
        opsets=(22,),
        **NHWC,
    ),
    *pool(
        "6.1",
        "bfloat16 without an opset",
        block((1, 1, 1), [1], ml_dtypes.bfloat16),
        block((1, 1, 1), [1], ml_dtypes.bfloat16),
        kernel_shape=[1],
        **NHWC,
    ),
    *unpool(
        "6.1",
        "MaxUnpool starts at 9",
        block((1, 1, 1), [1]),
        block((1, 1, 1), [0], np.int64),
        None,
        kernel_shape=[1],
        opsets=(8,),
        **NHWC,
    ),
    *pool("6.1", "dilations came with 10", X, None, kernel_shape=[1], dilations=[1], opsets=(8,), **NHWC),
    *deconv(
        "6.1",
        "opset 10 is version 1",
        block((1, 3, 1), [1, 2, 3]),
        block((1, 1, 3), [1, 10, 100]),
        block((1, 6, 1), [1, 10, 102, 20, 203, 30]),
        strides=[2],
        output_shape=[6],
        opsets=(1, 10),
        **NHWC,
    ),
    *deconv(
        "6.1",
        "opset 22 is version 11",
        block((1, 3, 1), [1, 2, 3]),
        block((1, 1, 3), [1, 10, 100]),
        block((1, 6, 1), [10, 102, 20, 203, 30, 300]),
        strides=[2],
        output_shape=[6],
        opsets=(11, 22),
        **NHWC,
    ),
    *pool("6.2", "unknown activation", X, None, kernel_shape=[2], activation="Bogus", **NHWC),
    *pool(
        "6.2",
        "ONNX's own domain has no activation",
        X,
        None,
        kernel_shape=[2],
        activation="Relu",
        opsets=(1, 22),
    ),
    *pool(
        "6.2",
        "channels-first without an opset takes an activation",
        X,
        block((1, 3, 1), [0, 0, 0]),
        kernel_shape=[1],
        activation="Relu",
    ),
    *pool(
        "6.2",
        "activation is optional",
        X,
        block((1, 2, 1), [-1, -1]),
        kernel_shape=[2],
        opsets=(None, 1),
        **NHWC,
    ),
]

LAYOUT: list[Case] = [
    *deconv(
        "6.3",
        "W stays channels-first",
        DECONV_X,
        DECONV_W,
        block((1, 3, 2), [201, -199, 413, -387, 30, 60]),
        opsets=(None, 1, 11),
        activation="LeakyRelu",
        activation_params=[0.5],
        **NHWC,
    ),
    *pool(
        "6.4",
        "Indices are channels-first",
        block((1, 4, 4, 2), 1),
        block((1, 2, 2, 2), [11, 12, 15, 16, 27, 28, 31, 32]),
        block((1, 2, 2, 2), [5, 7, 13, 15, 21, 23, 29, 31], np.int64),
        kernel_shape=[2, 2],
        strides=[2, 2],
        opsets=(None, 8, 12),
        **NHWC,
    ),
    *unpool(
        "6.4",
        "unpooling restores",
        block((1, 2, 2, 2), [11, 12, 15, 16, 27, 28, 31, 32]),
        block((1, 2, 2, 2), [5, 7, 13, 15, 21, 23, 29, 31], np.int64),
        block((1, 4, 4, 2), [i if i in (11, 12, 15, 16, 27, 28, 31, 32) else 0 for i in range(1, 33)]),
        kernel_shape=[2, 2],
        strides=[2, 2],
        opsets=(None, 9, 11),
        **NHWC,
    ),
    *unpool(
        "6.4",
        "I channels-last",
        block((1, 3, 2), 1),
        block((1, 3, 2), 0, np.int64),
        None,
        kernel_shape=[1],
        **NHWC,
    ),
    *unpool(
        "6.4",
        "output_shape is N C D",
        block((1, 1, 2), [1, 2]),
        block((1, 2, 1), [1, 3], np.int64),
        block((1, 3, 2), [0, 2, 1, 0, 0, 0]),
        np.array([1, 2, 3], np.int64),
        kernel_shape=[2],
        **NHWC,
    ),
    *pool(
        "6.6",
        "ceil as in ONNX",
        block((1, 5, 1), 1),
        block((1, 3, 1), [1, 3, 5]),
        block((1, 1, 3), [0, 2, 4], np.int64),
        kernel_shape=[2],
        strides=[2],
        pads=[1, 1],
        ceil_mode=1,
        opsets=(None, 10, 12),
        **NHWC,
    ),
    *[
        case
        for kind in (np.int8, np.uint8)
        for case in pool(
            "6.6",
            f"as NhwcMaxPool in {np.dtype(kind).name}",
            block((1, 3, 3, 2), 0, kind),
            block((1, 2, 2, 2), [8, 9, 10, 11, 14, 15, 16, 17], kind),
            kernel_shape=[2, 2],
            opsets=(None, 12),
            **NHWC,
        )
    ],
]

ACTIVATIONS: list[Case] = [
    *pool(
        "6.5",
        "Relu leaves Indices",
        X,
        block((1, 2, 1), [0, 0]),
        block((1, 1, 2), [1, 1], np.int64),
        kernel_shape=[2],
        activation="Relu",
        opsets=(None, 8, 12),
        **NHWC,
    ),
    *unpool(
        "6.5",
        "Clip reaches the zeros",
        block((1, 1, 1), [2]),
        block((1, 1, 1), [1], np.int64),
        block((1, 2, 1), [0.5, 1.5]),
        kernel_shape=[2],
        strides=[2],
        activation="Clip",
        activation_params=[0.5, 1.5],
        opsets=(None, 9, 11),
        **NHWC,
    ),
    *unpool(
        "6.5",
        "Sigmoid of zero",
        block((1, 1, 1), [0]),
        block((1, 1, 1), [1], np.int64),
        block((1, 2, 1), [0.5, 0.5]),
        kernel_shape=[2],
        strides=[2],
        activation="Sigmoid",
        **NHWC,
    ),
    *active("Relu", [0, 4, NAN], "Relu"),
    *active("Relu as XNNPACK writes it", [0, 4, NAN], "Relu", [0.0, INF]),
    *active("Relu up to the largest float32", [0, 4, NAN], "Relu", [0.0, FLOAT32_MAX]),
    *active("Relu with other bounds", [], "Relu", [0.0, 6.0]),
    *active("Relu with one parameter", [], "Relu", [0.0]),
    *active("LeakyRelu", [-1.5, 4, NAN], "LeakyRelu", [0.5]),
    *active("LeakyRelu without alpha", [], "LeakyRelu"),
    *active("Tanh", [np.tanh(-3), np.tanh(4), NAN], "Tanh", tolerance=1e-6),
    *active("Sigmoid", [1 / (1 + np.exp(3)), 1 / (1 + np.exp(-4)), NAN], "Sigmoid", tolerance=1e-6),
    *active("Sigmoid with a parameter", [], "Sigmoid", [1.0]),
    *active("Clip", [-1, 2, NAN], "Clip", [-1.0, 2.0]),
    *active("Clip with min above max", [-1, -1, NAN], "Clip", [2.0, -1.0]),
    *active("Clip without bounds", [], "Clip"),
    *active("HardSigmoid", [0, 1, NAN], "HardSigmoid", [0.25, 0.5]),
    *active("HardSigmoid with one parameter", [], "HardSigmoid", [0.25]),
    *active("HardSwish", [0, 4, NAN], "HardSwish"),
    *active("lower case", [], "relu"),
    *active("empty name", [], ""),
    *active("Silu", [], "Silu"),
    *pool(
        "6.5",
        "HardSwish of -inf",
        block((1, 1, 1), [-INF]),
        block((1, 1, 1), [NAN]),
        kernel_shape=[1],
        activation="HardSwish",
        **NHWC,
    ),
    *pool("6.5", "parameters without activation", X, None, kernel_shape=[2], activation_params=[0.5], **NHWC),
    *pool(
        "6.5",
        "int8 Relu",
        block((1, 2, 1), [-3, 4], np.int8),
        block((1, 2, 1), [0, 4], np.int8),
        kernel_shape=[1],
        activation="Relu",
        opsets=(None, 12),
        **NHWC,
    ),
    *pool(
        "6.5",
        "int8 Clip saturates",
        block((1, 2, 1), [-3, 4], np.int8),
        block((1, 2, 1), [-3, 2], np.int8),
        kernel_shape=[1],
        activation="Clip",
        activation_params=[-1000.0, 2.0],
        **NHWC,
    ),
    *pool(
        "6.5",
        "int8 Tanh",
        block((1, 2, 1), [-3, 4], np.int8),
        None,
        kernel_shape=[1],
        activation="Tanh",
        **NHWC,
    ),
    *deconv(
        "6.5",
        "activation after bias",
        PAIR,
        block((1, 1, 1), [1]),
        block((1, 2, 1), [0, 5]),
        [1],
        activation="Relu",
        **NHWC,
    ),
    *deconv(
        "6.5",
        "activation before the rounding",
        block((1, 1, 2), [2048, 2], np.float16),
        block((2, 1, 1), [-1, -1], np.float16),
        block((1, 1, 1), [-1537], np.float16),
        np.array([1], np.float16),
        kind=np.float16,
        activation="LeakyRelu",
        activation_params=[0.75],
        **NHWC,
    ),
]

CASES = VERSIONS + LAYOUT + ACTIVATIONS
