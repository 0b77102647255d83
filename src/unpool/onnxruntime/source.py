"""A model on its way into a session: read without its large weights, and handed to onnxruntime with them.

A graph takes kilobytes, and its weights may take gigabytes. Those in the file of the model itself stay there while
passes change the graph; then onnxruntime gets them:

| weights | onnxruntime gets |
|---|---|
| in data files of the model's own | the names of the files, and their folder |
| others of more than a thousand elements | values, which it copies, beside the bytes of the graph |
| the same, where options cannot be copied, or a file is to be written | bytes, up to 2 GiB |

They are not left in the file: onnxruntime maps data files, and the process ends where another one shortens a mapped
file. onnxruntime has that fault with data files; a model in one file does not have it.
"""

from collections.abc import Callable, Container, Iterator

import onnx

from unpool.graph import weights
from unpool.graph.load import ModelSource, load
from unpool.graph.nodes import reads
from unpool.graph.peek import field_head
from unpool.onnxruntime.package import onnxruntime

_VALUE = "unpool.value"  # the data file, which does not exist, of a weight that is a value
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9  # fields of ModelProto, GraphProto and TensorProto


def read(
    source: ModelSource, folder: str = "", check: Callable[[onnx.ModelProto], onnx.ModelProto] | None = None
) -> onnx.ModelProto:
    """The model, whose large weights may be left in files; for bytes, their data files are in `folder`.

    `check` sees it before data files are read.

    Raises:
        UnpoolError: it cannot be read, or is no model.
    """
    return load(source, check, folder, leaves_weights=True, leaves_own_weights=True)


def data_folder(model: onnx.ModelProto) -> str | None:
    """The folder of the data files in which the model has weights; None if it has none there."""
    return next((weights.folder_of(tensor) for tensor in _outside(model)), None)


def with_weights(model: onnx.ModelProto) -> bytes:
    """The model with all weights but those in data files, as bytes.

    Raises:
        UnpoolError: the file of the model was replaced meanwhile, or the model exceeds 2 GiB.
    """
    return b"".join(_pieces(model))


def without_weights(
    model: onnx.ModelProto, replaced: Container[str] = ()
) -> tuple[onnx.ModelProto, dict[str, onnxruntime.OrtValue]]:
    """A copy of the model without its large weights, and these by name: onnxruntime copies them as it loads the model.

    Args:
        model: the model.
        replaced: names that stay in the model: options have other values for them.

    Raises:
        UnpoolError: the file of the model was replaced meanwhile.
    """
    skeleton, values = onnx.ModelProto(), dict[str, onnxruntime.OrtValue]()
    weights.copy_fields(model, skeleton, "graph")
    weights.copy_fields(model.graph, skeleton.graph, "initializer")
    kept = {value.name for value in model.graph.input}  # callers may replace them
    used = {name for node in model.graph.node for name in reads(node)}  # onnxruntime drops others before it looks
    used.update(value.name for value in model.graph.output)
    for tensor in model.graph.initializer:
        is_outside = weights.folder_of(tensor) is not None and not weights.is_in_model_file(tensor)
        is_value = weights.is_large(tensor) and weights.has_whole_bytes(tensor) and not is_outside
        if not is_value or tensor.name in kept or tensor.name in replaced or tensor.name not in used:
            skeleton.graph.initializer.append(weights.without_folder(tensor))
            continue
        bare = skeleton.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        bare.data_location = onnx.TensorProto.EXTERNAL
        bare.external_data.add(key="location", value=_VALUE)
        array = weights.array_of(tensor)
        values[tensor.name] = (
            onnxruntime.OrtValue.ortvalue_from_numpy(array)
            if array.dtype.isbuiltin == 1
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
