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
from tests.support.runners import FUNCTION, ORACLE, RUNNERS, Runner, assert_outputs


def pairs() -> Iterator[Any]:
    """Runners and rules. The first tier has all rules by the function, and some by the session and the backend."""
    for runner in RUNNERS:
        for number, rule in enumerate(sorted({case.rule for case in CASES})):
            is_first = runner is FUNCTION or (runner is not ORACLE and number % 4 == 0)
            marks = () if is_first else pytest.mark.slow
            yield pytest.param(runner, rule, id=f"{runner.name}-{rule}-", marks=marks)


@pytest.mark.parametrize(("runner", "rule"), [*pairs()])
def test_examples_of_a_rule(runner: Runner, rule: str) -> None:
    """The runner gives what the examples of a rule of the contract say, or refuses what they refuse."""
    cases = [case for case in CASES if case.rule == rule and runner.can_express(case)]
    assert {case.name: fault for case in cases if (fault := difference(runner, case))} == {}


def difference(runner: Runner, case: Case) -> str:
    """What the runner does otherwise than the example says, or ""."""
    refusal = oracle.Refused if runner is ORACLE else unpool.UnpoolError
    try:
        got = runner.run(case)
        assert case.expected is not None, f"{case.name} is refused, got {got}"
        assert_outputs(case, got, case.expected)
    except AssertionError as error:
        return str(error)
    except refusal as error:
        said = case.expected is None and (runner is ORACLE or re.match(rf"{case.operator}\b", str(error)))
        return "" if said else f"{type(error).__name__}: {error}"
    return ""


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
