"""Section 3 of the contract from 3.10 on: what is in a window, Indices, attribute values."""

import ml_dtypes
import numpy as np

from tests.cases.record import Case, block, pool

INF = np.inf
NAN = np.nan
EVERY = (None, 1, 8, 10, 11, 12, 22)
INDEXED = (None, 8, 10, 11, 12, 22)
CEILED = (None, 10, 11, 12, 22)
EMPTY = np.zeros((1, 1, 0), np.float32)


def smallest_nans(kind: type, values: list[int]) -> np.ndarray:
    """A plane of numbers with -1 replaced by the negative NaN that is next to infinity."""
    plane = np.array(values, kind)
    bits = plane.view(f"u{plane.itemsize}")
    bits[plane == -1] = np.array(-np.inf, kind).view(bits.dtype) + 1
    return plane[np.newaxis, np.newaxis]


def odd_nans(kind: type, values: list[int]) -> np.ndarray:
    """A plane of numbers with -1 and -2 replaced by negative NaNs, the second of a larger payload."""
    plane = np.array(values, kind)
    bits = plane.view(f"u{plane.itemsize}")
    quiet = np.array(-np.nan, kind).view(bits.dtype)
    bits[plane == -1] = quiet
    bits[np.array(values) == -2] = quiet | 3
    return plane[np.newaxis, np.newaxis]


WINDOWS: list[Case] = [
    *pool(
        "3.10",
        "only padding",
        [1, 2, 3],
        [-INF, 1, 2, 3, 3, -INF],
        [-1, 0, 1, 2, 2, -1],
        kernel_shape=[2],
        pads=[2, 2],
        opsets=INDEXED,
    ),
    *pool(
        "3.10",
        "straddled by dilation",
        [5, 6],
        [-INF],
        [-1],
        kernel_shape=[2],
        dilations=[3],
        pads=[1, 1],
        opsets=CEILED,
    ),
    *pool(
        "3.10",
        "ort refuses beside auto_pad too",
        [1, 2, 3],
        None,
        kernel_shape=[2],
        pads=[2, 0],
        auto_pad="VALID",
        compat="ort",
    ),
    *pool("3.10", "ort refuses", [1, 2, 3], None, kernel_shape=[2], pads=[2, 2], compat="ort"),
    *pool("3.10", "int8", [5], [-128, 5, -128], [-1, 0, -1], kernel_shape=[1], pads=[1, 1], kind=np.int8),
    *pool("3.10", "uint8", [5], [0, 5, 0], [-1, 0, -1], kernel_shape=[1], pads=[1, 1], kind=np.uint8),
    *pool(
        "3.11",
        "all -inf",
        [-INF, -INF, -INF, 1],
        [-INF, -INF, 1, 1],
        [0, 0, 3, 3],
        kernel_shape=[3],
        pads=[1, 1],
        opsets=INDEXED,
    ),
    *pool("3.11", "all -inf side by side", [-INF] * 4, [-INF] * 2, [0, 2], kernel_shape=[2], strides=[2]),
    *pool(
        "3.11",
        "all -inf without Indices",
        [-INF] * 3 + [1],
        [-INF, -INF, 1, 1],
        kernel_shape=[3],
        pads=[1, 1],
        opsets=EVERY,
    ),
    *pool(
        "3.11",
        "all -128",
        [-128] * 4,
        [-128] * 4,
        [0, 0, 1, 2],
        kernel_shape=[3],
        pads=[1, 1],
        kind=np.int8,
        opsets=(None, 12, 22),
    ),
    *pool(
        "3.12",
        "NaN wins, the first one",
        [NAN, 1, 2, 3, NAN, 0, -1],
        [NAN, 3, NAN, NAN, NAN],
        [0, 3, 4, 4, 4],
        kernel_shape=[3],
        opsets=INDEXED,
    ),
    *pool(
        "3.12",
        "NaN without Indices",
        [NAN, 1, 2, 3, NAN, 0, -1],
        [NAN, 3, NAN, NAN, NAN],
        kernel_shape=[3],
        opsets=EVERY,
    ),
    *[
        case
        for kind in (np.float16, np.float64, ml_dtypes.bfloat16)
        for case in pool(
            "3.12",
            f"NaN in {np.dtype(kind).name}",
            [NAN, 1, 2, 3, NAN, 0, -1],
            [NAN, 3, NAN, NAN, NAN],
            [0, 3, 4, 4, 4],
            kernel_shape=[3],
            kind=kind,
        )
    ],
    *[
        case
        for kind in (np.float16, np.float32, np.float64, ml_dtypes.bfloat16)
        for case in pool(
            "3.12",
            f"sign and payload of NaN stay in {np.dtype(kind).name}",
            odd_nans(kind, [-1, -2, 1, 0, -2]),
            odd_nans(kind, [-1, -2, 1, -2]),
            [0, 1, 2, 4],
            kernel_shape=[2],
        )
    ],
    *[
        case
        for kind in (np.float16, np.float32, np.float64, ml_dtypes.bfloat16)
        for case in pool(
            "3.12",
            f"NaN next to infinity in {np.dtype(kind).name}",
            smallest_nans(kind, [2, -1, 1, 0]),
            smallest_nans(kind, [-1, -1, 1]),
            [1, 1, 2],
            kernel_shape=[2],
        )
    ],
    *pool("3.13", "first of a tie", [1, 1, 1, 1], [1, 1], [0, 1], kernel_shape=[3], opsets=INDEXED),
    *pool(
        "3.13",
        "window order is row-major for storage_order 1",
        [[1, 1, 1]] * 3,
        [[1, 1], [1, 1]],
        [[0, 3], [1, 4]],
        kernel_shape=[2, 2],
        storage_order=1,
        opsets=INDEXED,
    ),
    *pool("3.13", "-0 comes first", [-0.0, 0.0, -0.0], [-0.0], [0], kernel_shape=[3], opsets=INDEXED),
    *pool("3.13", "-0 comes first in float16", [-0.0, 0.0, -0.0], [-0.0], [0], kernel_shape=[3], kind=np.float16),
]

INDICES: list[Case] = [
    *pool(
        "3.14",
        "order 1 in two planes",
        block((1, 2, 2, 3), 0),
        block((1, 2, 2, 3), 0),
        block((1, 2, 2, 3), [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11], np.int64),
        kernel_shape=[1, 1],
        storage_order=1,
        opsets=INDEXED,
    ),
    *pool(
        "3.14",
        "order 1 in three axes",
        block((1, 1, 2, 2, 2), 0),
        block((1, 1, 2, 2, 2), 0),
        block((1, 1, 2, 2, 2), [0, 4, 2, 6, 1, 5, 3, 7], np.int64),
        kernel_shape=[1, 1, 1],
        storage_order=1,
    ),
    *pool(
        "3.14",
        "the official example",
        block((1, 1, 5, 5), 1),
        [[7, 9], [17, 19]],
        [[6, 16], [8, 18]],
        kernel_shape=[2, 2],
        strides=[2, 2],
        storage_order=1,
        opsets=INDEXED,
    ),
    *pool("3.14", "order 1 in one axis", [1, 3, 2], [3, 3], [1, 1], kernel_shape=[2], storage_order=1),
    *pool("3.14", "storage_order 2", [1, 3, 2], None, kernel_shape=[2], storage_order=2, opsets=INDEXED),
    *pool("3.14", "storage_order before 8", [1, 3, 2], None, kernel_shape=[2], storage_order=1, opsets=(1, 7)),
    *pool(
        "3.15",
        "no sample",
        block((0, 2, 4), []),
        block((0, 2, 3), []),
        block((0, 2, 3), [], np.int64),
        kernel_shape=[2],
    ),
    *pool(
        "3.15",
        "no channel",
        block((2, 0, 4), []),
        block((2, 0, 3), []),
        block((2, 0, 3), [], np.int64),
        kernel_shape=[2],
    ),
    *pool("3.15", "no cell", EMPTY, [-INF], [-1], kernel_shape=[2], pads=[1, 1]),
    *pool("3.15", "rank 2", block((2, 3), 0), None, kernel_shape=[]),
    *pool(
        "3.15",
        "four spatial axes",
        block((1, 1, 1, 2, 1, 3), 0),
        block((1, 1, 1, 1, 1, 2), [4, 5]),
        block((1, 1, 1, 1, 1, 2), [4, 5], np.int64),
        kernel_shape=[1, 2, 1, 2],
    ),
]

VALUES: list[Case] = [
    *pool("3.16", "short kernel_shape", [[1, 2], [3, 4]], None, kernel_shape=[2], opsets=EVERY),
    *pool("3.16", "long strides", [1, 2], None, kernel_shape=[2], strides=[1, 1]),
    *pool("3.16", "short pads", [[1, 2], [3, 4]], None, kernel_shape=[2, 2], pads=[1, 1]),
    *pool("3.16", "long dilations", [1, 2], None, kernel_shape=[2], dilations=[1, 1]),
    *pool("3.16", "kernel 0", [1, 2], None, kernel_shape=[0]),
    *pool("3.16", "the largest stride", [[1, 2]], [[1, 2]], [[0, 1]], kernel_shape=[1, 1], strides=[2**31 - 1, 1]),
    *pool("3.16", "one window under the largest stride", [1, 2], [1], [0], kernel_shape=[1], strides=[2**31 - 1]),
    *pool("3.16", "a larger stride", [[1, 2]], None, kernel_shape=[1, 1], strides=[2**31, 1]),
    *pool("3.16", "long kernel_shape", [1, 2], None, kernel_shape=[1, 1]),
    *pool("3.16", "stride 0", [1, 2], None, kernel_shape=[2], strides=[0]),
    *pool("3.16", "dilation 0", [1, 2], None, kernel_shape=[2], dilations=[0]),
    *pool("3.16", "negative pads", [1, 2], None, kernel_shape=[2], pads=[-1, 1]),
    *pool("3.16", "empty strides", [1, 2], None, kernel_shape=[2], strides=[]),
    *pool("3.16", "empty pads", [1, 2], None, kernel_shape=[2], pads=[]),
    *pool("3.16", "empty dilations", [1, 2], None, kernel_shape=[2], dilations=[]),
    *pool("3.16", "absent strides are 1", [1, 3, 2], [3, 3], kernel_shape=[2], opsets=EVERY),
    *pool("3.17", "Indices are int64", [1, 3, 2], [3, 3], [1, 1], kernel_shape=[2], opsets=INDEXED),
    *pool("3.17", "no Indices before 8", [1, 3, 2], None, kernel_shape=[2], outputs=2, opsets=(1, 7)),
    *pool(
        "3.18",
        "a Indices carry the plane",
        block((1, 2, 3), [1, 3, 2, 6, 5, 4]),
        block((1, 2, 2), [3, 3, 6, 5]),
        block((1, 2, 2), [1, 1, 3, 4], np.int64),
        kernel_shape=[2],
    ),
    *pool("3.18", "a uneven pads", [3, 1, 2], [3, 2, 2, -INF], [0, 2, 2, -1], kernel_shape=[2], pads=[0, 2]),
    *pool(
        "3.18",
        "a storage_order where the size stays",
        [[1, 4], [2, 3]],
        [[4, 4], [3, 3]],
        [[2, 2], [3, 3]],
        kernel_shape=[2, 2],
        pads=[0, 0, 1, 1],
        storage_order=1,
    ),
    *pool("3.18", "a an all-NaN window", [NAN, NAN, 1], [NAN, NAN], [0, 1], kernel_shape=[2]),
    *pool("3.18", "a SAME with kernel 1", [2, 1], [2, 1], [0, 1], kernel_shape=[1], auto_pad="SAME_UPPER"),
    *pool(
        "3.18",
        "b LOWER keeps the last window",
        [1, 2, 3],
        [1, 3],
        [0, 2],
        kernel_shape=[2],
        strides=[2],
        auto_pad="SAME_LOWER",
    ),
]

CASES = WINDOWS + INDICES + VALUES
