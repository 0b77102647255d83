"""Large weights that stay in the files beside a model: they are mapped where somebody reads them, and never copied.

Such a tensor has an entry of ours among its external data: the folder of its file, with all links resolved. `as_stored`
takes it out again. Its key differs from process to process, so that no file of a stranger can have it.
"""

import math
import os
import sys
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, external_data_helper, helper, numpy_helper
from onnx.external_data_helper import ExternalDataInfo

from unpool.dtypes import AnyArray
from unpool.errors import FileError
from unpool.runtime.graph.errors import short_message
from unpool.runtime.graph.real_file import RealFile
from unpool.runtime.graph.without_weights import is_large

FOLDER = f"unpool.folder.{os.urandom(16).hex()}"
PIECE = 2**24  # bytes that are copied at a time
_PACKED = {
    number
    for word, number in TensorProto.DataType.items()
    if word in ("STRING", "INT4", "UINT4", "INT2", "UINT2", "FLOAT4E2M1", "UNDEFINED")
}


def can_stay(tensor: onnx.TensorProto, length: int) -> bool:
    """Whether a tensor of so many bytes in a file can be mapped: it is large, and its elements are whole bytes."""
    if not is_large(tensor) or tensor.data_type in _PACKED or sys.byteorder != "little":
        return False
    kind = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
    return length == kind.itemsize * int(np.prod(tensor.dims, dtype=object))


def stay(tensor: onnx.TensorProto, file: RealFile) -> None:
    """Note the file of a tensor whose data stay there; the tensor is changed."""
    for entry in tensor.external_data:
        if entry.key == "location":
            entry.value = file.name
    tensor.external_data.add(key=FOLDER, value=file.folder)


def folder_of(tensor: onnx.TensorProto) -> str | None:
    """The folder of the file that has the data of a tensor; None if the tensor has them itself."""
    if not external_data_helper.uses_external_data(tensor):
        return None
    return next((one.value for one in tensor.external_data if one.key == FOLDER), None)


def array_of(tensor: onnx.TensorProto) -> AnyArray:
    """The elements of a tensor; those in a file are mapped and cannot be changed.

    Raises:
        FileError: the file is gone, or shorter than it was.
    """
    folder = folder_of(tensor)
    if folder is None:
        return numpy_helper.to_array(tensor)
    file, offset = _place(tensor)
    kind = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
    try:
        with file.open() as stream:
            mapped: AnyArray = np.memmap(stream, kind, "r", offset, tuple(tensor.dims))
    except (OSError, ValueError) as error:
        raise _gone(tensor, file, error) from error
    return mapped


def _place(tensor: onnx.TensorProto) -> tuple[RealFile, int]:
    """The file of a tensor, and how many bytes come before its data."""
    place = ExternalDataInfo(as_stored(tensor))
    return RealFile(folder_of(tensor) or "", place.location), place.offset or 0


def _gone(tensor: onnx.TensorProto, file: RealFile, error: Exception) -> FileError:
    return FileError(
        f"{file.path}: expected the data of tensor {tensor.name!r}, got: {short_message(error)}. Leave the file where "
        "it was."
    )


def size_of(tensor: onnx.TensorProto) -> int:
    """Bytes of the elements of a tensor that can be mapped."""
    kind = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
    return int(math.prod(tensor.dims) * kind.itemsize)


def pieces(tensor: onnx.TensorProto) -> Iterator[bytes]:
    """The bytes of a tensor in a file, a piece at a time.

    Raises:
        FileError: the file is gone, or shorter than it was.
    """
    file, offset = _place(tensor)
    left = size_of(tensor)
    try:
        with file.open() as source:
            source.seek(offset)
            while left:
                piece = source.read(min(PIECE, left))
                if not piece:
                    raise ValueError(f"{left} bytes too few")
                left -= len(piece)
                yield piece
    except (OSError, ValueError) as error:
        raise _gone(tensor, file, error) from error


def as_stored(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """The tensor without the entry of ours; itself, if it has none."""
    if folder_of(tensor) is None:
        return tensor
    copy = onnx.TensorProto()
    copy.CopyFrom(tensor)
    kept = [one for one in copy.external_data if one.key != FOLDER]
    del copy.external_data[:]
    copy.external_data.extend(kept)
    return copy


def with_data(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """The tensor with its data inside, read from its file; itself, if it has them."""
    if folder_of(tensor) is None:
        return tensor
    return numpy_helper.from_array(np.array(array_of(tensor)), tensor.name)
