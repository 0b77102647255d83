"""A model on its way into a session: read without its large weights, and handed to onnxruntime with them.

A graph takes kilobytes, and its weights may take gigabytes. Those in the file of the model itself stay there while
passes change the graph; then onnxruntime gets them:

| weights | onnxruntime gets |
|---|---|
| in data files of the model's own | the names of the files, and their folder |
| other weights of more than a thousand elements | values beside the graph, or a file in memory (`weight_values.py`) |
| the same, where options cannot be copied, or a file is to be written | bytes of the whole model, up to 2 GiB |

They are not left in the file: onnxruntime maps data files, and the process ends where another one shortens a mapped
file. onnxruntime has that fault with data files; a model in one file does not have it.
"""

from collections.abc import Callable, Container
from typing import NamedTuple

import onnx
from onnx import numpy_helper

from unpool.graph import weights
from unpool.graph.bare import Origin, origin_of, without_elements
from unpool.graph.load import ModelSource, load
from unpool.graph.nodes import reads
from unpool.graph.wire import as_field
from unpool.onnxruntime.weight_values import WeightValue
from unpool.operators.conv import flip_window, flipped_shape
from unpool.passes.rewrite import set_items

_GRAPH = 7  # a field of ModelProto
_SIZES = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)  # which onnxruntime may read while it infers shapes


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


def join(skeleton: Skeleton, model: onnx.ModelProto) -> SplitModel:
    """A skeleton with the weights of the model that it was made from; only sizes are read from files."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    graph, large, folder = onnx.GraphProto(), [], None
    for name, (origin, groups) in skeleton.weights:
        tensor = tensors[origin]
        if groups or weights.folder_of(tensor) is None or weights.is_in_model_file(tensor):
            large.append((name, tensor, groups))
            continue
        if tensor.data_type in _SIZES:
            graph.initializer.append(_inside(name, tensor, 0))
            continue
        folder = weights.folder_of(tensor)
        graph.initializer.append(weights.without_folder(tensor))
        graph.initializer[-1].name = name
    content = graph.SerializeToString()
    rest = skeleton.content + as_field(_GRAPH, content) if graph.initializer else skeleton.content
    return SplitModel(rest, large, folder)


def split(model: onnx.ModelProto) -> SplitModel:
    """The model and its large weights, as `join` gives them."""
    return join(skeleton_of(without_elements(model)), model)


def as_bytes(model: SplitModel) -> bytes:
    """The model with its weights.

    Raises:
        UnpoolError: the file of the model was replaced meanwhile, or the model exceeds 2 GiB.
    """
    rest = onnx.ModelProto.FromString(model.rest)
    for name, tensor, groups in model.weights:
        rest.graph.initializer.append(_inside(name, tensor, groups))
    return weights.serialize(rest, "model")


def as_values(model: SplitModel, replaced: Container[str] = ()) -> tuple[bytes, tuple[WeightValue, ...]]:
    """The model without most of its weights, and these.

    Args:
        model: the model and its weights.
        replaced: names of weights that stay in the model: options have other values for them.

    Raises:
        UnpoolError: as by `as_bytes`.
    """
    values, rest = list[WeightValue](), onnx.ModelProto.FromString(model.rest)
    graph = rest.graph
    kept = {value.name for value in graph.input}  # callers may replace them
    used = {name for node in graph.node for name in reads(node)}  # onnxruntime drops others before it looks
    used.update(value.name for value in graph.output)
    for name, tensor, groups in model.weights:
        if name in kept or name in replaced or name not in used or tensor.data_type in _SIZES:
            graph.initializer.append(_inside(name, tensor, groups))
            continue
        dims = flipped_shape(tensor.dims, groups) if groups else tensor.dims
        head = onnx.TensorProto(name=name, data_type=tensor.data_type, dims=dims).SerializeToString()
        shape, dtype = weights.array_type(tensor)
        data = weights.array_of(tensor) if weights.folder_of(tensor) is None else weights.data_range(tensor)
        values.append(WeightValue(name, head, data, shape, dtype, tensor.data_type, groups))
    return weights.serialize(rest, "model"), tuple(values)


def _inside(name: str, tensor: onnx.TensorProto, groups: int) -> onnx.TensorProto:
    """A weight with its data."""
    if groups:
        return numpy_helper.from_array(flip_window(weights.array_of(tensor), groups), name)
    inside = onnx.TensorProto()
    inside.CopyFrom(weights.with_data_inside(tensor))
    inside.name = name
    return inside
