"""Sections 5, 7 and 8 of the contract: versions and types, PyTorch's convention, numerics."""

import ml_dtypes
import numpy as np

from tests.cases.record import Case, block, deconv, pool, unpool

BF16 = ml_dtypes.bfloat16
F16 = np.float16
FLOATS = (np.float16, np.float32, np.float64)


def accepted() -> list[Case]:
    """Every float type in every version, on a value that each of them holds."""
    cases = []
    for kind in (*FLOATS, BF16):
        name = np.dtype(kind).name
        new = kind is BF16
        opsets = (22, 23) if new else (1, 7, 8, 9, 10, 11, 12, 13, 21, 22)
        cases += pool("5", f"MaxPool {name}", [1, 3, 2], [3, 3], kernel_shape=[2], kind=kind, opsets=opsets)
        cases += deconv("5", f"ConvTranspose {name}", [1, 2], [3], [3, 6], kind=kind, opsets=opsets)
        opsets = tuple(opset for opset in opsets if opset >= 9)
        cases += unpool("5", f"MaxUnpool {name}", [3], [1], [0, 3], kernel_shape=[2], kind=kind, opsets=opsets)
    return cases


REFUSED: list[Case] = [
    *pool("5", "Indices at opset 7", [1, 3, 2], None, kernel_shape=[2], outputs=2, opsets=(7,)),
    *pool("5", "int8 before 12", [1, 3, 2], None, kernel_shape=[2], kind=np.int8, opsets=(1, 8, 10, 11)),
    *pool("5", "int8 from 12", [1, 3, 2], [3, 3], kernel_shape=[2], kind=np.int8, opsets=(12, 13, 22)),
    *pool("5", "uint8 from 12", [1, 3, 2], [3, 3], kernel_shape=[2], kind=np.uint8, opsets=(12, 13, 22)),
    *pool("5", "int32", [1, 3, 2], None, kernel_shape=[2], kind=np.int32, opsets=(None, 12, 22)),
    *pool("5", "bfloat16 before 22", [1, 3, 2], None, kernel_shape=[2], kind=BF16, opsets=(12, 21)),
    *pool("5", "opset 9 is version 8", [1, 3, 2], None, kernel_shape=[2], ceil_mode=1, opsets=(9,)),
    *pool("5", "dilations at 8", [1, 3, 2], None, kernel_shape=[2], dilations=[1], opsets=(1, 8)),
    *unpool("5", "MaxUnpool below 9", [3], [1], None, kernel_shape=[2], opsets=(8,)),
    *unpool("5", "MaxUnpool int8", [3], [1], None, kernel_shape=[2], kind=np.int8, opsets=(None, 22)),
    *unpool("5", "MaxUnpool bfloat16 at 21", [3], [1], None, kernel_shape=[2], kind=BF16, opsets=(9, 21)),
    *unpool("5", "int32 indices", [3], block((1, 1, 1), [1], np.int32), None, kernel_shape=[2], opsets=(None, 22)),
    *deconv("5", "ConvTranspose bfloat16 at 21", [1, 2], [3], None, kind=BF16, opsets=(1, 21)),
    *deconv("5", "ConvTranspose int8", [1, 2], [3], None, kind=np.int8, opsets=(None, 22)),
    *deconv("5", "mixed X and W", [1, 2], block((1, 1, 1), [3], np.float64), None, opsets=(None, 22)),
    *deconv("5", "mixed X and B", [1, 2], [3], None, np.array([1], np.float64), opsets=(None, 22)),
]

PYTORCH: list[Case] = [
    *pool(
        "7",
        "the second plane counts on",
        block((1, 2, 4, 4), 0),
        block((1, 2, 2, 2), [5, 7, 13, 15, 21, 23, 29, 31]),
        block((1, 2, 2, 2), [5, 7, 13, 15, 21, 23, 29, 31], np.int64),
        kernel_shape=[2, 2],
        strides=[2, 2],
    ),
]

NUMERICS: list[Case] = [
    *deconv(
        "8.1",
        "one rounding, bias included",
        block((1, 2, 1), [2048, 1], F16),
        block((2, 1, 1), [1, 1], F16),
        block((1, 1, 1), [2050], F16),
        np.array([0.75], F16),
        kind=F16,
        opsets=(None, 1, 11, 22),
    ),
    *deconv(
        "8.1",
        "no overflow on the way",
        block((1, 3, 1), [40000, 40000, -40000], F16),
        block((3, 1, 1), [1, 1, 1], F16),
        block((1, 1, 1), [40000], F16),
        kind=F16,
        opsets=(None, 1, 11, 22),
    ),
    *deconv("8.1", "overflow at the rounding", [40000], [2], [np.inf], kind=F16),
    *deconv(
        "8.1",
        "bfloat16 rounds once",
        block((1, 2, 1), [256, 1], BF16),
        block((2, 1, 1), [1, 1], BF16),
        block((1, 1, 1), [258], BF16),
        np.array([0.75], BF16),
        kind=BF16,
        opsets=(None, 22),
    ),
    *deconv("8.1", "float64 keeps 53 bits", [2.0**52], [1], [2.0**52 + 1], [1], kind=np.float64),
    *deconv("8.1", "float32 integers are exact", [2**23], [1], [2**23 + 1], [1]),
    *pool(
        "8.2",
        "bfloat16",
        [1, 2, 4, 3],
        [2, 4],
        [1, 2],
        kernel_shape=[2],
        strides=[2],
        kind=BF16,
        opsets=(None, 22),
    ),
    *pool(
        "8.2",
        "float64 is not narrowed",
        [1, 1 + 2.0**-52],
        [1 + 2.0**-52],
        [1],
        kernel_shape=[2],
        kind=np.float64,
    ),
]

CASES = accepted() + REFUSED + PYTORCH + NUMERICS
