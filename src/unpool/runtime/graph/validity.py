"""The check that a model is valid: onnx's checker, and rules that this checker lacks."""

import math
from collections.abc import Iterator

import onnx
from onnx import helper

from unpool.errors import ModelError
from unpool.runtime.graph.errors import LONGEST
from unpool.runtime.graph.graph import FIRST_IR_WITH_DEFAULTS, has_type
from unpool.runtime.graph.nodes import subgraphs, with_subgraph_nodes
from unpool.runtime.graph.weights import LARGEST_MESSAGE, folder_of, is_large, is_too_large, strip_initializers

LARGEST_ELEMENT = 16
"""Bytes of an element of the largest type of numbers."""

_ELEMENTS = frozenset(onnx.TensorProto.DataType.values())
_NUMBERS = _ELEMENTS - {onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING}
_LISTS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")


def check_model(model: onnx.ModelProto) -> None:
    """Check the model by onnx's checker.

    Before IR version 4 every initializer had to be an input too. No runtime insists on it, and neither does this check.

    Raises:
        ModelError: the model breaks a rule of the standard; the message is mostly the checker's.
    """
    _require_elements(model.graph)
    skeleton = strip_initializers(model)
    if skeleton.ir_version == FIRST_IR_WITH_DEFAULTS - 1:
        skeleton.ir_version = FIRST_IR_WITH_DEFAULTS
    for value in skeleton.graph.output:
        if not has_type(value):
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT  # the checker wants one, onnxruntime infers it
    for value in (*skeleton.graph.input, *skeleton.graph.output):
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.SetInParent()  # the checker wants one, no runtime does
    try:
        onnx.checker.check_model(skeleton)
        for tensor in model.graph.initializer:
            if is_large(tensor) and folder_of(tensor) is None and not _is_plain(tensor) and _is_message(tensor):
                onnx.checker.check_tensor(tensor)
    except Exception as error:
        raise ModelError(f"model: expected a valid ONNX model, got: {_short(error)}. Export it again.") from error


def _is_plain(tensor: onnx.TensorProto) -> bool:
    """True if a tensor is all its numbers as bytes, of which the checker has nothing to say but copies it."""
    if tensor.data_type not in _NUMBERS or any(len(getattr(tensor, name)) for name in _LISTS):
        return False
    size = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return bool(len(tensor.raw_data) == math.prod(tensor.dims) * size)


def _is_message(tensor: onnx.TensorProto) -> bool:
    """True if a tensor fits into a message; to count its bytes takes as long as to write it, so few are counted."""
    return LARGEST_ELEMENT * math.prod(tensor.dims) < LARGEST_MESSAGE or not is_too_large(tensor)


def _require_elements(graph: onnx.GraphProto) -> None:
    """Refuse types, of the graph and of its subgraphs, that are made of element types unknown to the standard."""
    inner = (subgraph for node in with_subgraph_nodes(graph.node) for _, subgraph in subgraphs(node))
    for one in (graph, *inner):
        for value in (*one.input, *one.output, *one.value_info):
            unknown = set(_elements(value.type)) - _ELEMENTS
            if unknown:
                raise ModelError(
                    f"model: value {value.name!r}: expected an element type of ONNX, from 0 to {max(_ELEMENTS)}, "
                    f"got {unknown.pop()}. Export it again."
                )


def _elements(type_: onnx.TypeProto) -> Iterator[int]:
    kind = type_.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        yield getattr(type_, kind).elem_type
    elif kind in ("sequence_type", "optional_type"):
        yield from _elements(getattr(type_, kind).elem_type)
    elif kind == "map_type":
        yield type_.map_type.key_type
        yield from _elements(type_.map_type.value_type)


def _short(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(line[:LONGEST] for line in lines[:3]).rstrip(".") or type(error).__name__
