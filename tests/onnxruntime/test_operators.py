"""The contract in a session of onnxruntime's own: the operators of the library, with every version, type and layout."""

import onnxruntime
import pytest

import unpool.onnxruntime
from tests.cases.contract import CASES
from tests.cases.generated import judged
from tests.cases.record import Case
from tests.support.ort_values import to_numpy, to_value
from tests.support.runners import Outputs, assert_outputs, feeds_of, is_explicit_model, model_of

CHUNKS = 8
PER_CHUNK = 120


def run(case: Case) -> Outputs:
    """The outputs of a model of the single node, in a session of onnxruntime that has registered the library."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # a refusal is logged, too
    unpool.onnxruntime.register(options, compat=case.compat, index_space=case.index_space, opset=case.opset)
    session = onnxruntime.InferenceSession(model_of(case).SerializeToString(), options)
    names = [each.name for each in session.get_outputs()]
    return tuple(map(to_numpy, session.run_with_ort_values(names, {k: to_value(x) for k, x in feeds_of(case).items()})))


def problem(case: Case, expected: Outputs | None) -> str:
    """What is wrong with the session's outputs, or its refusal; empty if nothing is."""
    try:
        got = run(case)
    except Exception as error:
        return "" if expected is None and case.operator in str(error) else f"{case.name}: {error}"
    if expected is None:
        return f"{case.name}: accepted"
    try:
        assert_outputs(case, got, expected)
    except AssertionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("operator", ["MaxPool", "MaxUnpool", "ConvTranspose"])
def test_examples_of_the_contract(operator):
    """The session gives what an example says, or refuses what it refuses."""
    wrong = [problem(case, case.expected) for case in CASES if case.operator == operator and is_explicit_model(case)]
    assert not any(wrong), "\n\n".join(filter(None, wrong))


@pytest.mark.sample(4)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_agrees_with_the_oracle(chunk):
    """Outputs and refusals are the oracle's, in random cases."""
    wrong = []
    for seed in range(chunk * PER_CHUNK, (chunk + 1) * PER_CHUNK):
        case, expected, _ = judged(seed)
        if is_explicit_model(case):
            wrong.append(problem(case, expected))
    assert not any(wrong), "\n\n".join(filter(None, wrong))
