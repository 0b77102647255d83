"""Every example of the contract through every runner."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import unpool
from tests import oracle
from tests.cases.contract import CASES, RULES
from tests.cases.record import Case
from tests.support.runners import FUNCTION, RUNNERS, Runner, assert_outputs


def pairs() -> Iterator[Any]:
    """Runners and cases; the first tier has a third of those of the function, and one of each rule of every runner."""
    for runner in RUNNERS:
        rules: set[str] = set()
        for number, case in enumerate(filter(runner.can_express, CASES)):
            is_first = case.rule not in rules or (runner is FUNCTION and number % 3 == 0)
            rules.add(case.rule)
            yield pytest.param(
                runner, case, id=f"{runner.name}-{case.name}", marks=() if is_first else pytest.mark.slow
            )


@pytest.mark.parametrize(("runner", "case"), [*pairs()])
def test_example(runner: Runner, case: Case) -> None:
    """The runner gives what the contract's example says, or refuses what it refuses."""
    if case.expected is not None:
        assert_outputs(case, runner.run(case), case.expected)
        return
    refusal = oracle.Refused if runner.name == "oracle" else unpool.UnpoolError
    with pytest.raises(refusal) as caught:
        runner.run(case)
    if runner.name != "oracle":
        assert re.match(rf"{case.operator}\b", str(caught.value)), str(caught.value)


def test_names_are_unique() -> None:
    """Two cases never hide behind one name."""
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))


def test_every_rule_has_an_example() -> None:
    """Each numbered rule of the contract has at least one case."""
    assert set(RULES) <= {case.rule for case in CASES}


def test_pytorch_indices_convert() -> None:
    """Adding (n·C + c)·H·W turns torch's per-plane indices into the standard's, and back."""
    planes = np.array([[[[5, 7], [13, 15]]] * 2], np.int64)
    whole = planes + np.array([0, 16]).reshape(1, 2, 1, 1)
    assert np.array_equal(unpool.to_onnx_indices(planes, (4, 4)), whole)
    assert np.array_equal(unpool.to_torch_indices(whole, (4, 4)), planes)
