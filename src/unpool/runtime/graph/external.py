"""Finds the tensors whose data is in files beside the model, checks where that data is, and reads it."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx import external_data_helper

from unpool import memory
from unpool.errors import FileError, MissingFileError
from unpool.runtime.graph import weight_files
from unpool.runtime.graph.errors import LONGEST, short_message
from unpool.runtime.graph.nodes import with_inner
from unpool.runtime.graph.real_file import OutsideError, RealFile, real_file

FOLDERS = "unpool.external_data_folders"
"""The session config entry that names further folders in which data files may be, separated as in PATH."""

_ADVICE = "Keep the data file beside the model."


def read_all(model: onnx.ModelProto, path: Path, folders: Iterable[str] = (), *, leaves_weights: bool = False) -> None:
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
    places = _Places(path, tuple(folders))
    parts = [places.part(tensor) for tensor in found]
    memory.check((sum(part.length for part in parts),), np.dtype(np.uint8), f"{path}: external data")
    fed = {value.name for value in model.graph.input}
    initializers = list(model.graph.initializer)  # held, so that no other object gets their ids
    weights = {id(one) for one in initializers if one.name not in fed} if leaves_weights else set()
    folder: str | None = None
    for tensor, part in zip(found, parts, strict=True):
        stays = id(tensor) in weights and weight_files.can_stay(tensor, part.length)
        if stays and folder in (None, part.file.folder):
            folder = part.file.folder
            weight_files.stay(tensor, part.file)
        else:
            _read(tensor, part, path)


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


class _Part(NamedTuple):
    """Where the data of a tensor are: so many bytes of a file, from an offset on."""

    file: RealFile
    offset: int
    length: int


class _Places:
    """Finds the data of tensors; each file is looked at once."""

    def __init__(self, path: Path, folders: tuple[str, ...]) -> None:
        self._path, self._folders = path, folders
        self._files: dict[str, tuple[RealFile, int]] = {}

    def part(self, tensor: onnx.TensorProto) -> _Part:
        """Where the data of a tensor are, once it is certain that they are there."""
        try:
            place = external_data_helper.ExternalDataInfo(tensor)
            if place.location not in self._files:
                self._files[place.location] = self._file(place.location)
            file, size = self._files[place.location]
        except OutsideError as error:
            advice = f"{_ADVICE[:-1]}, or name its folder in the session config entry {FOLDERS}."
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
        return _Part(file, offset, length)

    def _file(self, location: str) -> tuple[RealFile, int]:
        """A data file, and its bytes."""
        file = real_file(self._path, location, self._folders)
        with file.open() as stream:
            return file, os.fstat(stream.fileno()).st_size


def _read(tensor: onnx.TensorProto, part: _Part, path: Path) -> None:
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
