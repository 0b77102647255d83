"""Every example of the contract through every runner."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import unpool
from tests import oracle
from tests.cases.contract import CASES, RULES
from tests.cases.record import Case
from tests.support.runners import (
    BACKEND,
    FUNCTION,
    ORACLE,
    RUNNERS,
    SESSION,
    Runner,
    assert_outputs,
    feeds_of,
    model_of,
)


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
    """What the runner does otherwise than the example says, or "".

    What onnxruntime runs a session runs: a node that only the standard refuses has onnxruntime's results.
    """
    is_inside = runner in (SESSION, BACKEND)
    refusal = oracle.Refused if runner is ORACLE else Exception if is_inside else unpool.UnpoolError
    try:
        got = runner.run(case)
        expected = run_onnxruntime(case) if is_inside and case.expected is None else case.expected
        assert expected is not None, f"{case.name} is refused, got {got}"
        assert_outputs(case, got, expected)
    except AssertionError as error:
        return str(error)
    except refusal as error:
        said = case.expected is None and (runner is not FUNCTION or re.match(rf"{case.operator}\b", str(error)))
        return "" if said else f"{type(error).__name__}: {error}"
    return ""


def run_onnxruntime(case: Case) -> Any:
    """The results of onnxruntime alone."""
    return ort.InferenceSession(model_of(case).SerializeToString()).run(None, feeds_of(case))


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
