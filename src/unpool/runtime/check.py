"""Is this a valid model? What onnx's checker says, and what it does not look at."""

from collections.abc import Iterator

import onnx

from unpool.errors import ModelError
from unpool.runtime.boundary import LONGEST
from unpool.runtime.graph import FIRST_IR_WITH_DEFAULTS
from unpool.runtime.light import is_large, lighten
from unpool.runtime.nodes import bodies, with_inner

LARGEST_MESSAGE = 2**31 - 1  # bytes; protobuf's limit
_ELEMENTS = frozenset(onnx.TensorProto.DataType.values())


def check(model: onnx.ModelProto) -> None:
    """Check the model by onnx's checker.

    Before IR version 4 every initializer was to be an input too; those that are none are accepted, as everywhere.

    Raises:
        ModelError: the model breaks a rule of the standard; the message is mostly the checker's.
    """
    _require_elements(model.graph)
    light = lighten(model)
    if light.ir_version == FIRST_IR_WITH_DEFAULTS - 1:
        light.ir_version = FIRST_IR_WITH_DEFAULTS
    for value in (*light.graph.input, *light.graph.output):
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.SetInParent()  # the checker wants one, no runtime does
    try:
        onnx.checker.check_model(light)
        for tensor in model.graph.initializer:
            if is_large(tensor) and tensor.ByteSize() <= LARGEST_MESSAGE:
                onnx.checker.check_tensor(tensor)
    except Exception as error:
        raise ModelError(f"model: expected a valid ONNX model, got: {_short(error)}. Export it again.") from error


def _require_elements(graph: onnx.GraphProto) -> None:
    """Every type that the graph or a body states is made of element types of the standard."""
    inner = (body for node in with_inner(graph.node) for _, body in bodies(node))
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
