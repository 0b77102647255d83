"""Models from paths, bytes or ModelProtos, with their external data read or mapped."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import onnx
from onnx import external_data_helper

from unpool import memory
from unpool.errors import FileError, MissingFileError, ModelError, UnpoolError
from unpool.runtime.errors import error_class
from unpool.runtime.graph.errors import LONGEST, short_message, source_name
from unpool.runtime.graph.nodes import with_subgraph_nodes
from unpool.runtime.graph.peek import FileKind, detect_file_kind
from unpool.runtime.graph.topological_order import sort_nodes
from unpool.runtime.graph.weights import (
    DataFile,
    OutsideFolderError,
    byte_size,
    can_be_mapped,
    find_data_file,
    folder_of,
    keep_in_file,
    with_data_inside,
)

FOLDERS_ENTRY = "unpool.external_data_folders"
"""The session config entry that names further folders in which data files may be, separated as in PATH."""

_ADVICE = "Keep the data file beside the model."


def read_external_data(
    model: onnx.ModelProto, path: Path, folders: Iterable[str] = (), *, leaves_weights: bool = False
) -> None:
    """Put the data of every external tensor into the model, which is changed.

    Args:
        model: its initializers, and the tensors in nodes.
        path: of the model; the files are beside it.
        folders: in which files may be too, if links lead there.
        leaves_weights: whether large initializers that nobody can feed stay in their files, where these are in one
            folder.

    Raises:
        MissingFileError: a file of data does not exist.
        FileError: a place outside of the folders, or one that is not in its file; or the file cannot be read.
        ShapeError: all tensors together have more bytes than this machine has memory.
    """
    found = list(external_tensors(model))
    places = _DataFiles(path, tuple(folders))
    parts = [places.part(tensor) for tensor in found]
    memory.check((sum(part.length for part in parts),), np.dtype(np.uint8), f"{path}: external data")
    fed = {value.name for value in model.graph.input}
    initializers = list(model.graph.initializer)  # held, so that no other object gets their ids
    mappable = {id(one) for one in initializers if one.name not in fed} if leaves_weights else set()
    folder: str | None = None
    for tensor, part in zip(found, parts, strict=True):
        stays = id(tensor) in mappable and can_be_mapped(tensor, part.length)
        if stays and folder in (None, part.file.folder):
            folder = part.file.folder
            keep_in_file(tensor, part.file)
        else:
            _read_tensor(tensor, part, path)


def external_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor whose data is in another file.

    It may be an initializer or an attribute, dense or sparse, inside of a subgraph or a function or outside.
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
    yield from _sparse_parts(graph.sparse_initializer)
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in with_subgraph_nodes(nodes):
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors) if attribute.HasField("t") else attribute.tensors
            yield from _sparse_parts([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else ())
            yield from _sparse_parts(attribute.sparse_tensors)
            for subgraph in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                yield from subgraph.initializer
                yield from _sparse_parts(subgraph.sparse_initializer)


def _sparse_parts(sparse: Iterable[onnx.SparseTensorProto]) -> Iterator[onnx.TensorProto]:
    for one in sparse:
        yield from (one.values, one.indices)


class _DataRange(NamedTuple):
    """Where the data of a tensor are: so many bytes of a file, from an offset on."""

    file: DataFile
    offset: int
    length: int


class _DataFiles:
    """Finds the data of tensors; each file is looked at once."""

    def __init__(self, path: Path, folders: tuple[str, ...]) -> None:
        self._path, self._folders = path, folders
        self._files: dict[str, tuple[DataFile, int]] = {}

    def part(self, tensor: onnx.TensorProto) -> _DataRange:
        """Where the data of a tensor are, once it is certain that they are there."""
        try:
            place = external_data_helper.ExternalDataInfo(tensor)
            if place.location not in self._files:
                self._files[place.location] = self._file(place.location)
            file, size = self._files[place.location]
        except OutsideFolderError as error:
            advice = f"{_ADVICE[:-1]}, or name its folder in the session config entry {FOLDERS_ENTRY}."
            raise FileError(
                f"{_expected(tensor, self._path)}. External data path validation failed: {short_message(error)}. "
                f"{advice if error.is_link else _ADVICE}"
            ) from error
        except FileNotFoundError as error:
            raise MissingFileError(f"{_expected(tensor, self._path)}, got no such file. {_ADVICE}") from error
        except (OSError, ValueError) as error:
            raise FileError(f"{_expected(tensor, self._path)}, got: {short_message(error)}. {_ADVICE}") from error
        offset = place.offset or 0
        length = size - offset if place.length is None else place.length
        if min(offset, length) < 0 or offset + length > size:
            raise FileError(
                f"{_expected(tensor, self._path)}, got bytes {offset} to {offset + length} of a file of {size} bytes. "
                f"{_ADVICE}"
            )
        return _DataRange(file, offset, length)

    def _file(self, location: str) -> tuple[DataFile, int]:
        """A data file, and its bytes."""
        file = find_data_file(self._path, location, self._folders)
        with file.open() as stream:
            return file, os.fstat(stream.fileno()).st_size


def _read_tensor(tensor: onnx.TensorProto, part: _DataRange, path: Path) -> None:
    try:
        with part.file.open() as stream:
            stream.seek(part.offset)
            tensor.raw_data = stream.read(part.length)
    except Exception as error:
        raise FileError(f"{_expected(tensor, path)}, got: {short_message(error)}. {_ADVICE}") from error
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]


def _expected(tensor: onnx.TensorProto, path: Path) -> str:
    location = next((one.value for one in tensor.external_data if one.key == "location"), "")
    return f"{path}: tensor {tensor.name!r} expects its data in {repr(location)[:LONGEST]}"


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
    model = sort_nodes(model)
    model = model if change is None else change(model)
    if folder and any(True for _ in external_tensors(model)):
        model = _own(model, source)
        read_external_data(model, Path(folder, "model"), folders, leaves_weights=leaves_weights)
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
    if sum(map(byte_size, stored)) <= limit and model is not source:
        for tensor in stored:
            tensor.CopyFrom(with_data_inside(tensor))
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
    model = sort_nodes(model)
    model = model if change is None else change(model)
    read_external_data(model, path, folders, leaves_weights=leaves_weights)
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
        kind, advice = (detect_file_kind(content) if known == "protobuf" else None) or FileKind(
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
