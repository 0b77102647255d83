"""The table of facts about operators, against onnx's schemas and its inference of shapes."""

import numpy as np
import onnx
import pytest
from onnx import helper, shape_inference

from unpool.graph.operators import FACTS, OperatorFact, having

SIZES = (2, 3, 5, 7)
ATTRIBUTES = {"Cast": {"to": 1}, "BitShift": {"direction": "LEFT"}, "LRN": {"size": 3}}
BOOLS = ("And", "Not", "Or", "Xor")
OTHER_TYPES = {**dict.fromkeys(BOOLS, np.bool_), "BitShift": np.uint8, "DequantizeLinear": np.int8}


def inferred(operator, sizes):
    """The shapes of the outputs of a node with inputs of these sizes."""
    names = [f"x{place}" for place in range(len(sizes))]
    kind = OTHER_TYPES.get(operator, np.int32 if operator.startswith("Bitwise") else np.float32)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape)
        for name, shape in zip(names, sizes, strict=True)
    ]
    if operator == "Where":
        inputs[0].type.tensor_type.elem_type = onnx.TensorProto.BOOL
    if operator == "DequantizeLinear":
        inputs[1].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    node = helper.make_node(operator, names, ["y"], **ATTRIBUTES.get(operator, {}))
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", onnx.defs.onnx_opset_version())])
    (y,) = shape_inference.infer_shapes(model, strict_mode=True).graph.output
    return tuple(axis.dim_value for axis in y.type.tensor_type.shape.dim)


def schema(operator):
    return onnx.defs.get_schema(operator, onnx.defs.onnx_opset_version())


def test_every_name_is_an_operator():
    """Of ONNX's own domain."""
    assert {name for name in FACTS if not onnx.defs.has(name)} == set()


@pytest.mark.parametrize("operator", sorted(having(OperatorFact.KEEPS_SHAPE)))
def test_the_shape_is_kept(operator):
    """The output has the shape of the first input, the other ones those of parameters."""
    others = ((3,) if operator in ("BatchNormalization", "InstanceNormalization") else ()) * schema(operator).min_input
    sizes = [SIZES, *[others] * (schema(operator).min_input - 1)]
    sizes = [size[:1] if operator.endswith("Normalization") and place else size for place, size in enumerate(sizes)]
    assert inferred(operator, sizes) == SIZES


@pytest.mark.parametrize("operator", sorted(having(OperatorFact.BROADCASTING) - having(OperatorFact.KEEPS_SHAPE)))
def test_inputs_are_broadcast(operator):
    """Inputs of fewer axes and of one element along an axis."""
    sizes = [(5, 1), (2, 3, 1, 7), (1, 1)][: max(2, schema(operator).min_input)]
    assert inferred(operator, sizes) == SIZES
