"""Weights of models: taken out of a model, read from files, and kept within the 2 GiB of a protobuf message.

onnx's C++ functions copy a whole model and stop at 2 GiB, so they get one without its large initializers. Large weights
that stay in the files next to a model are read one by one, where a step needs them. They are never mapped: a file that
another process shortens would end this one. Such a tensor has one more entry in its external data: the folder of its
file, with all links resolved. `without_folder` removes that entry. Its key is random in every process, so that no file
can contain it. A tensor whose data are in the file of the model itself, among its other bytes, has another such
entry, with the stamp of the file: one that was replaced since is an error.
"""

import math
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import onnx
from google.protobuf.message import EncodeError, Message
from onnx import TensorProto, external_data_helper, helper, numpy_helper
from onnx.external_data_helper import ExternalDataInfo

from unpool.dtypes import AnyArray
from unpool.errors import FileError, UnsupportedError
from unpool.graph.errors import short_message

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


_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
_FOLDER_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_DIRECTORY", "O_CLOEXEC"))
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_WALKS = os.open in os.supports_dir_fd and _NO_LINK != 0  # files can be opened folder by folder; not on Windows


class ElementsNeededError(Exception):
    """The elements of a bare weight are asked for: the step has to run on the whole model."""


class OutsideFolderError(ValueError):
    """A data file lies in none of the folders; `is_link`: a link leads out, and not the name."""

    def __init__(self, text: str, *, is_link: bool) -> None:
        super().__init__(text)
        self.is_link = is_link


class DataFile(NamedTuple):
    """A file by a folder, an absolute path, and its name relative to it, neither of which contains a link."""

    folder: str
    name: str

    @property
    def path(self) -> str:
        """Folder and name joined."""
        return os.path.join(self.folder, self.name)

    def open(self) -> BinaryIO:
        """The file, opened for reading; an OSError if it is no regular file, or a link replaced a part of its name."""
        descriptor = self._descriptor()
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError("it is no regular file")
            if not _WALKS and os.path.realpath(self.path) != self.path:
                raise OSError("a link replaced it")
            return os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise

    def _descriptor(self) -> int:
        if not _WALKS:
            return os.open(self.path, _FLAGS | _NO_LINK)
        *folders, last = self.name.split(os.sep)
        at = os.open(self.folder, _FOLDER_FLAGS)
        try:
            for name in folders:
                inner = os.open(name, _FOLDER_FLAGS | _NO_LINK, dir_fd=at)
                os.close(at)
                at = inner
            return os.open(last, _FLAGS | _NO_LINK, dir_fd=at)
        finally:
            os.close(at)


def find_data_file(model: str | os.PathLike[str], location: str, folders: Iterable[str] = ()) -> DataFile:
    """The file that a model calls `location`, with all links resolved; as in onnxruntime, one in these folders.

    1. the one in which the model was named, as the system resolves it: link/.. is the folder around the link's target,
    2. that of the file that the model is a link to, as in the cache of the Hugging Face hub, or
    3. one that the caller named.

    Its name is relative, and does not leave the folder of the model by "..". Any other place is an OutsideFolderError,
    the folder itself an IsADirectoryError.
    """
    name = os.path.normpath(location)
    own = os.path.realpath(os.path.dirname(model))
    if os.path.splitdrive(name)[0] or name.split(os.sep)[0] in ("", os.pardir):
        raise OutsideFolderError("the name leaves the folder of the model", is_link=False)
    real = os.path.realpath(os.path.join(own, location))
    if real == own:
        raise IsADirectoryError("it is the folder of the model")
    for folder in (own, os.path.dirname(os.path.realpath(model)), *map(os.path.realpath, folders)):
        if real.startswith(os.path.join(folder, "")):
            return DataFile(folder, os.path.relpath(real, folder))
    raise OutsideFolderError(f"it is a link to {real}, outside of the folder of the model", is_link=True)


FOLDER_KEY = f"unpool.folder.{os.urandom(16).hex()}"
MODEL_KEY = f"unpool.model.{os.urandom(16).hex()}"
BARE_KEY = "unpool.weight"  # of the first entry of a bare weight, in bare.py
_REPLACED = "the file was replaced or written to while the model was loaded"
CHUNK = 2**24  # bytes that are copied at a time
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
    file, offset = _data_location(tensor)
    kind = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
    try:
        with file.open() as stream:
            stream.seek(offset)
            array: AnyArray = np.empty(tuple(tensor.dims), kind)
            if stream.readinto(array.reshape(-1).view(np.uint8)) < array.nbytes:  # type: ignore[attr-defined]
                raise ValueError("the file is too short")
            if _stamp_of(tensor) not in (None, file_stamp(stream)):
                raise ValueError(_REPLACED)
            array.flags.writeable = False
            return array
    except (OSError, ValueError) as error:
        raise _missing_data(tensor, file, error) from error


def own_array_of(tensor: onnx.TensorProto) -> AnyArray:
    """The elements of a tensor in memory of their own, which can be changed; errors as of `array_of`."""
    array = array_of(tensor)
    if not array.flags.owndata:
        return np.array(array)
    array.flags.writeable = True
    return array


def file_stamp(stream: Any) -> str:
    """A stamp of a file, which changes if the file is replaced or written to."""
    status = os.fstat(stream.fileno())
    return f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns}"


def _data_location(tensor: onnx.TensorProto) -> tuple[DataFile, int]:
    """The place of the data of a tensor that `keep_in_file` was called on."""
    given = {entry.key: entry.value for entry in tensor.external_data}
    return DataFile(given[FOLDER_KEY], given["location"]), int(given.get("offset", 0))


def external_data_of(tensor: onnx.TensorProto) -> ExternalDataInfo:
    """The place of the data of a tensor; onnx warns of other entries."""
    others = (entry for entry in tensor.external_data if entry.key not in (FOLDER_KEY, MODEL_KEY))
    return ExternalDataInfo(onnx.TensorProto(name=tensor.name, external_data=others))


def is_in_model_file(tensor: onnx.TensorProto) -> bool:
    """True if a tensor has its data among the other bytes of the file of its model."""
    return _stamp_of(tensor) is not None


def _stamp_of(tensor: onnx.TensorProto) -> str | None:
    return next((entry.value for entry in tensor.external_data if entry.key == MODEL_KEY), None)


def _missing_data(tensor: onnx.TensorProto, file: DataFile, error: Exception) -> FileError:
    fact = f"the data of tensor {tensor.name!r} cannot be read: {short_message(error)}"
    return FileError(f"{file.path}: {fact}. Leave the file where it was.")


def byte_size(tensor: onnx.TensorProto) -> int:
    """Bytes of the elements of a tensor whose elements are whole bytes."""
    return int(math.prod(tensor.dims) * np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize)


def read_chunks(tensor: onnx.TensorProto) -> Iterator[bytes]:
    """The bytes of a tensor in a file, at most CHUNK at a time; errors as of `array_of`."""
    file, offset = _data_location(tensor)
    remaining = byte_size(tensor)
    try:
        with file.open() as source:
            source.seek(offset)
            while remaining:
                chunk = source.read(min(CHUNK, remaining))
                if not chunk:
                    raise ValueError(f"{remaining} bytes too few")
                remaining -= len(chunk)
                yield chunk
            if _stamp_of(tensor) not in (None, file_stamp(source)):
                raise ValueError(_REPLACED)
    except (OSError, ValueError) as error:
        raise _missing_data(tensor, file, error) from error


def copy_elements(tensor: onnx.TensorProto, target: int) -> None:
    """Let the system copy the bytes of a tensor from its file to an open file; errors as of `array_of`."""
    file, offset = _data_location(tensor)
    remaining = byte_size(tensor)
    try:
        with file.open() as source:
            while remaining:
                copied = os.sendfile(target, source.fileno(), offset, remaining)
                if not copied:
                    raise ValueError(f"{remaining} bytes too few")
                remaining, offset = remaining - copied, offset + copied
            if _stamp_of(tensor) not in (None, file_stamp(source)):
                raise ValueError(_REPLACED)
    except (OSError, ValueError) as error:
        raise _missing_data(tensor, file, error) from error


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
