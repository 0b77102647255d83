"""Writes a model into its file; the tensors that its source kept in data files are written into data files again."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import onnx
from onnx.external_data_helper import ExternalDataInfo, set_external_data

from unpool.errors import FileError
from unpool.files import FileSet, is_any, is_same, resolve_target
from unpool.runtime.graph.external import external_tensors
from unpool.runtime.graph.nodes import bodies
from unpool.runtime.graph.serialized import is_too_large, serialize
from unpool.runtime.graph.weight_files import folder_of, pieces, size_of

LARGE = 1024  # bytes; smaller tensors stay inside, as onnx leaves them
PAGE = 4096  # bytes; runtimes map tensors that begin there
PADDING = 2**16  # bytes; the most that writers are known to leave before a tensor
WHOLE = 2**63  # bytes; a tensor without a length uses its file to the end


@dataclass(frozen=True)
class Outside:
    """What a model file keeps in data files: the file of each tensor, and how many bytes of each it uses at most."""

    files: dict[str, str]
    used: dict[str, int]

    def paths(self, model: Path) -> list[Path]:
        """The data files."""
        return [model.parent / name for name in self.used]


def outside(path: Path) -> Outside:
    """Where the tensors of a model file are kept; nothing is known of a file that holds no model."""
    files: dict[str, str] = {}
    used: dict[str, int] = {}
    try:
        model = onnx.load(str(path), load_external_data=False)
        for tensor in external_tensors(model):
            place = ExternalDataInfo(tensor)
            files[tensor.name] = place.location
            used[place.location] = used.get(place.location, 0) + PADDING + (place.length or WHOLE)
    except Exception:  # whoever reads the model says what is wrong with it
        return Outside({}, {})
    return Outside(files, used)


class ModelFile:
    """Where a rewritten model is written, with its data files.

    A model written to a new place has one data file of its own, called after it: `m.onnx.data`. A model that replaces
    its source also replaces the data files of its source.
    """

    def __init__(self, source: Path, output: Path) -> None:
        """`source` is the file of the model that was rewritten, `output` the file to be written.

        Raises:
            FileError: it cannot be written there, or a file is in the place of its data.
        """
        self._output = output
        self._outside = outside(source)
        self._is_source = is_same(source, output)
        names = list(self._outside.used)
        self._name = names[0] if self._is_source and names else f"{output.name}.data"
        resolve_target(output)
        if self._is_source:
            self._refuse_shared()
        elif names:
            self._refuse_other(source)

    def write(self, model: onnx.ModelProto) -> list[Path]:
        """Write all files or, when one of them fails, none.

        Args:
            model: loses the data of the tensors that are written into data files.

        Returns:
            the data files that were written.
        """
        is_large = is_too_large(model)
        if is_large and not self._outside.used:
            self._refuse_other(self._output)
        moved: dict[str, list[onnx.TensorProto]] = {}
        for tensor in _initializers(model.graph):
            name = self._data_file(tensor, is_large)
            if folder_of(tensor) is not None:
                moved.setdefault(name or self._name, []).append(tensor)
            elif name is not None and tensor.HasField("raw_data"):
                moved.setdefault(name, []).append(tensor)
        with FileSet() as files:
            for name, tensors in moved.items():
                with files.open(self._output.parent / name) as stream:
                    for tensor in tensors:
                        move(tensor, name, stream)
            with files.open(self._output) as stream:
                stream.write(serialize(model, str(self._output)))
        return [self._output.parent / name for name in moved]

    def _data_file(self, tensor: onnx.TensorProto, is_large: bool) -> str | None:
        was = self._outside.files.get(tensor.name)
        if was is not None and self._is_source:
            return was
        wanted = was is not None or (len(tensor.raw_data) >= LARGE and (is_large or self._outside.used))
        return self._name if wanted else None

    def _refuse_shared(self) -> None:
        """Refuse to replace a data file that holds more than the tensors of the source."""
        for name, used in self._outside.used.items():
            data = self._output.parent / name
            size = os.path.getsize(data) if os.path.exists(data) else 0
            if size > used:
                raise FileError(
                    f"{data}: expected the data of {self._output} only, got {size} bytes, of which it uses at most "
                    f"{used}. Choose another place for the model."
                )

    def _refuse_other(self, source: Path) -> None:
        """Refuse to replace a data file, except that of a model which is replaced together with it."""
        data = self._output.parent / self._name
        resolve_target(data)
        if not data.exists():
            return
        theirs = [] if is_same(source, self._output) else self._outside.paths(source)
        if is_any(data, theirs) or not is_any(data, outside(self._output).paths(self._output)):
            raise FileError(
                f"{data}: expected a free place for the data of {self._output}, got a file that is not its own. "
                "Move it, or choose another name."
            )


def _initializers(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for _, body in bodies(node):
            yield from _initializers(body)


def move(tensor: onnx.TensorProto, name: str, stream: BinaryIO) -> None:
    """Write the data of a tensor into its data file `name`, where the tensor finds it from now on."""
    is_stored = folder_of(tensor) is not None
    size = size_of(tensor) if is_stored else len(tensor.raw_data)
    stream.write(bytes(-stream.tell() % (PAGE if size >= PAGE else 64)))
    offset = stream.tell()
    if is_stored:
        stream.writelines(pieces(tensor))
    else:
        stream.write(tensor.raw_data)
    tensor.raw_data = b""  # what `set_external_data` asks for
    set_external_data(tensor, name, offset, size)
    tensor.ClearField("raw_data")
