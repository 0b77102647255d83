"""Cases that matter for telling runtimes apart; the rules themselves have theirs in tests/cases/contract.py."""

import numpy as np

from tests.cases.record import Case, block, pool, unpool

INF = np.inf
NAN = np.nan
EMPTY_NAMES = ("an empty name is an input left out",)

UNPOOL: list[Case] = [
    *unpool("1.5", EMPTY_NAMES[0], [3], [1], [0, 3], kernel_shape=[2], opsets=(9, 11, 22)),
]

PADDED: list[Case] = [
    *pool(
        "3.4",
        "ceil adds nothing to SAME with a remainder",
        [1, 2, 3, 4, 5],
        [1, 4],
        kernel_shape=[1],
        strides=[3],
        auto_pad="SAME_UPPER",
        ceil_mode=1,
        opsets=(10, 11, 12, 22),
    ),
    *pool(
        "3.5",
        "LOWER with a stride",
        [1, 2, 3, 4],
        [2, 4],
        kernel_shape=[3],
        strides=[2],
        auto_pad="SAME_LOWER",
        opsets=(1, 8, 10, 11, 12, 22),
    ),
    *pool(
        "3.8",
        "pads beside VALID with a stride",
        [1, 2, 3, 4],
        None,
        kernel_shape=[2],
        strides=[2],
        pads=[1, 0],
        auto_pad="VALID",
        opsets=(1, 12, 22),
    ),
]

VALUES: list[Case] = [
    *pool(
        "3.10",
        "straddled in the second plane",
        block((1, 2, 2), 5),
        block((1, 2, 1), [-INF, -INF]),
        block((1, 2, 1), [-1, -1], np.int64),
        kernel_shape=[2],
        dilations=[3],
        pads=[1, 1],
        opsets=(12, 22),
    ),
    *pool(
        "3.10",
        "straddled in two axes",
        [[5, 6, 7], [8, 9, 1]],
        [[-INF, -INF]],
        [[-1, -1]],
        kernel_shape=[2, 1],
        dilations=[3, 1],
        strides=[1, 2],
        pads=[1, 0, 1, 0],
        opsets=(12, 22),
    ),
    *pool(
        "3.10",
        "straddled in int8",
        [5, 6],
        [-128],
        [-1],
        kernel_shape=[2],
        dilations=[3],
        pads=[1, 1],
        kind=np.int8,
        opsets=(12, 22),
    ),
    *pool("3.11", "all -inf in float16", [-INF] * 3, [-INF], kernel_shape=[3], kind=np.float16, opsets=(12, 22)),
    *pool("3.11", "all -inf in float64", [-INF] * 3, [-INF], kernel_shape=[3], kind=np.float64, opsets=(12, 22)),
    *pool("3.12", "two NaN in a window", [NAN, 1, NAN], [NAN], [0], kernel_shape=[3], opsets=(8, 12, 22)),
    *pool("3.12", "all NaN without Indices", [NAN] * 3, [NAN], kernel_shape=[3], opsets=(1, 12, 22)),
    *pool(
        "3.12",
        "all NaN without Indices in float16",
        [NAN] * 3,
        [NAN],
        kernel_shape=[3],
        kind=np.float16,
        opsets=(12, 22),
    ),
    *pool(
        "3.14",
        "order 1 in three uneven axes",
        block((1, 1, 1, 2, 3), 0),
        block((1, 1, 1, 2, 3), 0),
        block((1, 1, 1, 2, 3), [0, 2, 4, 1, 3, 5], np.int64),
        kernel_shape=[1, 1, 1],
        storage_order=1,
        opsets=(8, 12, 22),
    ),
]

MORE: list[Case] = UNPOOL + PADDED + VALUES
