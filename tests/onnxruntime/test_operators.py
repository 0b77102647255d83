"""The contract in a session of onnxruntime's own: the operators of the library, with every version, type and layout.

Each case runs twice: by its name in the standard, with the settings of the session, and as a node of the domain
`unpool`, whose attributes say all of it. A random case that the standard accepts also runs in a session of unpool.
"""

import onnx
import pytest

from tests.cases.contract import CASES
from tests.cases.generated import judged
from tests.cases.record import Case
from tests.support.library_sessions import session_of
from tests.support.ort_values import run_values
from tests.support.runners import SESSION, Outputs, assert_outputs, feeds_of, is_explicit_model, model_of

pytestmark = pytest.mark.usefixtures("pools_without_python")

CHUNKS = 8
PER_CHUNK = 120


DOMAINS = ("standard", "unpool")


def standard(case: Case) -> tuple[onnx.ModelProto, dict[str, object]]:
    """A model of the single node, and how its session registers the library."""
    return model_of(case), {"compat": case.compat, "index_space": case.index_space, "opset": case.opset}


def own(case: Case) -> tuple[onnx.ModelProto, dict[str, object]]:
    """As `standard`, of a node of the domain `unpool`, in a session in which the standard's are onnxruntime's."""
    model = model_of(case)
    (node,) = model.graph.node
    node.domain = "unpool"
    given = {"opset": case.opset, "channels_last": int(case.layout == "NHWC"), "compat": case.compat}
    if case.operator == "MaxUnpool":
        given["index_space"] = case.index_space
    node.attribute.extend(onnx.helper.make_attribute(name, value) for name, value in given.items() if value is not None)
    del model.opset_import[:]
    model.opset_import.extend([onnx.helper.make_opsetid("", 22), onnx.helper.make_opsetid("unpool", 1)])
    return model, {"domains": "unpool"}


def has(case: Case, domain: str) -> bool:
    """True if the domain has what the contract says about a case: `unpool` has the newest versions in both layouts."""
    return is_explicit_model(case) and not (domain == "unpool" and case.layout == "NHWC" and (case.opset or 0) >= 22)


def run(case: Case, domain: str) -> Outputs:
    """The outputs of a model of the single node, in a session of onnxruntime that has registered the library."""
    if domain == SESSION.name:
        return SESSION.run(case)
    model, settings = standard(case) if domain == "standard" else own(case)
    return run_values(session_of(model, **settings), feeds_of(case))


def problem(case: Case, expected: Outputs | None, domain: str) -> str:
    """What is wrong with the session's outputs, or its refusal; empty if nothing is."""
    try:
        got = run(case, domain)
    except Exception as error:
        return "" if expected is None and case.operator in str(error) else f"{case.name}: {error}"
    if expected is None:
        return f"{case.name}: accepted"
    try:
        assert_outputs(case, got, expected)
    except AssertionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("operator", ["MaxPool", "MaxUnpool", "ConvTranspose"])
def test_examples_of_the_contract(operator, domain):
    """The session gives what an example says, or refuses what it refuses."""
    cases = [case for case in CASES if case.operator == operator and has(case, domain)]
    wrong = [problem(case, case.expected, domain) for case in cases]
    assert not any(wrong), "\n\n".join(filter(None, wrong))


@pytest.mark.sample(4)
@pytest.mark.parametrize("domain", [*DOMAINS, SESSION.name])
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_agrees_with_the_oracle(chunk, domain):
    """Outputs and refusals are the oracle's, in random cases."""
    wrong = []
    for seed in range(chunk * PER_CHUNK, (chunk + 1) * PER_CHUNK):
        case, expected = judged(seed)
        if has(case, domain) and not (domain == SESSION.name and expected is None):  # which it leaves to onnxruntime
            wrong.append(problem(case, expected, domain))
    assert not any(wrong), "\n\n".join(filter(None, wrong))
