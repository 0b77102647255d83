"""Section 6 of the contract: the domain com.ms.internal.nhwc."""

import ml_dtypes
import numpy as np

from tests.cases.record import Case, block, deconv, pool, unpool

NHWC = {"layout": "NHWC"}
X = block((1, 3, 1), [-3, -1, -2])
DECONV_X = block((1, 2, 2), 1)
DECONV_W = block((2, 2, 2), [1, 10, 2, 20, 100, 0, -200, 0])


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
    *deconv(
        "6.3",
        "two spatial axes keep their order",
        block((1, 2, 2, 1), 1),
        block((1, 1, 1, 2), [1, 10]),
        block((1, 2, 3, 1), [1, 12, 20, 3, 34, 40]),
        opsets=(None, 1, 11),
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
    *pool(
        "6.6",
        "storage_order as in ONNX",
        block((1, 2, 2, 1), 1),
        block((1, 2, 2, 1), 1),
        block((1, 1, 2, 2), [0, 2, 1, 3], np.int64),
        kernel_shape=[1, 1],
        storage_order=1,
        opsets=(None, 8, 12),
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

CASES = VERSIONS + LAYOUT
