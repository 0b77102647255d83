"""A call as an ONNX model of one node, for the runtimes that read files."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.case import Call
from benchmarks.refusal import NotOffered

Arrays = Mapping[str, np.ndarray]
OPSET = 17
OPSET_OF_BFLOAT16 = 22
IR_VERSION = 10


def one_node(
    call: Call, operator: str, attributes: Mapping[str, Any], arrays: Arrays, outputs: Sequence[str], constant: str = ""
) -> onnx.ModelProto:
    """A model of one node.

    Args:
        call: gives the type.
        operator: ONNX's name.
        attributes: by ONNX's names.
        arrays: inputs by name, in ONNX's order.
        outputs: names; the second one is of int64.
        constant: an input that is a constant of the model.

    Raises:
        NotOffered: ONNX has no channels-last form of it.
    """
    if call.layout != "NCHW":
        raise NotOffered("ONNX's own domain is channels first")
    element = helper.np_dtype_to_tensor_dtype(call.numpy_type)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in arrays.items()
        if name != constant
    ]
    made = [
        helper.make_tensor_value_info(name, TensorProto.INT64 if number else element, None)
        for number, name in enumerate(outputs)
    ]
    constants = [numpy_helper.from_array(arrays[constant], constant)] if constant else []
    node = helper.make_node(operator, list(arrays), list(outputs), **attributes)
    graph = helper.make_graph([node], call.operator, inputs, made, constants)
    opset = OPSET_OF_BFLOAT16 if call.dtype == "bfloat16" else OPSET
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)
