"""OrtValues of strings and of sequences, which only onnxruntime can make: in a model of one node."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import helper

from unpool.errors import UnsupportedError
from unpool.runtime.graph import type_names
from unpool.runtime.graph.boundary import brief
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.ort_values import to_ort_value

_OPSET, _IR = 14, 8
_MOST_MODELS = 64
_QUIET = 4
_STRINGS = "tensor(string)"


def ort_value_as(value: Any, type_name: str, where: str) -> onnxruntime.OrtValue:
    """The value as an OrtValue that lives on its own; arrays of numbers share their memory.

    Args:
        value: what `run` gives for such a type.
        type_name: onnxruntime's name of the type.
        where: what the message names.

    Raises:
        UnsupportedError: there is no such OrtValue.

    >>> ort_value_as([np.ones(2)], "seq(tensor(double))", "output 'y'").is_tensor_sequence()
    True
    """
    if isinstance(value, np.ndarray) and value.dtype != object:
        return to_ort_value(value)
    try:
        return _strings(value) if type_name == _STRINGS else _sequence(value, type_name)
    except Exception as error:
        raise UnsupportedError(
            f"{where}: expected a value that an OrtValue holds, got one of {type_name}: {brief(error)}. Use run."
        ) from error


def _strings(value: Any) -> onnxruntime.OrtValue:
    session = _session("Identity", _STRINGS, 1)
    binding = session.io_binding()
    binding.bind_cpu_input("x0", value)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    return binding.get_outputs()[0]


def _sequence(values: Sequence[Any], type_name: str) -> onnxruntime.OrtValue:
    if not type_name.startswith("seq(tensor("):
        raise ValueError("neither a tensor nor a sequence of tensors")
    element = type_name.removeprefix("seq(").removesuffix(")")
    feed = {f"x{number}": ort_value_as(one, element, "") for number, one in enumerate(values)}
    session = _session("SequenceConstruct" if feed else "SequenceEmpty", element, len(feed))
    return session.run_with_ort_values(["y"], feed)[0]


@lru_cache(_MOST_MODELS)
def _session(operator: str, element: str, count: int) -> onnxruntime.InferenceSession:
    """A session of one node with so many inputs of the type `element`."""
    type_ = type_names.parse(element)
    if type_ is None:
        raise ValueError("no type of ONNX")
    inputs = [helper.make_value_info(f"x{number}", type_) for number in range(count)]
    node = helper.make_node(operator, [one.name for one in inputs], ["y"])
    if operator == "SequenceEmpty":
        node.attribute.append(helper.make_attribute("dtype", type_.tensor_type.elem_type))
    graph = helper.make_graph([node], "made", inputs, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, _QUIET
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
