"""Keeps the large weights of a model in files while the model is rewritten and verified, so that nothing copies them.

A rewrite copies, serializes and loads a model a dozen times: with a gigabyte of weights inside, that is most of its
time and memory. Weights that a path keeps in data files stay there; others are spilled to a temporary file.
"""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, TypeAlias

import numpy as np
import onnx
from onnx import numpy_helper

from unpool.runtime.graph.load import ModelSource, load_for_command
from unpool.runtime.graph.real_file import RealFile
from unpool.runtime.graph.weight_files import can_stay, folder_of, size_of, stay, with_data
from unpool.runtime.graph.without_weights import copy_fields

LEAST = 2**26
"""Bytes of weights for which a file is worth it."""

NAME = "weights"
PAGE = 4096  # bytes; what begins there is mapped

Restore: TypeAlias = Callable[[onnx.ModelProto], onnx.ModelProto]


@contextmanager
def with_spilled_weights(source: ModelSource) -> Iterator[tuple[onnx.ModelProto, Restore]]:
    """The model with its large weights in files, and what puts them back into another model with the same weights.

    A ModelProto is not changed. Weights that it keeps in files itself are not put into it.

    Raises:
        UnpoolError: as `load` does.
    """
    model = load_for_command(source, LEAST)
    of_source = set(_stored(model)) if isinstance(source, onnx.ModelProto) else set()
    with TemporaryDirectory(prefix="unpool-", ignore_cleanup_errors=True) as folder:
        if not _stored(model) and sum(size_of(one) for one in model.graph.initializer if _may_go(model, one)) > LEAST:
            model = _spilled(model, Path(os.path.realpath(folder)))

        def restore(other: onnx.ModelProto) -> onnx.ModelProto:
            for tensor in other.graph.initializer:
                if folder_of(tensor) is not None and tensor.name not in of_source:
                    tensor.CopyFrom(with_data(tensor))
            return other

        yield model, restore


def _stored(model: onnx.ModelProto) -> list[str]:
    return [tensor.name for tensor in model.graph.initializer if folder_of(tensor) is not None]


def _may_go(model: onnx.ModelProto, tensor: onnx.TensorProto) -> bool:
    """Whether an initializer has its data inside, can be mapped, and cannot be fed."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.name in {value.name for value in model.graph.input}:
        return False
    return can_stay(tensor, _bytes(tensor))


def _bytes(tensor: onnx.TensorProto) -> int:
    """The length of the data of a tensor, as its type and dimensions say."""
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return int(math.prod(tensor.dims) * kind.itemsize)


def _spilled(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """A copy of the model whose large weights are in a file of the folder."""
    copy = onnx.ModelProto()
    copy_fields(model, copy, leave="graph")
    copy_fields(model.graph, copy.graph, leave="initializer")
    with (folder / NAME).open("wb") as file:
        for tensor in model.graph.initializer:
            copy.graph.initializer.append(_moved(tensor, file, folder) if _may_go(model, tensor) else tensor)
    return copy


def _moved(tensor: onnx.TensorProto, file: BinaryIO, folder: Path) -> onnx.TensorProto:
    """The tensor with its data written to the file, from the next page on."""
    file.write(bytes(-file.tell() % PAGE))
    bare = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    bare.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", NAME), ("offset", file.tell()), ("length", _bytes(tensor))):
        bare.external_data.add(key=key, value=str(value))
    file.write(np.ascontiguousarray(numpy_helper.to_array(tensor)).view(np.uint8).data)
    stay(bare, RealFile(str(folder), NAME))
    return bare
