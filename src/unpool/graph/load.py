"""Models from paths, bytes or ModelProtos, their external data read at once or later; and the check of a model."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
from onnx import external_data_helper

from unpool import memory
from unpool.errors import FileError, MissingFileError, ModelError, UnpoolError
from unpool.graph import peek, weights
from unpool.graph.data_file import FOLDERS_ENTRY, DataFile, DataRange, OutsideFolderError, file_stamp, find_data_file
from unpool.graph.errors import LONGEST, error_class, short_message, source_name
from unpool.graph.graph import FIRST_IR_WITH_DEFAULTS, has_type
from unpool.graph.nodes import PLAIN_KINDS, domain, sort_nodes, subgraphs, with_subgraph_nodes
from unpool.graph.peek import FileKind, detect_file_kind
from unpool.graph.torch_operators import export_advice
from unpool.operators.contract import DOMAINS

_ADVICE = "Keep the data file next to the model."


def read_external_data(
    model: onnx.ModelProto, path: Path, folders: Iterable[str] = (), *, leaves_weights: bool = False
) -> None:
    """Read all external data into the model; its files are next to `path` or, if links lead there, in `folders`.

    With `leaves_weights`, large initializers that cannot be fed stay in their files, where these are in one folder.
    """
    tensors = list(external_tensors(model))
    folders, files = tuple(folders), dict[str, tuple[DataFile, int]]()
    ranges = [_data_range(tensor, path, folders, files) for tensor in tensors]
    memory.check((sum(data.size for data in ranges),), np.dtype(np.uint8), f"{path}: external data")
    fed = {value.name for value in model.graph.input}
    initializers = list(model.graph.initializer)  # held, so that no other object gets their ids
    mappable = {id(tensor) for tensor in initializers if tensor.name not in fed} if leaves_weights else set()
    folder: str | None = None
    for tensor, data in zip(tensors, ranges, strict=True):
        stays = id(tensor) in mappable and weights.can_stay_in_file(tensor, data.size)
        if stays and folder in (None, data.file.folder):
            folder = data.file.folder
            weights.keep_in_file(tensor, data.file)
            continue
        try:
            with data.file.open() as stream:
                stream.seek(data.offset)
                tensor.raw_data = stream.read(data.size)
        except Exception as error:
            raise FileError(f"{_where(tensor, path)}, got: {short_message(error)}. {_ADVICE}") from error
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def external_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor whose data is in another file: initializers and attributes, in subgraphs and functions too."""
    of_functions = chain.from_iterable(_tensors_of_nodes(function.node) for function in model.functions)
    for tensor in chain(_initializers(model.graph), _tensors_of_nodes(model.graph.node), of_functions):
        if external_data_helper.uses_external_data(tensor):
            yield tensor


def _initializers(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    yield from _sparse_parts(graph.sparse_initializer)


def _tensors_of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in with_subgraph_nodes(nodes):
        for attribute in node.attribute:
            if attribute.type in PLAIN_KINDS:
                continue
            yield from (attribute.t, *attribute.tensors) if attribute.HasField("t") else attribute.tensors
            yield from _sparse_parts([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else ())
            yield from _sparse_parts(attribute.sparse_tensors)
            for subgraph in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                yield from _initializers(subgraph)


def _sparse_parts(sparse: Iterable[onnx.SparseTensorProto]) -> Iterator[onnx.TensorProto]:
    for tensor in sparse:
        yield from (tensor.values, tensor.indices)


def _data_range(
    tensor: onnx.TensorProto, path: Path, folders: Iterable[str], files: dict[str, tuple[DataFile, int]]
) -> DataRange:
    """The data of a tensor, which are certain to be there; `files` has the files found so far, and their bytes."""
    where = _where(tensor, path)
    try:
        entry = weights.external_data_of(tensor)
        if entry.location not in files:
            file = find_data_file(path, entry.location, folders)
            with file.open() as stream:
                files[entry.location] = file, os.fstat(stream.fileno()).st_size
        file, size = files[entry.location]
    except OutsideFolderError as error:
        advice = f"{_ADVICE[:-1]}, or name its folder in the session config entry {FOLDERS_ENTRY}."
        fact = f"External data path validation failed: {short_message(error)}"
        raise FileError(f"{where}. {fact}. {advice if error.is_link else _ADVICE}") from error
    except FileNotFoundError as error:
        raise MissingFileError(f"{where}, got no such file. {_ADVICE}") from error
    except (OSError, ValueError) as error:
        raise FileError(f"{where}, got: {short_message(error)}. {_ADVICE}") from error
    offset = entry.offset or 0
    length = size - offset if entry.length is None else entry.length
    if min(offset, length) < 0 or offset + length > size:
        raise FileError(f"{where}, got bytes {offset} to {offset + length} of a file of {size} bytes. {_ADVICE}")
    if entry.length is not None and weights.has_whole_bytes(tensor) and length != weights.byte_size(tensor):
        raise FileError(f"{where}, got {length} bytes for a tensor of {weights.byte_size(tensor)}. {_ADVICE}")
    return DataRange(file, offset, length, tensor.name)


def _where(tensor: onnx.TensorProto, path: Path) -> str:
    location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
    return f"{path}: tensor {tensor.name!r} expects its data in {repr(location)[:LONGEST]}"


ModelSource: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | onnx.ModelProto
_BUILT_IN = (
    *("ai.onnx", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "ai.onnx.training"),
    *("com.microsoft", "com.microsoft.experimental", "com.microsoft.nchwc", "org.pytorch.aten", *DOMAINS),
)
"""Domains whose operators need no library that a caller registered."""

SMALL = 2**16  # bytes of a file of a model that is parsed whole, which takes less time
MOST_STORED = 2**30  # bytes of weights in files that become part of a model which a command reads

Change: TypeAlias = Callable[[onnx.ModelProto], onnx.ModelProto]


def load(
    source: ModelSource,
    change: Change | None = None,
    folder: str = "",
    folders: Sequence[str] = (),
    *,
    leaves_weights: bool = False,
    leaves_own_weights: bool = False,
) -> onnx.ModelProto:
    """The model, with all tensors inside it and nodes in topological order; the caller's ModelProto is never changed.

    `change` is applied before external data are read. These are next to a path, for bytes and a ModelProto in `folder`,
    or where links lead in `folders`. With `leaves_weights` large ones stay in files, for `weights.array_of` to read,
    and with `leaves_own_weights` those in the file of the model itself.
    """
    where = source_name(source)
    path: Path | None = None
    if isinstance(source, onnx.ModelProto):
        model = source
    elif isinstance(source, (bytes, bytearray, memoryview)):
        model = _parse(bytes(source), None, where)
    elif isinstance(source, (str, os.PathLike)):
        path = Path(source)
        skimmed = _read_without_weights(path) if leaves_own_weights else None
        model = _parse(_read(path), path, where) if skimmed is None else skimmed
    else:
        raise error_class(UnpoolError, TypeError)(
            f"model: expected a path, bytes or an onnx.ModelProto, got {type(source).__name__}. Pass one of these."
        )
    if not model.HasField("graph"):
        raise error_class(ModelError, "InvalidArgument")(f"{where}: an ONNX model without a graph. Export it again.")
    model = sort_nodes(model)
    model = model if change is None else change(model)
    if path is None and folder and any(True for _ in external_tensors(model)):
        path = Path(folder, "model")
        model = deepcopy(model) if model is source else model
    if path is not None:
        read_external_data(model, path, folders, leaves_weights=leaves_weights)
        return model
    for tensor in external_tensors(model):
        if weights.folder_of(tensor) is None:
            advice = "Pass the path of the model, or call onnx.load on it first."
            raise ModelError(f"{where}: tensor {tensor.name!r} has external data. {advice}")
    return model


def load_for_command(source: ModelSource, most: int | None = None) -> onnx.ModelProto:
    """The model for commands; if more bytes than `most`, or 1 GiB, are in files, they stay: `save.ModelWriter` it."""
    model = load(source, leaves_weights=True)
    stored = [tensor for tensor in model.graph.initializer if weights.folder_of(tensor) is not None]
    limit = MOST_STORED if most is None else min(most, MOST_STORED)
    if sum(map(weights.byte_size, stored)) <= limit and model is not source:
        for tensor in stored:
            tensor.CopyFrom(weights.with_data_inside(tensor))
    return model


def _format_of(path: Path | None) -> str:
    suffix = "" if path is None else path.suffix
    return onnx.serialization.registry.get_format_from_file_extension(suffix) or "protobuf"


def _read_without_weights(path: Path) -> onnx.ModelProto | None:
    """The model with its large weights left in its file; None if it is small, or cannot be read so."""
    try:
        with path.open("rb") as file:
            if _format_of(path) != "protobuf" or os.fstat(file.fileno()).st_size < SMALL:
                return None
            entry = weights.MODEL_KEY, file_stamp(file)
            model = peek.without_weights(peek.FileContent(file), path.name, entry)
            return model if file_stamp(file) == entry[1] else None
    except (OSError, ValueError):  # raised again, and explained, where the whole file is read
        return None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise MissingFileError(f"{path}: expected an ONNX model, got no such file. Check the path.") from error
    except IsADirectoryError as error:
        raise error_class(FileError, "InvalidProtobuf")(
            f"{path}: expected an ONNX model, got a folder. Name the file in it."
        ) from error
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: cannot be read: {short_message(error)}. Check its name and permissions.") from error


def _parse(content: bytes, path: Path | None, where: str) -> onnx.ModelProto:
    known = _format_of(path)
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


LARGEST_ELEMENT = 16  # bytes of an element of the largest type of numbers
_ELEMENTS = frozenset(onnx.TensorProto.DataType.values())
_NUMBERS = _ELEMENTS - {onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING}
_LISTS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")


def check_model(model: onnx.ModelProto) -> None:
    """Check the element types of the model, and the rest by onnx's checker.

    Before IR version 4 every initializer had to be an input too. No runtime insists on it, and neither does this check.
    """
    _check_elements(model.graph)
    skeleton = weights.strip_initializers(model)
    if skeleton.ir_version == FIRST_IR_WITH_DEFAULTS - 1:
        skeleton.ir_version = FIRST_IR_WITH_DEFAULTS
    for value in skeleton.graph.output:
        if not has_type(value):
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT  # the checker wants one, onnxruntime infers it
    for value in (*skeleton.graph.input, *skeleton.graph.output):
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.SetInParent()  # the checker wants one, no runtime does
    try:
        onnx.checker.check_model(skeleton)
        for tensor in filter(_is_checked_alone, model.graph.initializer):
            onnx.checker.check_tensor(tensor)
    except Exception as error:
        lines = [line.strip()[:LONGEST] for line in str(error).splitlines() if line.strip()]
        reason = "; ".join(lines[:3]).rstrip(".") or type(error).__name__
        advice = export_advice(skeleton.graph.node, "Export it again.")
        raise ModelError(f"model: invalid ONNX model, {reason}. {advice}") from error


def _is_checked_alone(tensor: onnx.TensorProto) -> bool:
    """True for a large tensor inside the model that fits into a message, unless all its numbers are bytes."""
    if not weights.is_large(tensor) or weights.folder_of(tensor) is not None:
        return False
    has_lists = any(len(getattr(tensor, name)) for name in _LISTS)
    if tensor.data_type in _NUMBERS and not has_lists and len(tensor.raw_data) == weights.byte_size(tensor):
        return False  # the checker would copy it, and find nothing
    # to count the bytes of a tensor takes as long as to write it, so few are counted
    return LARGEST_ELEMENT * math.prod(tensor.dims) < weights.LARGEST_MESSAGE or not weights.is_too_large(tensor)


def _check_elements(graph: onnx.GraphProto) -> None:
    inner = (subgraph for node in with_subgraph_nodes(graph.node) for _, subgraph in subgraphs(node))
    for each in (graph, *inner):
        for value in (*each.input, *each.output, *each.value_info):
            unknown = set(_elements(value.type)) - _ELEMENTS
            if unknown:
                expected = f"an element type of ONNX, from 0 to {max(_ELEMENTS)}, got {unknown.pop()}"
                raise ModelError(f"model: value {value.name!r}: expected {expected}. Export it again.")


def _elements(type_: onnx.TypeProto) -> Iterator[int]:
    kind = type_.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        yield getattr(type_, kind).elem_type
    elif kind in ("sequence_type", "optional_type"):
        yield from _elements(getattr(type_, kind).elem_type)
    elif kind == "map_type":
        yield type_.map_type.key_type
        yield from _elements(type_.map_type.value_type)


def stable_source(source: ModelSource) -> ModelSource:
    """The source in a form that does not change: an absolute path, bytes, or a ModelProto too large for bytes."""
    if isinstance(source, (str, os.PathLike)):
        return str(Path(source).absolute())  # link/.. stays: it is not the folder around the link
    if not isinstance(source, onnx.ModelProto):
        return bytes(source)
    content = weights.try_serialize(source)
    return source if content is None else content


def needs_libraries(model: onnx.ModelProto) -> bool:
    """True if a node is of a domain that neither the model's functions nor onnxruntime itself have.

    Functions that no node calls do not count.
    """
    known = {*_BUILT_IN, *(function.domain for function in model.functions)}
    unused = {(function.domain, function.name): function for function in model.functions}
    rest = [model.graph.node]
    while rest:
        for node in with_subgraph_nodes(rest.pop()):
            if domain(node) not in known:
                return True
            called = unused.pop((node.domain, node.op_type), None)
            rest += [] if called is None else [called.node]
    return False
