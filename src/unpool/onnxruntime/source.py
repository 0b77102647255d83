"""A model on its way into a session: read without its large weights, and handed to onnxruntime with them.

A graph takes kilobytes, and its weights may take gigabytes. Those in the file of the model itself stay there while
passes change the graph; then onnxruntime gets them:

| weights | onnxruntime gets |
|---|---|
| in data files of the model's own | the names of the files, and their folder |
| others of more than a thousand elements | a file in memory with all of the model, which is freed when it is parsed |
| the same, on other systems than Linux, or above 2 GiB | the graph, and the weights as values, which it copies |
| the same, where options cannot be copied, or a file is to be written | bytes, up to 2 GiB |

They are not left in the file: onnxruntime maps data files, and the process ends where another one shortens a mapped
file. onnxruntime has that fault with data files; a model in one file does not have it.
"""

import os
from collections.abc import Callable, Container, Iterator
from typing import BinaryIO, NamedTuple

import onnx

from unpool.errors import UnpoolError
from unpool.graph import weights
from unpool.graph.load import SMALL, ModelSource, load
from unpool.graph.nodes import reads
from unpool.graph.peek import field_head
from unpool.onnxruntime.package import onnxruntime

_VALUE = "unpool.value"  # the data file, which does not exist, of a weight that is a value
LARGEST_FILE = weights.LARGEST_MESSAGE - 2**20  # bytes, names of weights excluded
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


class SplitModel(NamedTuple):
    """A copy of a model without its large weights but those in data files, and these weights."""

    rest: onnx.ModelProto
    weights: list[onnx.TensorProto]

    def size(self) -> int:
        """About as many bytes as the model has."""
        return int(self.rest.ByteSize()) + sum(map(weights.byte_size, self.weights))


def split(model: onnx.ModelProto) -> SplitModel:
    """The model and its large weights; nothing is read, and the copy may be changed."""
    rest = onnx.ModelProto()
    weights.copy_fields(model, rest, "graph")
    weights.copy_fields(model.graph, rest.graph, "initializer")
    large = []
    for tensor in model.graph.initializer:
        is_outside = weights.folder_of(tensor) is not None and not weights.is_in_model_file(tensor)
        if weights.is_large(tensor) and weights.has_whole_bytes(tensor) and not is_outside:
            large.append(tensor)
        else:
            rest.graph.initializer.append(weights.without_folder(tensor))
    return SplitModel(rest, large)


def as_bytes(model: SplitModel) -> bytes:
    """The model with its weights, as bytes.

    Raises:
        UnpoolError: the file of the model was replaced meanwhile, or the model exceeds 2 GiB.
    """
    return b"".join(_pieces(model))


def as_memory_file(model: SplitModel) -> BinaryIO | None:
    """The model with its weights as an open file in memory; None for a small one, and where there is no such file.

    onnxruntime parses it without a copy of its bytes. Then `truncate(0)` frees it. Errors are those of `as_bytes`.
    """
    if not hasattr(os, "memfd_create") or not SMALL <= model.size() <= LARGEST_FILE:
        return None
    try:
        file = os.fdopen(os.memfd_create("unpool"), "w+b")
    except OSError:
        return None
    try:
        if os.path.exists(path_of(file)):
            file.writelines(_pieces(model))
            file.flush()
            return file
    except OSError as error:  # there is no memory for it, unless the file of the model is wrong
        if isinstance(error, UnpoolError):
            raise
    except BaseException:
        file.close()
        raise
    file.close()
    return None


def path_of(file: BinaryIO) -> str:
    """The path of an open file in memory."""
    return f"/proc/self/fd/{file.fileno()}"


def as_values(model: SplitModel, replaced: Container[str] = ()) -> dict[str, onnxruntime.OrtValue]:
    """The weights by name, as onnxruntime copies them while it loads the model, in which they get names of files.

    Args:
        model: `rest` is changed.
        replaced: names that become a part of the graph: options have other values for them.

    Raises:
        UnpoolError: the file of the model was replaced meanwhile.
    """
    values = dict[str, onnxruntime.OrtValue]()
    graph = model.rest.graph
    kept = {value.name for value in graph.input}  # callers may replace them
    used = {name for node in graph.node for name in reads(node)}  # onnxruntime drops others before it looks
    used.update(value.name for value in graph.output)
    for tensor in model.weights:
        if tensor.name in kept or tensor.name in replaced or tensor.name not in used:
            graph.initializer.append(weights.without_folder(tensor))
            continue
        bare = graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        bare.data_location = onnx.TensorProto.EXTERNAL
        bare.external_data.add(key="location", value=_VALUE)
        array = weights.array_of(tensor)
        values[tensor.name] = (
            onnxruntime.OrtValue.ortvalue_from_numpy(array)
            if array.dtype.isbuiltin == 1
            else onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, tensor.data_type)
        )
    return values


def _outside(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    for tensor in model.graph.initializer:
        if weights.folder_of(tensor) is not None and not weights.is_in_model_file(tensor):
            yield tensor


def _pieces(model: SplitModel) -> Iterator[bytes]:
    """The bytes of a model: protobuf joins the initializers of all its fields `graph`, of which each weight has one."""
    yield weights.serialize(model.rest, "model")
    for tensor in model.weights:
        if weights.folder_of(tensor) is None:
            content, size = tensor.SerializeToString(), 0
        else:
            size = weights.byte_size(tensor)
            bare = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            content = bare.SerializeToString() + field_head(_RAW_DATA, size)
        initializer = field_head(_INITIALIZER, len(content) + size)
        yield field_head(_GRAPH, len(initializer) + len(content) + size) + initializer
        yield content
        yield from weights.read_chunks(tensor) if size else ()
