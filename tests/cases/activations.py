"""6.5 of the contract: the activations of the domain com.ms.internal.nhwc."""

import numpy as np

from tests.cases.record import Case, block, deconv, pool, unpool

INF = np.inf
NAN = np.nan
NHWC = {"layout": "NHWC"}
X = block((1, 3, 1), [-3, -1, -2])
PAIR = block((1, 2, 1), [-3, 4])
FLOAT32_MAX = float(np.finfo(np.float32).max)


def active(why: str, values: list[float], name: str, params: list[float] | None = None, **given: object) -> list[Case]:
    """A kernel-1 pool of [-3, 4, NaN] under an activation; no values is a refusal."""
    x = block((1, 3, 1), [-3, 4, NAN])
    y = block((1, 3, 1), values) if values else None
    if params is not None:
        given["activation_params"] = params
    return pool("6.5", why, x, y, kernel_shape=[1], activation=name, **NHWC, **given)


CASES: list[Case] = [
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
        "HardSwish between its bends",
        block((1, 1, 1), [1.5]),
        block((1, 1, 1), [1.125]),
        kernel_shape=[1],
        activation="HardSwish",
        tolerance=1e-6,
        **NHWC,
    ),
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
        "int8 Clip rounds its bounds",
        block((1, 2, 1), [-3, 4], np.int8),
        block((1, 2, 1), [-3, 3], np.int8),
        kernel_shape=[1],
        activation="Clip",
        activation_params=[-2.6, 2.6],
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
    *pool(
        "6.5",
        "int8 LeakyRelu",
        block((1, 2, 1), [-3, 4], np.int8),
        None,
        kernel_shape=[1],
        activation="LeakyRelu",
        activation_params=[0.5],
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
