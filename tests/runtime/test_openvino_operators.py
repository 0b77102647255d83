"""Every operator that OpenVINO may run gives there what onnx's own tests of it expect."""

import warnings
from functools import cache

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import unpool
from tests.support.node_suite import as_array
from unpool.runtime.graph.nodes import domain
from unpool.runtime.plan.openvino_fit import OPERATORS

ASKED = ["OpenVINO", "CPUExecutionProvider"]


@cache
def cases():
    """The tests of one node each, by its operator."""
    from onnx.backend.test.loader import load_model_tests

    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # some of onnx's own generators overflow
        for case in load_model_tests(kind="node"):
            nodes = case.model.graph.node
            if len(nodes) == 1 and not domain(nodes[0]):
                found.setdefault(nodes[0].op_type, []).append(case)
    return found


def as_in_networks(case):
    """The model with axes, sizes and the like as constants, and its data made by a node before; and its feed."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    node, feed = model.graph.node[0], {}
    fed = zip(list(model.graph.input), map(as_array, case.data_sets[0][0]), strict=True)
    del model.graph.input[:]
    for value, array in fed:
        if array.dtype == np.int64 and array.ndim <= 1:
            model.graph.initializer.append(numpy_helper.from_array(array, value.name))
            continue
        model.graph.input.append(value)
        feed[value.name] = array
        if value.type.tensor_type.elem_type == TensorProto.FLOAT and len(model.graph.node) == 1:
            names = ["made" if name == value.name else name for name in node.input]
            del node.input[:]
            node.input.extend(names)
            model.graph.initializer.append(numpy_helper.from_array(np.float32(1), "one"))
            model.graph.node.insert(0, helper.make_node("Mul", [value.name, "one"], ["made"]))
            node = model.graph.node[1]
    return model, feed


def holds_tensors(case):
    """Whether its inputs are tensors, all of them."""
    return all(value.type.HasField("tensor_type") for value in case.model.graph.input)


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore:onnxruntime refuses")  # of types and opsets that neither of both takes
@pytest.mark.parametrize("operator", sorted(OPERATORS - {"ConstantOfShape", "Equal", "Gather", "Pad"}))
def test_results_are_those_of_onnx(operator):
    """Of the tests of an operator at least one runs on OpenVINO, and all that do give what is expected."""
    from onnx.backend.test.runner import Runner

    count = 0
    for case in filter(holds_tensors, cases()[operator]):
        model, feed = as_in_networks(case)
        session = unpool.InferenceSession(model, providers=ASKED, threads=1)
        if "openvino" not in {record.runner for record in session.plan}:
            continue
        count += 1
        wanted = [as_array(value) for value in case.data_sets[0][1]]
        Runner.assert_similar_outputs(wanted, session.run(None, feed), rtol=case.rtol, atol=case.atol)
    assert count
