"""Plans that compiled functions make are those that Python makes, byte for byte."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from tools.campaigns import native_conv_transpose
from tools.campaigns.native_plans import trial
from unpool.execute.conv_transpose import cost
from unpool.kernels.cpu.machine import libraries
from unpool.kernels.cpu.planner.conv_transpose import cost_conv_transpose
from unpool.operators import resolve

CALLS = [
    ((1, 64, 40, 40), (64, 64, 3, 3), {"pads": [1] * 4}, "float32"),  # Winograd's algorithm
    ((1, 32, 7, 40, 40), (32, 32, 3, 3, 3), {"pads": [1] * 6}, "float32"),  # the same in slices
    ((2, 8, 33, 17), (8, 6, 2, 5), {"strides": [2, 3], "dilations": [1, 2]}, "float64"),  # phases
    ((1, 8, 21), (8, 3, 4), {"group": 4, "strides": [2]}, "float32"),
    ((1, 16, 9, 9), (16, 12, 1, 1), {"strides": [2, 2]}, "float32"),  # gemm_1x1
    ((1, 2, 64, 64), (2, 1, 3, 3), {}, "float32"),  # direct
    ((1, 8, 1, 1), (8, 4, 9, 9), {}, "float32"),  # rows
    ((0, 3, 5), (3, 2, 3), {}, "float32"),  # nothing
]


@pytest.mark.slow
def test_plans_of_pools() -> None:
    """Random pools, which reach every kernel, have the same plans, and what Python refuses has none."""
    found = [trial(number) for number in range(500)]
    assert [wrong for _, wrong in found if wrong] == []
    tally = Counter(what for what, _ in found)
    assert tally["equal"] > 200
    assert tally["refused"] > 50


@pytest.mark.slow
def test_plans_of_transposed_convolutions() -> None:
    """Random ones have the same plans, of a run and of the packing of constant weights."""
    found = [native_conv_transpose.trial(number) for number in range(500)]
    assert [wrong for _, wrong in found if wrong] == []
    tally = Counter(what for what, _ in found)
    assert tally["equal"] > 250
    assert tally["refused"] > 50


@pytest.fixture(scope="module")
def compiled_cost() -> Callable[..., int]:
    """The machine code of `cost_conv_transpose`, shipped or compiled."""
    return cost_conv_transpose.entry_point((np.zeros(12, np.int64), np.empty(1), 0, 1))


@pytest.mark.parametrize(("x", "w", "attributes", "dtype"), CALLS)
@pytest.mark.sample(1)
def test_costs_of_transposed_convolutions(x, w, attributes, dtype, compiled_cost, monkeypatch) -> None:
    """A compiled function costs calls of every algorithm as Python does, so that a session need not import kernels."""
    spec = resolve.spec("ConvTranspose", attributes, opset=11)
    results = []
    for kernel in (compiled_cost, None):
        monkeypatch.setattr(libraries, "find_shipped", lambda _name, _args, found=kernel: found)
        results.append(cost.__wrapped__(spec, x, w, np.dtype(dtype)))
    assert results[0] == results[1]


def test_costs_of_huge_calls(compiled_cost, monkeypatch) -> None:
    """The cost of a call whose sizes exceed the compiled function's numbers is Python's."""
    spec = resolve.spec("ConvTranspose", {}, opset=11)
    monkeypatch.setattr(libraries, "find_shipped", lambda _name, _args: compiled_cost)
    assert cost.__wrapped__(spec, (1, 2, 1 << 40), (2, 4, 3), np.dtype("float32")) > 0
