"""Makes OrtValues of strings and of sequences, which only a session of onnxruntime can: by models of one node."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import helper

from unpool.errors import UnsupportedError
from unpool.runtime.backends.ort_options import FATAL
from unpool.runtime.backends.ort_values import to_ort_value
from unpool.runtime.graph import shapes
from unpool.runtime.graph.errors import short_message
from unpool.runtime.requirements import onnxruntime

_OPSET, _IR = 14, 8
_MAX_MODELS = 64
_STRINGS = "tensor(string)"


def make_ort_value(value: Any, type_name: str, where: str) -> onnxruntime.OrtValue:
    """The value as an independent OrtValue, which shares the memory of an array of numbers.

    Args:
        value: an output of `run`.
        type_name: onnxruntime's name of the type.
        where: the name of the value in errors.

    Raises:
        UnsupportedError: there is no such OrtValue.

    >>> make_ort_value([np.ones(2)], "seq(tensor(double))", "output 'y'").is_tensor_sequence()
    True
    """
    if isinstance(value, np.ndarray) and value.dtype != object:
        return to_ort_value(value)
    try:
        return _strings(value) if type_name == _STRINGS else _sequence(value, type_name)
    except Exception as error:
        raise UnsupportedError(
            f"{where}: an OrtValue cannot hold a value of {type_name}: {short_message(error)}. Use run."
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
    feed = {f"x{number}": make_ort_value(value, element, "") for number, value in enumerate(values)}
    session = _session("SequenceConstruct" if feed else "SequenceEmpty", element, len(feed))
    return session.run_with_ort_values(["y"], feed)[0]


@lru_cache(_MAX_MODELS)
def _session(operator: str, element: str, count: int) -> onnxruntime.InferenceSession:
    """A session of one node with `count` inputs of the type `element`."""
    type_ = shapes.parse_type(element)
    if type_ is None:
        raise ValueError("no type of ONNX")
    inputs = [helper.make_value_info(f"x{number}", type_) for number in range(count)]
    node = helper.make_node(operator, [value.name for value in inputs], ["y"])
    if operator == "SequenceEmpty":
        node.attribute.append(helper.make_attribute("dtype", type_.tensor_type.elem_type))
    graph = helper.make_graph([node], "factory", inputs, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, FATAL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
