"""Finds the tensors whose data is in files beside the model, checks where that data is, and reads it."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import external_data_helper

from unpool import memory
from unpool.errors import FileError, MissingFileError
from unpool.runtime.graph import weight_files
from unpool.runtime.graph.boundary import LONGEST, brief
from unpool.runtime.graph.nodes import with_inner

_ADVICE = "Keep the data file beside the model."


def read_all(model: onnx.ModelProto, path: Path, *, leaves_weights: bool = False) -> None:
    """Put the data of every external tensor into the model, which is changed.

    Args:
        model: its initializers, and the tensors in nodes.
        path: of the model; the files are beside it.
        leaves_weights: whether large initializers that nobody can feed stay in their files.

    Raises:
        MissingFileError: a file of data does not exist.
        FileError: a place outside of the model's folder, or one that is not in its file; or the file cannot be read.
        ShapeError: all tensors together have more bytes than this machine has memory.
    """
    found = list(external_tensors(model))
    lengths = [_length(tensor, path) for tensor in found]
    memory.check((sum(lengths),), np.dtype(np.uint8), f"{path}: external data")
    fed = {value.name for value in model.graph.input}
    initializers = list(model.graph.initializer)  # held, so that no other object gets their ids
    weights = {id(one) for one in initializers if one.name not in fed} if leaves_weights else set()
    for tensor, length in zip(found, lengths, strict=True):
        if id(tensor) in weights and weight_files.can_stay(tensor, length):
            weight_files.stay(tensor, path.parent)
        else:
            _read(tensor, path)


def external_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor whose data is in another file.

    It may be an initializer or an attribute, dense or sparse, inside of a body or a function or outside.
    """
    for tensor in _tensors(model.graph):
        if external_data_helper.uses_external_data(tensor):
            yield tensor
    for function in model.functions:
        for tensor in _of_nodes(function.node):
            if external_data_helper.uses_external_data(tensor):
                yield tensor


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    yield from _parts(graph.sparse_initializer)
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in with_inner(nodes):
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors) if attribute.HasField("t") else attribute.tensors
            yield from _parts([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else ())
            yield from _parts(attribute.sparse_tensors)
            for body in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                yield from body.initializer
                yield from _parts(body.sparse_initializer)


def _parts(sparse: Iterable[onnx.SparseTensorProto]) -> Iterator[onnx.TensorProto]:
    for one in sparse:
        yield from (one.values, one.indices)


def _length(tensor: onnx.TensorProto, path: Path) -> int:
    """How many bytes a tensor has in its file, once it is certain that they are there."""
    try:
        place = external_data_helper.ExternalDataInfo(tensor)
        file = path.parent / place.location
        if not file.exists():
            raise MissingFileError(f"{_expected(tensor, path)}, got no such file. {_ADVICE}")
        if not file.is_file():
            raise FileError(f"{_expected(tensor, path)}, got no file. {_ADVICE}")
        size, offset = os.path.getsize(file), place.offset or 0
        length = size - offset if place.length is None else place.length
    except FileError:
        raise
    except (OSError, ValueError) as error:
        raise FileError(f"{_expected(tensor, path)}, got: {brief(error)}. {_ADVICE}") from error
    if min(offset, length) < 0 or offset + length > size:
        raise FileError(
            f"{_expected(tensor, path)}, got bytes {offset} to {offset + length} of a file of {size} bytes. {_ADVICE}"
        )
    return int(length)


def _read(tensor: onnx.TensorProto, path: Path) -> None:
    try:
        external_data_helper.load_external_data_for_tensor(tensor, str(path.parent))
    except Exception as error:
        raise FileError(f"{_expected(tensor, path)}, got: {brief(error)}. {_ADVICE}") from error
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]


def _expected(tensor: onnx.TensorProto, path: Path) -> str:
    location = next((one.value for one in tensor.external_data if one.key == "location"), "")
    return f"{path}: tensor {tensor.name!r} expects its data in {repr(location)[:LONGEST]}"
