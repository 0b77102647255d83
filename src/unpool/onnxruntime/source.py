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

from collections.abc import Callable, Container, Iterator
from typing import NamedTuple

import onnx
from onnx import numpy_helper

from unpool.dtypes import AnyArray
from unpool.graph import weights
from unpool.graph.bare import Origin, origin_of, without_elements
from unpool.graph.load import ModelSource, load
from unpool.graph.nodes import reads
from unpool.graph.peek import field_head
from unpool.onnxruntime.memory_file import FlippedRange, Piece
from unpool.onnxruntime.package import onnxruntime
from unpool.operators.conv import flip_window, flipped_shape
from unpool.passes.rewrite import set_items

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


class Weight(NamedTuple):
    """A weight by the name that it has in a graph, and where its elements are from."""

    name: str
    origin: Origin


class Skeleton(NamedTuple):
    """The bytes of a model without its large weights, and these."""

    content: bytes
    weights: tuple[Weight, ...]


def skeleton_of(bare: onnx.ModelProto) -> Skeleton:
    """The skeleton of a bare model, which is changed."""
    found = [(tensor, origin_of(tensor)) for tensor in bare.graph.initializer]
    large = tuple(Weight(tensor.name, origin) for tensor, origin in found if origin is not None)
    if large:
        set_items(bare.graph.initializer, (tensor for tensor, origin in found if origin is None))
    return Skeleton(weights.serialize(bare, "model"), large)


class SplitModel(NamedTuple):
    """A model without its large weights but those in data files, and the tensors of these by name, some to be flipped.

    `folder` is that of the data files; None if it has no weight there.
    """

    rest: bytes
    weights: list[tuple[str, onnx.TensorProto, int]]  # its name in the model, and the groups in which it is flipped
    folder: str | None = None

    def size(self) -> int:
        """About as many bytes as the model has."""
        return len(self.rest) + sum(weights.byte_size(tensor) for _, tensor, _ in self.weights)

    def bytes_inside(self) -> int:
        """About as many bytes as are not in files."""
        inside = (tensor for _, tensor, _ in self.weights if weights.folder_of(tensor) is None)
        return len(self.rest) + sum(map(weights.byte_size, inside))

    def pieces(self) -> Iterator[Piece]:
        """The bytes: protobuf joins the initializers of all fields `graph` of a model, of which each weight has one."""
        yield self.rest
        for name, tensor, groups in self.weights:
            is_inside = weights.folder_of(tensor) is None
            if is_inside and not groups:
                renamed = b"" if tensor.name == name else onnx.TensorProto(name=name).SerializeToString()
                yield from _initializer(tensor.SerializeToString() + renamed)  # of two names, the last one counts
                continue
            yield from _initializer(_head(name, tensor, groups), weights.byte_size(tensor))
            if is_inside:
                yield _elements(tensor, groups).tobytes()
            elif groups:
                yield FlippedRange(weights.data_range(tensor), *weights.array_type(tensor), groups)
            else:
                yield weights.data_range(tensor)


def join(skeleton: Skeleton, model: onnx.ModelProto) -> SplitModel:
    """A skeleton with the weights of the model that it was made from; nothing is read."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    graph, large, folder = onnx.GraphProto(), [], None
    for name, (origin, groups) in skeleton.weights:
        tensor = tensors[origin]
        if groups or weights.folder_of(tensor) is None or weights.is_in_model_file(tensor):
            large.append((name, tensor, groups))
            continue
        folder = weights.folder_of(tensor)
        graph.initializer.append(weights.without_folder(tensor))
        graph.initializer[-1].name = name
    content = graph.SerializeToString()
    rest = skeleton.content + field_head(_GRAPH, len(content)) + content if graph.initializer else skeleton.content
    return SplitModel(rest, large, folder)


def split(model: onnx.ModelProto) -> SplitModel:
    """The model and its large weights; nothing is read."""
    return join(skeleton_of(without_elements(model)), model)


def as_values(model: SplitModel, replaced: Container[str] = ()) -> tuple[bytes, dict[str, onnxruntime.OrtValue]]:
    """The model without most of its weights, and these by name, as onnxruntime copies them while it loads the model.

    In the model they have names of files.

    Args:
        model: the model and its weights.
        replaced: names of weights that are in the model: options have other values for them.

    Raises:
        UnpoolError: the file of the model was replaced meanwhile.
    """
    values, rest = dict[str, onnxruntime.OrtValue](), onnx.ModelProto.FromString(model.rest)
    graph = rest.graph
    kept = {value.name for value in graph.input}  # callers may replace them
    used = {name for node in graph.node for name in reads(node)}  # onnxruntime drops others before it looks
    used.update(value.name for value in graph.output)
    for name, tensor, groups in model.weights:
        array = _elements(tensor, groups)
        if name in kept or name in replaced or name not in used:
            graph.initializer.append(numpy_helper.from_array(array) if groups else weights.without_folder(tensor))
            graph.initializer[-1].name = name
            continue
        bare = graph.initializer.add(name=name, data_type=tensor.data_type, dims=array.shape)
        bare.data_location = onnx.TensorProto.EXTERNAL
        bare.external_data.add(key="location", value=_VALUE)
        values[name] = (
            onnxruntime.OrtValue.ortvalue_from_numpy(array)
            if array.dtype.isbuiltin == 1
            else onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, tensor.data_type)
        )
    return weights.serialize(rest, "model"), values


def _elements(tensor: onnx.TensorProto, groups: int) -> AnyArray:
    array = weights.array_of(tensor)
    return flip_window(array, groups) if groups else array


def _head(name: str, tensor: onnx.TensorProto, groups: int) -> bytes:
    """The bytes of a weight in front of its elements."""
    dims = flipped_shape(tensor.dims, groups) if groups else tensor.dims
    bare = onnx.TensorProto(name=name, data_type=tensor.data_type, dims=dims)
    return bytes(bare.SerializeToString()) + field_head(_RAW_DATA, weights.byte_size(tensor))


def _initializer(content: bytes, following: int = 0) -> Iterator[bytes]:
    """The bytes of a graph of one initializer, and what begins it; so many bytes more are to follow."""
    head = field_head(_INITIALIZER, len(content) + following)
    yield field_head(_GRAPH, len(head) + len(content) + following) + head
    yield content
