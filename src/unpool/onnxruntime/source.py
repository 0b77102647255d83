"""A model on its way into a session: read without its large weights, and handed to onnxruntime with them.

A graph takes kilobytes, and its weights may take gigabytes. Those in the file of the model itself stay there while
passes change the graph; at the end they are copied once, into what onnxruntime reads:

| weights | onnxruntime gets |
|---|---|
| up to 64 MiB in all | bytes |
| more | a file in memory, where the system has such files: bytes would be in the memory of the process, too |
| in data files of the model's own | bytes that name the files, and their folder |
| in a ModelProto of 2 GiB or more | bytes, and values that it copies: a message has no more bytes |

They are not left in the file: onnxruntime maps data files, and the process ends where another one shortens a mapped
file. onnxruntime has that fault with data files; a model in one file does not have it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import onnx
from onnx import helper

from unpool.graph import weights
from unpool.graph.load import ModelSource, load
from unpool.graph.peek import field_head
from unpool.onnxruntime.package import onnxruntime

LARGE_BYTES = 2**26
_VALUE = "unpool.value"  # the data file, which does not exist, of a weight that is a value
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9  # fields of ModelProto, GraphProto and TensorProto


def read(source: ModelSource, folder: str = "") -> onnx.ModelProto:
    """The model, whose large weights may be left in files; for bytes, their data files are in `folder`.

    Raises:
        UnpoolError: it cannot be read, or is no model.
    """
    return load(source, None, folder, leaves_weights=True, leaves_own_weights=True)


def data_folder(model: onnx.ModelProto) -> str | None:
    """The folder of the data files in which the model has weights; None if it has none there."""
    return next((weights.folder_of(tensor) for tensor in _outside(model)), None)


@contextmanager
def handed_over(model: onnx.ModelProto) -> Iterator[str | bytes]:
    """The model as onnxruntime reads it: bytes, or the name of a file that exists until the block ends.

    Raises:
        UnpoolError: the file of the model was replaced meanwhile, or the model exceeds 2 GiB.
    """
    own = sum(weights.byte_size(tensor) for tensor in model.graph.initializer if weights.is_in_model_file(tensor))
    if own < LARGE_BYTES or data_folder(model) is not None or not hasattr(os, "memfd_create"):
        yield b"".join(_pieces(model))
        return
    with os.fdopen(os.memfd_create("unpool"), "wb") as file:
        file.writelines(_pieces(model))
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def without_weights(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, onnxruntime.OrtValue]]:
    """The model without the data of its large weights, and these by name; they are valid while the model is."""
    skeleton, values = onnx.ModelProto(), dict[str, onnxruntime.OrtValue]()
    weights.copy_fields(model, skeleton, "graph")
    weights.copy_fields(model.graph, skeleton.graph, "initializer")
    for tensor in model.graph.initializer:
        if not weights.is_large(tensor) or not weights.has_whole_bytes(tensor) or tensor.external_data:
            skeleton.graph.initializer.append(tensor)
            continue
        bare = skeleton.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        bare.data_location = onnx.TensorProto.EXTERNAL
        bare.external_data.add(key="location", value=_VALUE)
        array = weights.own_array_of(tensor)
        kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        is_plain = kind.isbuiltin == 1
        values[tensor.name] = (
            onnxruntime.OrtValue.ortvalue_from_numpy(array)
            if is_plain
            else onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, tensor.data_type)
        )
    return skeleton, values


def _outside(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    for tensor in model.graph.initializer:
        if weights.folder_of(tensor) is not None and not weights.is_in_model_file(tensor):
            yield tensor


def _pieces(model: onnx.ModelProto) -> Iterator[bytes]:
    """The bytes of a model: protobuf joins the initializers of all its fields `graph`, of which each weight has one."""
    rest = onnx.ModelProto()
    weights.copy_fields(model, rest, "graph")
    weights.copy_fields(model.graph, rest.graph, "initializer")
    own = []
    for tensor in model.graph.initializer:
        if weights.is_in_model_file(tensor):
            own.append(tensor)
        else:
            rest.graph.initializer.append(weights.without_folder(tensor))
    yield weights.serialize(rest, "model")
    for tensor in own:
        size = weights.byte_size(tensor)
        bare = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        content = bare.SerializeToString() + field_head(_RAW_DATA, size)
        initializer = field_head(_INITIALIZER, len(content) + size)
        yield field_head(_GRAPH, len(initializer) + len(content) + size) + initializer + content
        yield from weights.read_chunks(tensor)
