"""A model from a path, from bytes or from a ModelProto, with its external data in memory."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import onnx
from onnx import external_data_helper

from unpool.errors import FileError, MissingFileError, ModelError, UnpoolError

Source: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | onnx.ModelProto


def load(source: Source) -> onnx.ModelProto:
    """The model, with all tensors inside it; the caller's ModelProto is never changed.

    Args:
        source: path of a model, with external data beside it; or its bytes; or a ModelProto.

    Raises:
        MissingFileError: the file, or a file of its external data, does not exist.
        FileError: a file cannot be read.
        ModelError: these bytes are no ONNX model.
        UnpoolError: `source` is none of the three.
    """
    if isinstance(source, onnx.ModelProto):
        model, where = source, "the ModelProto"
    elif isinstance(source, (bytes, bytearray, memoryview)):
        where = f"the {len(source)} bytes"
        model = _parse(bytes(source), None, where)
    elif isinstance(source, (str, os.PathLike)):
        return _from_file(Path(source))
    else:
        raise UnpoolError(
            f"InferenceSession: expected a path, bytes or an onnx.ModelProto, got {type(source).__name__}. "
            "Pass one of these."
        )
    _require_graph(model, where)
    _refuse_external(model, where)
    return model


def _from_file(path: Path) -> onnx.ModelProto:
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise MissingFileError(f"{path}: expected an ONNX model, got no such file. Check the path.") from error
    except IsADirectoryError as error:
        raise FileError(f"{path}: expected an ONNX model, got a folder. Name the file in it.") from error
    except OSError as error:
        raise FileError(f"{path}: expected a readable ONNX model, got: {error}. Check its permissions.") from error
    model = _parse(content, path, str(path))
    _require_graph(model, str(path))
    for tensor in external_tensors(model):
        _read_external(tensor, path)
    return model


def _parse(content: bytes, path: Path | None, where: str) -> onnx.ModelProto:
    suffix = "" if path is None else path.suffix
    known = onnx.serialization.registry.get_format_from_file_extension(suffix) or "protobuf"
    try:
        return onnx.load_from_string(content, format=known)
    except Exception as error:
        raise ModelError(f"{where}: expected an ONNX model, got something else ({error}). Export it again.") from error


def _require_graph(model: onnx.ModelProto, where: str) -> None:
    if not model.HasField("graph"):
        raise ModelError(f"{where}: expected an ONNX model, got no graph in it. Export it again.")


def _read_external(tensor: onnx.TensorProto, model_path: Path) -> None:
    place = external_data_helper.ExternalDataInfo(tensor).location
    advice = "Keep the data file beside the model."
    if not (model_path.parent / place).exists():
        raise MissingFileError(
            f"{model_path}: tensor {tensor.name!r} expects its data in {place!r}, got no such file. {advice}"
        )
    try:
        external_data_helper.load_external_data_for_tensor(tensor, str(model_path.parent))
    except Exception as error:
        raise FileError(
            f"{model_path}: tensor {tensor.name!r} expects its data in {place!r}, got: {error}. {advice}"
        ) from error
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]


def _refuse_external(model: onnx.ModelProto, where: str) -> None:
    for tensor in external_tensors(model):
        raise ModelError(
            f"{where}: expected all tensors inside the model, got tensor {tensor.name!r} with external data. "
            "Pass the path of the model, or call onnx.load on it first."
        )


def external_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The tensors whose data is in another file."""
    for tensor in _tensors(model.graph):
        if external_data_helper.uses_external_data(tensor):
            yield tensor
    for function in model.functions:
        for node in function.node:
            for tensor in _tensors_of_node(node):
                if external_data_helper.uses_external_data(tensor):
                    yield tensor


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        yield from _tensors_of_node(node)


def _tensors_of_node(node: onnx.NodeProto) -> Iterator[onnx.TensorProto]:
    for attribute in node.attribute:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        for body in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
            yield from _tensors(body)
