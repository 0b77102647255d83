"""Models written into files, with data files, and large weights moved to files while a model is rewritten.

Tensors that were in data files of the source are written into data files again. A rewrite copies, serializes and loads
a model a dozen times; with a gigabyte of weights inside, that takes most of its time and memory. So `spill_weights`
leaves weights in the data files of a path, and moves others to a temporary file.
"""

import os
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, TypeAlias

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.external_data_helper import ExternalDataInfo, set_external_data

from unpool.errors import FileError
from unpool.files import FileSet, is_any, is_same, resolve_target
from unpool.graph import weights
from unpool.graph.data_file import DataFile, DataReader
from unpool.graph.load import ModelSource, external_tensors, load_for_command
from unpool.graph.nodes import subgraphs

LARGE = 1024  # bytes; smaller tensors stay inside, as onnx leaves them
PAGE_BYTES = 4096  # bytes; runtimes map tensors that begin there
PADDING = 2**16  # bytes; the largest gap before a tensor that known writers leave
WHOLE = 2**63  # bytes; a tensor without a length uses its file to the end


@dataclass(frozen=True)
class ExternalFiles:
    """External data of a model file: the data file of each tensor, and the most bytes of each file that are used."""

    files: dict[str, str]
    used: dict[str, int]

    def paths(self, model: Path) -> list[Path]:
        """Of all data files."""
        return [model.parent / name for name in self.used]


def external_files(path: Path) -> ExternalFiles:
    """The data files of a model file; none for a file that holds no model."""
    files: dict[str, str] = {}
    used: dict[str, int] = {}
    try:
        model = onnx.load(str(path), load_external_data=False)
        for tensor in external_tensors(model):
            entry = ExternalDataInfo(tensor)
            files[tensor.name] = entry.location
            used[entry.location] = used.get(entry.location, 0) + PADDING + (entry.length or WHOLE)
    except Exception:  # loading the model reports it
        return ExternalFiles({}, {})
    return ExternalFiles(files, used)


class ModelWriter:
    """Writes a rewritten model from the file `source` to the file `output`, with its data files.

    A new model has one data file, called after it: `m.onnx.data`. A model that replaces its source also replaces the
    data files of its source.
    """

    def __init__(self, source: Path, output: Path) -> None:
        self._output = output
        self._outside = external_files(source)
        self._is_source = is_same(source, output)
        names = list(self._outside.used)
        self._name = names[0] if self._is_source and names else f"{output.name}.data"
        resolve_target(output)
        if self._is_source:
            self._refuse_shared()
        elif names:
            self._refuse_other(source)

    def write(self, model: onnx.ModelProto) -> list[Path]:
        """Write all files or none, and return the data files; the model loses the data that are written into these."""
        is_large = weights.is_too_large(model)
        if is_large and not self._outside.used:
            self._refuse_other(self._output)
        moved: dict[str, list[onnx.TensorProto]] = {}
        for tensor in _initializers(model.graph):
            name = self._data_file(tensor, is_large)
            if weights.folder_of(tensor) is not None or (name and tensor.HasField("raw_data")):
                moved.setdefault(name or self._name, []).append(tensor)
        with FileSet() as files:
            for name, tensors in moved.items():
                with files.open(self._output.parent / name) as stream:
                    for tensor in tensors:
                        write_data(tensor, name, stream)
            with files.open(self._output) as stream:
                stream.write(weights.serialize(model, str(self._output)))
        return [self._output.parent / name for name in moved]

    def _data_file(self, tensor: onnx.TensorProto, is_large: bool) -> str:
        before = self._outside.files.get(tensor.name)
        if before is not None and self._is_source:
            return before
        is_moved = before is not None or (len(tensor.raw_data) >= LARGE and (is_large or self._outside.used))
        return self._name if is_moved else ""

    def _refuse_shared(self) -> None:
        for name, used in self._outside.used.items():
            data = self._output.parent / name
            size = os.path.getsize(data) if os.path.exists(data) else 0
            if size > used:
                fact = f"has {size} bytes, of which {self._output} uses at most {used}"
                raise FileError(f"{data}: {fact}. Choose another path for the model.")

    def _refuse_other(self, source: Path) -> None:
        """Refuse to replace a data file, except that of a model which is replaced together with it."""
        data = self._output.parent / self._name
        resolve_target(data)
        if not data.exists():
            return
        of_source = [] if is_same(source, self._output) else self._outside.paths(source)
        if is_any(data, of_source) or not is_any(data, external_files(self._output).paths(self._output)):
            fact = f"exists, and is no data file of {self._output} alone"
            raise FileError(f"{data}: {fact}. Move it, or choose another name.")


def _initializers(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for _, subgraph in subgraphs(node):
            yield from _initializers(subgraph)


def write_data(tensor: onnx.TensorProto, name: str, stream: BinaryIO) -> None:
    """Write the data of a tensor into its data file `name`, which the tensor refers to from now on."""
    is_stored = weights.folder_of(tensor) is not None
    size = weights.byte_size(tensor) if is_stored else len(tensor.raw_data)
    stream.write(bytes(-stream.tell() % (PAGE_BYTES if size >= PAGE_BYTES else 64)))
    offset = stream.tell()
    if is_stored:
        with DataReader() as reader:
            stream.writelines(reader.chunks(weights.data_range(tensor)))
    else:
        stream.write(tensor.raw_data)
    tensor.raw_data = b""  # set_external_data requires the field
    set_external_data(tensor, name, offset, size)
    tensor.ClearField("raw_data")


MIN_SPILLED_BYTES = 2**26  # bytes of weights that are worth a file
SPILL_FILE = "weights"

Restore: TypeAlias = Callable[[onnx.ModelProto], onnx.ModelProto]


@contextmanager
def spill_weights(source: ModelSource) -> Iterator[tuple[onnx.ModelProto, Restore]]:
    """The model with its large weights in files, and a function that puts them back into a model with these weights.

    A ModelProto is not changed, and does not get the data of weights that it keeps in files itself.
    """
    model = load_for_command(source, MIN_SPILLED_BYTES)
    of_source = set(_stored(model)) if isinstance(source, onnx.ModelProto) else set()
    with TemporaryDirectory(prefix="unpool-", ignore_cleanup_errors=True) as folder:
        fed = {value.name for value in model.graph.input}
        spilled = {
            tensor.name: tensor
            for tensor in model.graph.initializer
            if tensor.name not in fed
            and tensor.data_location != onnx.TensorProto.EXTERNAL
            and weights.can_stay_in_file(tensor, weights.byte_size(tensor))
        }
        if not _stored(model) and sum(map(weights.byte_size, spilled.values())) > MIN_SPILLED_BYTES:
            model = _spilled(model, spilled, Path(os.path.realpath(folder)))

        def restore(other: onnx.ModelProto) -> onnx.ModelProto:
            for tensor in other.graph.initializer:
                if weights.folder_of(tensor) is not None and tensor.name not in of_source:
                    tensor.CopyFrom(weights.with_data_inside(tensor))
            return other

        yield model, restore


def _stored(model: onnx.ModelProto) -> list[str]:
    return [tensor.name for tensor in model.graph.initializer if weights.folder_of(tensor) is not None]


def _spilled(model: onnx.ModelProto, spilled: Container[str], folder: Path) -> onnx.ModelProto:
    """A copy of the model whose `spilled` weights are in a file of the folder, each from a new page on."""
    copy = onnx.ModelProto()
    weights.copy_fields(model, copy, "graph")
    weights.copy_fields(model.graph, copy.graph, "initializer")
    with (folder / SPILL_FILE).open("wb") as file:
        for tensor in model.graph.initializer:
            if tensor.name not in spilled:
                copy.graph.initializer.append(tensor)
                continue
            file.write(bytes(-file.tell() % PAGE_BYTES))
            bare = copy.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            bare.data_location = onnx.TensorProto.EXTERNAL
            place = {"location": SPILL_FILE, "offset": file.tell(), "length": weights.byte_size(tensor)}
            for key, value in place.items():
                bare.external_data.add(key=key, value=str(value))
            file.write(np.ascontiguousarray(numpy_helper.to_array(tensor)).view(np.uint8).data)
            weights.keep_in_file(bare, DataFile(str(folder), SPILL_FILE))
    return copy
