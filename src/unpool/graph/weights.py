"""Weights of models: taken out of a model, read from files, and kept within the 2 GiB of a protobuf message.

onnx's C++ functions copy a whole model and stop at 2 GiB, so they get one without its large initializers. Large weights
that stay in the files next to a model are read one by one, where a step needs them (`data_file.py`). Such a tensor has
one more entry in its external data: the folder of its file, with all links resolved. `without_folder` removes that
entry. Its key is random in every process, so that no file can contain it. A tensor whose data are in the file of the
model itself, among its other bytes, has another such entry, with the stamp of the file: one that was replaced since is
an error.
"""

import math
import os
import sys
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import EncodeError, Message
from onnx import TensorProto, external_data_helper, helper, numpy_helper
from onnx.external_data_helper import ExternalDataInfo

from unpool.dtypes import AnyArray
from unpool.errors import UnsupportedError
from unpool.graph.data_file import DataFile, DataRange, DataReader

LARGE = 1024  # elements


def strip_initializers(
    model: onnx.ModelProto, is_stripped: Callable[[onnx.TensorProto], bool] | None = None
) -> onnx.ModelProto:
    """A skeleton: a copy of the model in which initializers, by default the large ones, became inputs of their type."""
    is_stripped = is_stripped or is_large
    skeleton = onnx.ModelProto()
    copy_fields(model, skeleton, "graph")
    copy_fields(model.graph, skeleton.graph, "initializer")
    inputs = {value.name for value in model.graph.input}
    for tensor in model.graph.initializer:
        if not is_stripped(tensor):
            skeleton.graph.initializer.append(tensor)
        elif tensor.name not in inputs:
            skeleton.graph.input.append(as_input(tensor))
    return skeleton


def restore_initializers(
    skeleton: onnx.ModelProto, model: onnx.ModelProto, is_stripped: Callable[[onnx.TensorProto], bool] | None = None
) -> onnx.ModelProto:
    """The skeleton, changed in place, with the inputs and stripped initializers of the model that it was made from."""
    inputs = {value.name for value in model.graph.input}
    kept = [value for value in skeleton.graph.input if value.name in inputs]
    del skeleton.graph.input[:]
    skeleton.graph.input.extend(kept)
    skeleton.graph.initializer.extend(filter(is_stripped or is_large, model.graph.initializer))
    return skeleton


def is_large(tensor: onnx.TensorProto) -> bool:
    """True if a tensor is left out of a skeleton."""
    return bool(math.prod(tensor.dims) > LARGE)


def as_input(tensor: onnx.TensorProto) -> onnx.ValueInfoProto:
    """An input of the name, type and shape of a tensor."""
    return helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))


def copy_fields(source: Any, target: Any, *exclude: str) -> None:
    """Copy the fields of a message but for some."""
    for description, value in source.ListFields():
        if description.name in exclude:
            continue
        if isinstance(value, (int, str)):
            setattr(target, description.name, value)
        elif isinstance(value, Message):
            getattr(target, description.name).CopyFrom(value)
        else:
            getattr(target, description.name).extend(value)


class ElementsNeededError(Exception):
    """The elements of a bare weight are asked for: the step has to run on the whole model."""


FOLDER_KEY = f"unpool.folder.{os.urandom(16).hex()}"
MODEL_KEY = f"unpool.model.{os.urandom(16).hex()}"
BARE_KEY = "unpool.weight"  # of the first entry of a bare weight, in bare.py
_PACKED_NAMES = ("STRING", "INT4", "UINT4", "INT2", "UINT2", "FLOAT4E2M1", "UNDEFINED")
_WHOLE = {number for word, number in TensorProto.DataType.items() if word not in _PACKED_NAMES}


def can_stay_in_file(tensor: onnx.TensorProto, length: int) -> bool:
    """True if a tensor of `length` bytes in a file is read later: it is large, and its elements are whole bytes."""
    is_plain = is_large(tensor) and has_whole_bytes(tensor) and sys.byteorder == "little"
    return is_plain and length == byte_size(tensor)


def has_whole_bytes(tensor: onnx.TensorProto) -> bool:
    """True if the elements of a tensor are numbers of whole bytes."""
    return tensor.data_type in _WHOLE


def keep_in_file(tensor: onnx.TensorProto, file: DataFile) -> None:
    """Note the file of a tensor whose data stay there; the tensor is changed."""
    for entry in tensor.external_data:
        if entry.key == "location":
            entry.value = file.name
    tensor.external_data.add(key=FOLDER_KEY, value=file.folder)


def folder_of(tensor: onnx.TensorProto) -> str | None:
    """The folder of the file that has the data of a tensor; None if the tensor has them itself."""
    if not external_data_helper.uses_external_data(tensor):
        return None
    return next((entry.value for entry in tensor.external_data if entry.key == FOLDER_KEY), None)


def is_bare(tensor: onnx.TensorProto) -> bool:
    """True for a weight that is only a name; others with external data have a folder in front, or none was read."""
    return external_data_helper.uses_external_data(tensor) and tensor.external_data[0].key == BARE_KEY


def array_of(tensor: onnx.TensorProto) -> AnyArray:
    """The elements of a tensor; those in a file are read, cannot be changed, and may raise a FileError.

    Raises an ElementsNeededError for a bare one.
    """
    if folder_of(tensor) is None:
        if is_bare(tensor):
            raise ElementsNeededError(tensor.name)
        return numpy_helper.to_array(tensor)
    array: AnyArray = np.empty(tuple(tensor.dims), helper.tensor_dtype_to_np_dtype(tensor.data_type))
    with DataReader() as reader:
        reader.read_into(data_range(tensor), array.reshape(-1).view(np.uint8).data)
    array.flags.writeable = False
    return array


def own_array_of(tensor: onnx.TensorProto) -> AnyArray:
    """The elements of a tensor in memory of their own, which can be changed; errors as of `array_of`."""
    array = array_of(tensor)
    if not array.flags.owndata:
        return np.array(array)
    array.flags.writeable = True
    return array


def data_range(tensor: onnx.TensorProto) -> DataRange:
    """The place of the data of a tensor that `keep_in_file` was called on."""
    given = {entry.key: entry.value for entry in tensor.external_data}
    file, offset = DataFile(given[FOLDER_KEY], given["location"]), int(given.get("offset", 0))
    return DataRange(file, offset, byte_size(tensor), tensor.name, given.get(MODEL_KEY))


def external_data_of(tensor: onnx.TensorProto) -> ExternalDataInfo:
    """The place of the data of a tensor; onnx warns of other entries."""
    others = (entry for entry in tensor.external_data if entry.key not in (FOLDER_KEY, MODEL_KEY))
    return ExternalDataInfo(onnx.TensorProto(name=tensor.name, external_data=others))


def is_in_model_file(tensor: onnx.TensorProto) -> bool:
    """True if a tensor has its data among the other bytes of the file of its model."""
    return any(entry.key == MODEL_KEY for entry in tensor.external_data)


def array_type(tensor: onnx.TensorProto) -> tuple[tuple[int, ...], str]:
    """The shape of a tensor, and the name of its type in NumPy: unsigned integers for a type that it lacks."""
    kind = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
    return tuple(tensor.dims), kind.str if kind.isbuiltin == 1 else f"u{kind.itemsize}"


def byte_size(tensor: onnx.TensorProto) -> int:
    """Bytes of the elements of a tensor whose elements are whole bytes."""
    return int(math.prod(tensor.dims) * np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize)


def without_folder(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """The tensor as other libraries take it: itself, without the entry of unpool, or with its data inside."""
    if folder_of(tensor) is None:
        return tensor
    return with_data_inside(tensor) if is_in_model_file(tensor) else _without_own_entries(tensor)


def _without_own_entries(tensor: onnx.TensorProto) -> onnx.TensorProto:
    copy = deepcopy(tensor)
    del copy.external_data[:]
    copy.external_data.extend(entry for entry in tensor.external_data if entry.key not in (FOLDER_KEY, MODEL_KEY))
    return copy


def with_data_inside(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """The tensor with its data inside, read from its file; itself, if it has them."""
    return tensor if folder_of(tensor) is None else numpy_helper.from_array(own_array_of(tensor), tensor.name)


LARGEST_MESSAGE = 2**31 - 1  # bytes, the limit of protobuf


def serialize(model: onnx.ModelProto, where: str) -> bytes:
    """The bytes of a model, which errors call `where`; it has to fit into one message."""
    content = try_serialize(model)
    if content is None:
        advice = "Save it with its weights in a data file (onnx.save, save_as_external_data=True), and pass its path."
        raise UnsupportedError(
            f"{where}: the model exceeds 2 GiB, weights included, the limit of an ONNX file. {advice}"
        )
    return content


def try_serialize(model: onnx.ModelProto) -> bytes | None:
    """The bytes of a model; None where it does not fit into one protobuf message."""
    try:
        content = bytes(model.SerializeToString())
    except EncodeError:
        return None
    return content if len(content) <= LARGEST_MESSAGE else None


def is_too_large(message: onnx.ModelProto | onnx.TensorProto) -> bool:
    """True if a model or a tensor does not fit into one protobuf message."""
    try:
        return bool(message.ByteSize() > LARGEST_MESSAGE)
    except EncodeError:  # protobuf cannot count so far
        return True


def initializers_as_inputs(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, AnyArray]]:
    """The model as it can be serialized, and arrays to feed: large initializers, unless all fit into a message."""
    if all(folder_of(tensor) is None for tensor in model.graph.initializer) and not is_too_large(model):
        return model, {}
    fed = {value.name for value in model.graph.input}
    weights = [tensor for tensor in model.graph.initializer if is_large(tensor) and tensor.name not in fed]
    return strip_initializers(model), {tensor.name: array_of(tensor) for tensor in weights}
