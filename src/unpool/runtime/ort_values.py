"""Arrays <-> onnxruntime's OrtValue, for the types that NumPy lacks too.

`OrtValue.ortvalue_from_numpy` keeps the array in its Python object only: what `numpy()` or another OrtValue makes of it
later points to memory that may have gone. What is made here owns its memory, or holds the array through DLPack.
"""

import ctypes
import math
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
from onnx import helper
from onnxruntime.capi import _pybind_state

from unpool.dtypes import AnyArray
from unpool.errors import UnsupportedError

NUMPY_LACKS = {
    f"tensor({word})": np.dtype(kind)
    for word, kind in (
        ("bfloat16", ml_dtypes.bfloat16),
        ("float8e4m3fn", ml_dtypes.float8_e4m3fn),
        ("float8e4m3fnuz", ml_dtypes.float8_e4m3fnuz),
        ("float8e5m2", ml_dtypes.float8_e5m2),
        ("float8e5m2fnuz", ml_dtypes.float8_e5m2fnuz),
    )
}
_SHARED_KINDS = "biuf"  # of NumPy's types, those that DLPack has and onnxruntime reads


def to_ort_value(value: Any) -> onnxruntime.OrtValue:
    """The array as an OrtValue on the CPU that lives on its own.

    It shares the memory of a writable array in row-major order; others, and types that NumPy lacks, are copied.

    Raises:
        UnsupportedError: OrtValue has no such type.

    >>> to_ort_value(np.ones(2, ml_dtypes.bfloat16)).data_type()
    'tensor(bfloat16)'
    """
    array = np.asarray(value, order="C")
    is_shared = array.dtype.kind in _SHARED_KINDS and array.dtype not in NUMPY_LACKS.values() and array.flags.writeable
    try:
        return _shared(array) if is_shared else _copied(array)
    except (BufferError, RuntimeError, ValueError, KeyError) as error:
        raise UnsupportedError(
            f"OrtValue: expected an array of numbers that onnxruntime can hold, got one of {array.dtype.name}. "
            "Use run, which gives arrays."
        ) from error


def from_ort_value(value: onnxruntime.OrtValue) -> Any:
    """The array of an OrtValue that holds a tensor; a copy only of types that NumPy lacks."""
    if value.data_type() not in NUMPY_LACKS:
        return value.numpy()
    kind, shape = NUMPY_LACKS[value.data_type()], value.shape()
    raw = ctypes.string_at(value.data_ptr(), math.prod(shape) * kind.itemsize)
    return np.frombuffer(bytearray(raw), kind).reshape(shape)


def _shared(array: AnyArray) -> onnxruntime.OrtValue:
    """An OrtValue that holds the array; DLPack has one code for booleans, NumPy and onnxruntime each know another."""
    is_bool = array.dtype == np.bool_
    capsule = (array.view(np.uint8) if is_bool else array).__dlpack__()
    return onnxruntime.OrtValue(_pybind_state.OrtValue.from_dlpack(capsule, is_bool))


def _copied(array: AnyArray) -> onnxruntime.OrtValue:
    """An OrtValue with memory of its own."""
    if array.dtype.kind not in _SHARED_KINDS and array.dtype not in NUMPY_LACKS.values():
        raise ValueError(f"no numbers: {array.dtype}")
    element = helper.np_dtype_to_tensor_dtype(array.dtype)
    made = onnxruntime.OrtValue.ortvalue_from_shape_and_type(array.shape, element)
    ctypes.memmove(made.data_ptr(), array.ctypes.data, array.nbytes)
    return made
