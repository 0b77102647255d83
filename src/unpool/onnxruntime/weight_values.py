"""Large weights on their way to onnxruntime: arrays, or places in a file until the session is created.

A model without them is `rest`; protobuf joins the initializers of all fields `graph`, of which each weight gets one:

| weights that stay as they are | onnxruntime gets |
|---|---|
| below 16 MiB, or above 2 GiB, or not on Linux | bytes with the names of the weights, and values to copy |
| others | a file in memory with all of it, which is freed when it is parsed: slower, but no value is there twice |

Flipped weights do not count: beside their values, kernels pack them, which takes as much memory in the first run.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from io import FileIO
from typing import NamedTuple, TypeAlias

import numpy as np

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.graph.data_file import DataRange, DataReader
from unpool.graph.wire import as_field, field_head
from unpool.onnxruntime.package import onnxruntime
from unpool.operators.conv import flip_window

SMALLEST, LARGEST = 2**24, 2**31 - 2**20
"""Bytes of weights that stay as they are, and of all: the limit of protobuf, without names of weights."""

Create: TypeAlias = Callable[[str | bytes, onnxruntime.SessionOptions, Callable[[], object]], None]
"""Creates a session of onnxruntime from a path or bytes, and calls a function when these are parsed, if it can."""

_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9  # fields of ModelProto, GraphProto and TensorProto
_DATA_FILE = as_field(13, as_field(1, b"location") + as_field(2, b"unpool.value")) + bytes([14 << 3, 1])
"""The fields of a TensorProto whose data are in a file, which does not exist: a value takes its place."""


class WeightValue(NamedTuple):
    """A weight by its name, its TensorProto without data, and its elements, of a shape and type."""

    name: str
    head: bytes
    data: DataRange | AnyArray
    shape: tuple[int, ...]  # of the data
    dtype: str  # of the data in NumPy: unsigned integers for a type that it lacks
    element: int  # type of ONNX
    groups: int  # of a Conv, of which a ConvTranspose has every window flipped; 0 for a weight that stays as it is

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.data.size if isinstance(self.data, DataRange) else self.data.nbytes

    def read(self, reader: DataReader) -> AnyArray:
        """The elements; errors are those of the reader."""
        if isinstance(self.data, DataRange):
            array: AnyArray = np.empty(self.shape, self.dtype)
            reader.read_into(self.data, array.reshape(-1).view(np.uint8).data)
        else:
            array = self.data
        return flip_window(array, self.groups) if self.groups else array


def create_with(
    rest: bytes,
    weights: Sequence[WeightValue],
    options: onnxruntime.SessionOptions,
    create: Create,
    *,
    is_parsed_once: bool = True,
) -> None:
    """Create a session of a model, which has copies of the weights then.

    There is no file unless the model `is_parsed_once`: onnxruntime would find it empty.

    Raises:
        FileError: the file of the weights was replaced.
    """
    file = _memory_file(rest, weights) if weights and is_parsed_once else None
    if file is not None:
        with file:
            create(_path(file), options, partial(file.truncate, 0))
        return
    values = []
    if weights:
        new = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type
        with DataReader() as reader:
            values = [new(weight.read(reader), weight.element) for weight in weights]
        options.add_external_initializers([weight.name for weight in weights], values)
    heads = (_initializer(weight.head + _DATA_FILE) for weight in weights)
    create(b"".join((rest, *heads)), options, lambda: None)  # the values live until it returns


def _memory_file(rest: bytes, weights: Sequence[WeightValue]) -> FileIO | None:
    """An open file in memory with the whole model; None where values are better, and where there is no such file."""
    size = len(rest) + sum(weight.nbytes for weight in weights)
    plain = sum(weight.nbytes for weight in weights if not weight.groups)
    if not hasattr(os, "memfd_create") or plain < SMALLEST or size > LARGEST:
        return None
    try:
        file = os.fdopen(os.memfd_create("unpool"), "w+b", buffering=0)
    except OSError:
        return None
    try:
        if os.path.exists(_path(file)):
            _write(file, rest)
            with DataReader() as reader:
                for weight in weights:
                    _write_weight(file, weight, reader)
            return file
    except UnpoolError:  # the file of the weights is wrong; it is an OSError, too
        file.close()
        raise
    except OSError:  # there is no memory for it
        pass
    except BaseException:
        file.close()
        raise
    file.close()
    return None


def _path(file: FileIO) -> str:
    return f"/proc/self/fd/{file.fileno()}"


def _write_weight(file: FileIO, weight: WeightValue, reader: DataReader) -> None:
    _write(file, _initializer(weight.head + field_head(_RAW_DATA, weight.nbytes), weight.nbytes))
    if isinstance(weight.data, DataRange) and not weight.groups:
        reader.copy_to(weight.data, file.fileno())
    else:
        _write(file, np.ascontiguousarray(weight.read(reader)).reshape(-1).view(np.uint8).data)


def _write(file: FileIO, content: bytes | memoryview) -> None:
    """Write all of the content, where a write may end early for want of memory."""
    remaining = memoryview(content)
    while remaining:
        remaining = remaining[file.write(remaining) :]


def _initializer(content: bytes, following: int = 0) -> bytes:
    """The bytes of a graph of one initializer, of which so many are to follow."""
    head = field_head(_INITIALIZER, len(content) + following)
    return field_head(_GRAPH, len(head) + len(content) + following) + head + content
