"""A model without its large weights: onnx's C++ functions copy a whole model, and stop at 2 GiB."""

import math
from typing import Any

import onnx
from onnx import helper

LARGE = 1024  # elements


def lighten(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which large initializers are inputs of the same type and shape."""
    light = onnx.ModelProto()
    _copy_fields(model, light, leave="graph")
    _copy_fields(model.graph, light.graph, leave="initializer")
    inputs = {value.name for value in model.graph.input}
    for tensor in model.graph.initializer:
        if not is_large(tensor):
            light.graph.initializer.append(tensor)
        elif tensor.name not in inputs:
            light.graph.input.append(as_input(tensor))
    return light


def put_back(light: onnx.ModelProto, model: onnx.ModelProto) -> onnx.ModelProto:
    """`light` with the inputs and large initializers of the model that it was made from."""
    inputs = {value.name for value in model.graph.input}
    kept = [value for value in light.graph.input if value.name in inputs]
    del light.graph.input[:]
    light.graph.input.extend(kept)
    light.graph.initializer.extend(tensor for tensor in model.graph.initializer if is_large(tensor))
    return light


def is_large(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor is left out."""
    return bool(math.prod(tensor.dims) > LARGE)


def as_input(tensor: onnx.TensorProto) -> onnx.ValueInfoProto:
    """An input of the type and shape of a tensor."""
    return helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))


def _copy_fields(source: Any, target: Any, leave: str) -> None:
    for description, value in source.ListFields():
        if description.name == leave:
            continue
        if isinstance(value, (int, str)):
            setattr(target, description.name, value)
        else:
            getattr(target, description.name).extend(value)
