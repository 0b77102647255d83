"""Transposed convolutions of few channels per group for the direct kernel, in small bands and pieces."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import numpy as np

from tests.cases import kernel_conv_transpose as conv_transpose_cases
from tests.cases.kernel_conv_transpose import ACTIVATIONS, GrowthCase, conv_transpose_case
from tests.cases.kernel_pools import eager_threads
from unpool import execute
from unpool.kernels.cpu.conv_transpose import direct
from unpool.kernels.cpu.tuning import DIRECT_CONV

STRIDES = (1, 2, 4, 8)


def direct_case(number: int) -> GrowthCase:
    """A case of `conv_transpose_case` with a stride that the kernel knows, in float32 and float64 in turn."""
    rng = np.random.default_rng([number, 2])
    case = conv_transpose_case(number)
    kind, stride = (np.float32, np.float64)[number % 2], STRIDES[number // 2 % 4]
    x, w, b = case.inputs
    window = [*w.shape[2:-1], int(rng.integers(1, 13))]
    attributes = {**case.attributes, "strides": [*case.attributes["strides"][:-1], stride]}
    reach = (window[-1] - 1) * attributes["dilations"][-1]
    whole = (x.shape[-1] - 1) * stride + reach + 1
    pads = list(attributes["pads"])
    for side in (len(window) - 1, -1):
        pads[side] = int(rng.integers(0, min(reach + 1, (whole + 1) // 2)))
    attributes["pads"] = pads
    w = rng.integers(-3, 4, (*w.shape[:2], *window)).astype(kind)
    ending = case.ending if number % 4 == 0 else ACTIVATIONS[number % 3]
    name = f"direct {number}: {np.dtype(kind).name} {list(x.shape)} {list(w.shape)} {attributes} {ending}"
    return replace(case, name=name, ending=ending, inputs=(x.astype(kind), w, b.astype(kind)), attributes=attributes)


@contextmanager
def forced(case: GrowthCase) -> Iterator[None]:
    """Compute with this kernel, in small bands and pieces, and split the work over threads."""
    steps = 64 if case.result_bytes == 1 else 2048
    with (
        conv_transpose_cases.chosen("direct"),
        patch.object(direct, "DIRECT_CONV", DIRECT_CONV._replace(panel=case.panel_bytes, steps=steps)),
        eager_threads(),
    ):
        execute.clear_cache()
        yield
    execute.clear_cache()


def difference(case: GrowthCase, threads: int) -> str | None:
    """As `growth_cases.difference`, with this kernel."""
    with patch.object(conv_transpose_cases, "forced", forced):
        return conv_transpose_cases.difference(case, threads)
