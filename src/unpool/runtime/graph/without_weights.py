"""Takes the large weights out of a model before onnx's C++ functions see it: they copy all of it, and stop at 2 GiB."""

import math
from typing import Any

import onnx
from onnx import helper

LARGE = 1024  # elements


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A skeleton: a copy of the model in which large initializers became inputs of the same type and shape."""
    skeleton = onnx.ModelProto()
    copy_fields(model, skeleton, leave="graph")
    copy_fields(model.graph, skeleton.graph, leave="initializer")
    inputs = {value.name for value in model.graph.input}
    for tensor in model.graph.initializer:
        if not is_large(tensor):
            skeleton.graph.initializer.append(tensor)
        elif tensor.name not in inputs:
            skeleton.graph.input.append(as_input(tensor))
    return skeleton


def with_weights_of(skeleton: onnx.ModelProto, model: onnx.ModelProto) -> onnx.ModelProto:
    """The skeleton, changed in place, with the inputs and large initializers of the model that it was made from."""
    inputs = {value.name for value in model.graph.input}
    kept = [value for value in skeleton.graph.input if value.name in inputs]
    del skeleton.graph.input[:]
    skeleton.graph.input.extend(kept)
    skeleton.graph.initializer.extend(tensor for tensor in model.graph.initializer if is_large(tensor))
    return skeleton


def is_large(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor is left out of a skeleton."""
    return bool(math.prod(tensor.dims) > LARGE)


def as_input(tensor: onnx.TensorProto) -> onnx.ValueInfoProto:
    """An input of the type and shape of a tensor."""
    return helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))


def copy_fields(source: Any, target: Any, leave: str) -> None:
    """Copy all fields of a message but one."""
    for description, value in source.ListFields():
        if description.name == leave:
            continue
        if isinstance(value, (int, str)):
            setattr(target, description.name, value)
        else:
            getattr(target, description.name).extend(value)
