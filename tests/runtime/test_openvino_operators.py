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

INDEXED = ("GatherElements", "GatherND", "ScatterElements", "ScatterND")  # run there only with constant indices
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
        if array.dtype == np.int64 and (array.ndim <= 1 or node.op_type in INDEXED):
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
@pytest.mark.parametrize("operator", sorted(OPERATORS - {"ConstantOfShape", "Einsum", "Equal", "Pad"}))
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


@pytest.mark.peers
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bij,bjk->bik", ([2, 3, 4], [2, 4, 5])),
        ("bhid,bhjd->bhij", ([1, 2, 3, 4], [1, 2, 5, 4])),
        ("ij->ji", ([3, 4],)),
        ("ij->i", ([3, 4],)),
        ("ij,ij", ([3, 4], [3, 4])),
        ("...ii->...i", ([2, 3, 3],)),
        ("bn,anm,bm->ba", ([2, 3], [4, 3, 5], [2, 5])),
        ("bcxd,bcdkw->bckxw", ([1, 2, 6, 3], [1, 2, 3, 4, 2])),
    ],
)
def test_einsum_is_that_of_numpy(equation, shapes):
    """The tests in onnx are of float64, which stays with onnxruntime."""
    rng = np.random.default_rng(1)
    feed = {f"x{number}": rng.standard_normal(shape, np.float32) for number, shape in enumerate(shapes)}
    wanted = np.einsum(equation, *feed.values())
    nodes = [helper.make_node("Neg", [name], [f"n{name}"]) for name in feed]
    nodes.append(helper.make_node("Einsum", [f"n{name}" for name in feed], ["y"], equation=equation))
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in feed.items()]
    graph = helper.make_graph(
        nodes, "einsum", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, wanted.shape)]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = unpool.InferenceSession(model, providers=ASKED, threads=1)
    assert {record.runner for record in session.plan} == {"openvino"}
    np.testing.assert_allclose(session.run(None, feed)[0], (-1) ** len(shapes) * wanted, rtol=2e-5, atol=2e-5)
