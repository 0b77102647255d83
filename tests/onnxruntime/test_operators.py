"""The contract in a session of onnxruntime's own: the operators of the library, with every version, type and layout."""

import ctypes
import math

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

import unpool.onnxruntime
from tests.cases.contract import CASES
from tests.cases.generated import judged
from tests.cases.record import Case
from tests.support.runners import NEWEST_OPSET, Outputs, assert_outputs, feeds_of, is_model, model_of

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


def to_value(x: np.ndarray) -> onnxruntime.OrtValue:
    """A tensor of onnxruntime, which takes bfloat16 from no array of NumPy."""
    if x.dtype != ml_dtypes.bfloat16:
        return onnxruntime.OrtValue.ortvalue_from_numpy(x)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(x.view(np.uint16), TensorProto.BFLOAT16)


def to_numpy(value: onnxruntime.OrtValue) -> np.ndarray:
    """A copy of a tensor of onnxruntime."""
    if value.element_type() != TensorProto.BFLOAT16:
        return value.numpy()
    shape = value.shape()
    bits = (ctypes.c_uint16 * math.prod(shape)).from_address(value.data_ptr())
    return np.array(bits, np.uint16).reshape(shape).view(ml_dtypes.bfloat16)


def can_express(case: Case) -> bool:
    """True if a model can say the case: not a default that is given to a version without the attribute."""
    is_default = {"storage_order", "ceil_mode"} & case.attributes.keys() and (case.opset or NEWEST_OPSET) < 8
    return is_model(case) and not is_default


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
    wrong = [problem(case, case.expected) for case in CASES if case.operator == operator and can_express(case)]
    assert not any(wrong), "\n\n".join(filter(None, wrong))


@pytest.mark.sample(4)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_agrees_with_the_oracle(chunk):
    """Outputs and refusals are the oracle's, in random cases."""
    wrong = []
    for seed in range(chunk * PER_CHUNK, (chunk + 1) * PER_CHUNK):
        case, expected, _ = judged(seed)
        if can_express(case):
            wrong.append(problem(case, expected))
    assert not any(wrong), "\n\n".join(filter(None, wrong))
