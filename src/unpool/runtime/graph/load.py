"""A model from a path, from bytes or from a ModelProto, with its external data in memory."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import onnx

from unpool.errors import FileError, MissingFileError, ModelError, UnpoolError
from unpool.runtime.errors import error_class
from unpool.runtime.graph.errors import short_message, source_name
from unpool.runtime.graph.external import external_tensors, read_all
from unpool.runtime.graph.foreign import Foreign, recognised
from unpool.runtime.graph.node_order import in_order
from unpool.runtime.graph.weight_files import folder_of, size_of, with_data

ModelSource: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | onnx.ModelProto
MOST_STORED = 2**30
"""Bytes of weights in files that become part of a model which a command reads; a message has at most 2 GiB in all."""

Change: TypeAlias = Callable[[onnx.ModelProto], onnx.ModelProto]


def load(
    source: ModelSource,
    change: Change | None = None,
    folder: str = "",
    folders: Sequence[str] = (),
    *,
    leaves_weights: bool = False,
) -> onnx.ModelProto:
    """The model, with all tensors inside it and nodes in topological order; the caller's ModelProto is never changed.

    Args:
        source: path of a model, with external data beside it; or its bytes; or a ModelProto.
        change: takes the model before external data are read, and gives the one to go on with.
        folder: where the data of bytes and of a ModelProto are; "" if they have none.
        folders: in which data files may be too, if links lead there.
        leaves_weights: whether large weights stay in their files, for `weight_files` to map.

    Raises:
        MissingFileError: the file, or a file of its external data, does not exist.
        FileError: a file cannot be read.
        ModelError: these bytes are no ONNX model, or a node needs its own output.
        UnpoolError: `source` is none of the three.
    """
    if isinstance(source, onnx.ModelProto):
        model = source
    elif isinstance(source, (bytes, bytearray, memoryview)):
        model = _parse(bytes(source), None, source_name(source))
    elif isinstance(source, (str, os.PathLike)):
        return _from_file(Path(source), change, folders, leaves_weights=leaves_weights)
    else:
        raise error_class(UnpoolError, TypeError)(
            f"model: expected a path, bytes or an onnx.ModelProto, got {type(source).__name__}. Pass one of these."
        )
    _require_graph(model, source_name(source))
    model = in_order(model)
    model = model if change is None else change(model)
    if folder and any(True for _ in external_tensors(model)):
        model = _own(model, source)
        read_all(model, Path(folder, "model"), folders, leaves_weights=leaves_weights)
    _refuse_external(model, source_name(source))
    return model


def load_for_command(source: ModelSource, most: int | None = None) -> onnx.ModelProto:
    """The model as `load` gives it, for commands: weights of more bytes than `most`, or 1 GiB, stay in files.

    `model_files` writes such a model; `onnx.save` does not know where they are.

    Raises:
        UnpoolError: as `load` does.
    """
    model = load(source, leaves_weights=True)
    stored = [tensor for tensor in model.graph.initializer if folder_of(tensor) is not None]
    limit = MOST_STORED if most is None else min(most, MOST_STORED)
    if sum(map(size_of, stored)) <= limit and model is not source:
        for tensor in stored:
            tensor.CopyFrom(with_data(tensor))
    return model


def _own(model: onnx.ModelProto, source: ModelSource) -> onnx.ModelProto:
    """The model, or a copy of it, if the caller has it too."""
    if model is not source:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def _from_file(path: Path, change: Change | None, folders: Sequence[str], *, leaves_weights: bool) -> onnx.ModelProto:
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise MissingFileError(f"{path}: expected an ONNX model, got no such file. Check the path.") from error
    except IsADirectoryError as error:
        raise error_class(FileError, "InvalidProtobuf")(
            f"{path}: expected an ONNX model, got a folder. Name the file in it."
        ) from error
    except (OSError, ValueError) as error:
        raise FileError(
            f"{path}: expected a readable ONNX model, got: {short_message(error)}. Check its name and permissions."
        ) from error
    model = _parse(content, path, str(path))
    _require_graph(model, str(path))
    model = in_order(model)
    model = model if change is None else change(model)
    read_all(model, path, folders, leaves_weights=leaves_weights)
    return model


def _parse(content: bytes, path: Path | None, where: str) -> onnx.ModelProto:
    suffix = "" if path is None else path.suffix
    known = onnx.serialization.registry.get_format_from_file_extension(suffix) or "protobuf"
    if not content:
        raise error_class(ModelError, "InvalidArgument")(
            f"{where}: expected an ONNX model, got nothing, for it is empty. Download or export it again."
        )
    try:
        return onnx.load_from_string(content, format=known)
    except Exception as error:
        kind, advice = (recognised(content) if known == "protobuf" else None) or Foreign(
            f"something else, or not all of it ({short_message(error)})", "Download or export it again"
        )
        raise error_class(ModelError, "InvalidProtobuf")(
            f"{where}: expected an ONNX model, got {kind}. {advice}."
        ) from error


def _require_graph(model: onnx.ModelProto, where: str) -> None:
    if not model.HasField("graph"):
        raise error_class(ModelError, "InvalidArgument")(
            f"{where}: expected an ONNX model, got no graph in it. Export it again."
        )


def _refuse_external(model: onnx.ModelProto, where: str) -> None:
    for tensor in external_tensors(model):
        if folder_of(tensor) is not None:
            continue
        raise ModelError(
            f"{where}: expected all tensors inside the model, got tensor {tensor.name!r} with external data. "
            "Pass the path of the model, or call onnx.load on it first."
        )
