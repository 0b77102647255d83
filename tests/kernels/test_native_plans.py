"""Plans that compiled functions make are those that Python makes, byte for byte."""

from collections import Counter

import pytest

from tools.campaigns.native_plans import trial


@pytest.mark.slow
def test_plans_of_pools() -> None:
    """Random pools, which reach every kernel, have the same plans, and what Python refuses has none."""
    found = [trial(number) for number in range(500)]
    assert [wrong for _, wrong in found if wrong] == []
    tally = Counter(what for what, _ in found)
    assert tally["equal"] > 200
    assert tally["refused"] > 50
