"""Section 4 of the contract: ConvTranspose."""

import numpy as np

from tests.cases.record import Case, block, deconv

INF = np.inf
NAN = np.nan
EVERY = (None, 1, 11, 22)
LATER = (None, 11, 22)
X = [1, 2, 3]
W = [1, 10, 100]
FULL = [1, 10, 102, 20, 203, 30, 300]
LOW = FULL[:6]
HIGH = FULL[1:]
EMPTY = np.zeros((1, 1, 0), np.float32)

SIZES: list[Case] = [
    *deconv("4.1", "no pads", X, W, FULL, strides=[2], opsets=EVERY),
    *deconv("4.1", "pads at the end", X, W, [1, 10, 102, 20], strides=[2], pads=[0, 3], opsets=EVERY),
    *deconv("4.1", "pads at the begin", X, W, [20, 203, 30, 300], strides=[2], pads=[3, 0], opsets=EVERY),
    *deconv("4.1", "negative size", X, W, None, strides=[2], pads=[4, 4], opsets=EVERY),
    *deconv("4.1", "empty", X, W, EMPTY, strides=[2], pads=[3, 4], opsets=EVERY),
    *deconv("4.1", "negative pads", X, W, None, strides=[2], pads=[-1, 0], opsets=EVERY),
    *deconv(
        "4.2",
        "VALID keeps output_padding",
        X,
        W,
        [*FULL, 0],
        strides=[2],
        output_padding=[1],
        auto_pad="VALID",
        opsets=EVERY,
    ),
    *deconv("4.2", "pads beside VALID", X, W, None, strides=[2], pads=[1, 0], auto_pad="VALID", opsets=EVERY),
    *deconv("4.2", "pads beside SAME", X, W, None, strides=[2], pads=[1, 0], auto_pad="SAME_UPPER"),
    *deconv("4.2", "ort too", X, W, None, strides=[2], pads=[1, 0], auto_pad="VALID", compat="ort"),
    *deconv("4.2", "zero pads beside SAME", X, W, LOW, strides=[2], pads=[0, 0], auto_pad="SAME_UPPER"),
    *deconv("4.2", "unknown auto_pad", X, W, None, strides=[2], auto_pad="SAME", opsets=EVERY),
    *deconv("4.3", "UPPER", X, W, LOW, strides=[2], auto_pad="SAME_UPPER", opsets=EVERY),
    *deconv("4.3", "LOWER", X, W, HIGH, strides=[2], auto_pad="SAME_LOWER", opsets=EVERY),
    *deconv(
        "4.4",
        "UPPER cuts the odd cell at the end",
        [1],
        [1, 2, 3, 4],
        [2],
        auto_pad="SAME_UPPER",
        opsets=EVERY,
    ),
    *deconv(
        "4.4",
        "LOWER cuts the odd cell at the begin",
        [1],
        [1, 2, 3, 4],
        [3],
        auto_pad="SAME_LOWER",
        opsets=EVERY,
    ),
    *[
        case
        for side in ("SAME_UPPER", "SAME_LOWER")
        for case in [
            *deconv(
                "4.5",
                f"{side} is L·s",
                X,
                [1],
                [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0],
                strides=[4],
                auto_pad=side,
                opsets=EVERY,
            ),
            *deconv(
                "4.5",
                f"ort {side} is shorter",
                X,
                [1],
                [1, 0, 0, 0, 2, 0, 0, 0, 3],
                strides=[4],
                auto_pad=side,
                compat="ort",
            ),
        ]
    ],
    *deconv(
        "4.6",
        "output_padding enters the total",
        X,
        W,
        HIGH,
        strides=[2],
        output_padding=[1],
        auto_pad="SAME_UPPER",
        opsets=EVERY,
    ),
]


def odd_sides() -> list[Case]:
    """4.7: the side of the odd cell for every auto_pad and version."""
    cases = []
    for mode, new in {"NOTSET": HIGH, "SAME_UPPER": LOW, "SAME_LOWER": HIGH, "VALID": HIGH}.items():
        given = {"strides": [2], "output_shape": [6], "auto_pad": mode}
        cases += deconv("4.7", mode, X, W, new, opsets=LATER, **given)
        cases += deconv("4.7", f"{mode} swapped", X, W, LOW if new is HIGH else HIGH, opsets=(1, 10), **given)
        cases += deconv("4.7", f"{mode} ort never swaps", X, W, new, opsets=(1, 11), compat="ort", **given)
    return cases


OUTPUT_SHAPE: list[Case] = [
    *odd_sides(),
    *deconv("4.8", "beyond one more cell", X, W, [*FULL, 0, 0, 0], strides=[2], output_shape=[10], opsets=EVERY),
    *deconv("4.8", "one cell", X, W, [*FULL, 0], strides=[2], output_shape=[8], opsets=EVERY),
    *deconv(
        "4.8",
        "SAME too",
        X,
        W,
        [*FULL, 0, 0, 0],
        strides=[2],
        output_shape=[10],
        auto_pad="SAME_UPPER",
        opsets=EVERY,
    ),
    *deconv(
        "4.8",
        "bias fills the extension",
        X,
        W,
        [8, 17, 109, 27, 210, 37, 307, 7],
        [7],
        strides=[2],
        output_shape=[8],
    ),
    *deconv(
        "4.9",
        "output_padding joins the total",
        X,
        W,
        [*HIGH, 0],
        strides=[2],
        output_shape=[7],
        output_padding=[1],
        opsets=LATER,
    ),
    *deconv(
        "4.9",
        "output_padding with UPPER",
        X,
        W,
        FULL,
        strides=[2],
        output_shape=[7],
        output_padding=[1],
        auto_pad="SAME_UPPER",
        opsets=LATER,
    ),
    *deconv("4.9", "pads are ignored", X, W, HIGH, strides=[2], output_shape=[6], pads=[0, 1], opsets=LATER),
    *deconv("4.10", "with N and M", X, W, HIGH, strides=[2], output_shape=[1, 1, 6], opsets=LATER),
    *deconv("4.10", "with wrong N and M", X, W, None, strides=[2], output_shape=[9, 9, 6], opsets=EVERY),
    *deconv("4.10", "one entry too many", X, W, None, strides=[2], output_shape=[1, 6]),
    *deconv("4.10", "negative entry", X, W, None, strides=[2], output_shape=[-6]),
    *deconv("4.10", "zero entry", X, W, EMPTY, strides=[2], output_shape=[0], opsets=EVERY),
]

PADDING: list[Case] = [
    *deconv(
        "4.11",
        "between stride and dilation",
        X,
        [1, 10],
        [1, 0, 2, 10, 3, 20, 0, 30, 0, 0],
        strides=[2],
        dilations=[3],
        output_padding=[2],
        opsets=EVERY,
    ),
    *deconv(
        "4.11",
        "ort stays below the stride",
        X,
        [1, 10],
        None,
        strides=[2],
        dilations=[3],
        output_padding=[2],
        compat="ort",
        opsets=EVERY,
    ),
    *deconv("4.11", "reveals real data", X, W, HIGH, strides=[2], pads=[1, 1], output_padding=[1], opsets=EVERY),
    *deconv("4.11", "reaches the stride", X, W, None, strides=[2], output_padding=[2], opsets=LATER),
    *deconv("4.11", "free in version 1", X, W, [*FULL, 0, 0], strides=[2], output_padding=[2], opsets=(1, 10)),
    *deconv("4.11", "negative", X, W, None, strides=[2], output_padding=[-1], opsets=EVERY),
    *deconv("4.11", "two values for one axis", X, W, None, strides=[2], output_padding=[1, 1]),
]

CHANNELS: list[Case] = [
    *deconv(
        "4.12",
        "two groups",
        block((1, 4, 2), 1),
        block((4, 2, 2), 1),
        block((1, 4, 3), [16, 42, 28, 24, 62, 40, 136, 306, 172, 160, 358, 200]),
        group=2,
        opsets=EVERY,
    ),
    *deconv("4.12", "group 0", X, W, None, group=0),
    *deconv("4.12", "group does not divide C", block((1, 3, 2), 1), block((3, 1, 2), 1), None, group=2),
    *deconv("4.12", "W has another C", block((1, 2, 2), 1), block((3, 1, 2), 1), None),
    *deconv(
        "4.13",
        "bias in the gaps",
        [1, 2],
        [1],
        [8, 7, 7, 9, 7, 7],
        [7],
        strides=[3],
        output_padding=[2],
        opsets=EVERY,
    ),
    *deconv("4.13", "one value per output channel", [1], block((1, 2, 1), 1), block((1, 2, 1), [6, 8]), [5, 6]),
    *deconv("4.13", "bias of another length", [1, 2], [1], None, [7, 7], strides=[3]),
    *deconv("4.13", "bias of rank 2", [1, 2], [1], None, np.ones((1, 1), np.float32), strides=[3]),
    *deconv("4.14", "kernel_shape agrees", X, W, FULL, strides=[2], kernel_shape=[3], opsets=EVERY),
    *deconv("4.14", "kernel_shape differs", X, W, None, strides=[2], kernel_shape=[2], opsets=EVERY),
    *deconv("4.14", "kernel_shape too long", X, W, None, strides=[2], kernel_shape=[3, 3]),
]

REST: list[Case] = [
    *deconv("4.15", "no cell", EMPTY, block((1, 1, 2), [1, 1]), [0], strides=[1], opsets=EVERY),
    *deconv(
        "4.15",
        "no channel",
        np.zeros((1, 0, 3), np.float32),
        np.zeros((0, 2, 2), np.float32),
        block((1, 2, 4), [5, 5, 5, 5, 6, 6, 6, 6]),
        [5, 6],
        opsets=EVERY,
    ),
    *deconv(
        "4.15",
        "no sample",
        np.zeros((0, 1, 3), np.float32),
        block((1, 2, 2), 1),
        np.zeros((0, 2, 4), np.float32),
    ),
    *deconv(
        "4.15",
        "no output channel",
        block((1, 1, 3), 1),
        np.zeros((1, 0, 2), np.float32),
        np.zeros((1, 0, 4), np.float32),
    ),
    *deconv("4.15", "kernel 0", X, np.zeros((1, 1, 0), np.float32), None),
    *deconv(
        "4.16",
        "four spatial axes",
        block((1, 1, 1, 1, 1, 2), [1, 2]),
        block((1, 1, 1, 1, 1, 2), [1, 10]),
        block((1, 1, 1, 1, 1, 3), [1, 12, 20]),
    ),
    *deconv("4.16", "rank 2", block((2, 3), 0), block((2, 3), 0), None),
    *deconv("4.16", "W of another rank", X, block((1, 1, 1, 3), W), None),
    *deconv("4.17", "infinity times a kernel zero", [1, INF], [0, 1], [0, 1, NAN, INF], strides=[2], opsets=EVERY),
    *deconv("4.17", "infinite weight meets no inserted zero", [1, 2], [INF, 1], [INF, 1, INF, 2], strides=[2]),
    *deconv(
        "4.17",
        "infinite weights meet no padding",
        np.ones((1, 1, 5, 5), np.float32),
        np.full((1, 4, 2, 2), INF, np.float32),
        np.full((1, 4, 6, 6), INF, np.float32),
    ),
    *deconv("4.17", "gaps are exactly zero", [INF, INF], [INF], [INF, 0, 0, INF], strides=[3]),
]

CASES = SIZES + OUTPUT_SHAPE + PADDING + CHANNELS + REST
