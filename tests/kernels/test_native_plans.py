"""Plans that compiled functions make are those that Python makes, byte for byte."""

from collections import Counter

import pytest

from tools.campaigns import native_conv_transpose
from tools.campaigns.native_plans import trial


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
