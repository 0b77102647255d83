"""Conversions between arrays and onnxruntime's OrtValue, also for the types that NumPy lacks.

`OrtValue.ortvalue_from_numpy` keeps the array in its Python object only, so an array or OrtValue that is made from it
later may point to freed memory. OrtValues of this module own their memory, or hold the array through DLPack.
"""

import ctypes
import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from onnxruntime.capi import _pybind_state

from unpool.dtypes import AnyArray
from unpool.errors import UnsupportedError
from unpool.onnxruntime.package import onnxruntime

NUMPY_LACKS = {
    f"tensor({name.replace('_', '')})": np.dtype(getattr(ml_dtypes, name))
    for name in ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
}
_INTS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_FLOATS = {"tensor(float)": np.dtype(np.float32), "tensor(double)": np.dtype(np.float64)}
KINDS = NUMPY_LACKS | _FLOATS | {f"tensor({kind})": np.dtype(kind) for kind in ("bool", "float16", *_INTS)}
"""The type of an array by onnxruntime's name: all tensors of numbers except complex and packed ones."""
_SHARED_KINDS = "biuf"  # of NumPy's types, those that DLPack has and onnxruntime reads


def to_ort_value(value: Any) -> onnxruntime.OrtValue:
    """The array as an OrtValue of its own: it shares memory that is writable and in row-major order, or is a copy."""
    array = np.asarray(value, order="C")
    is_shared = array.dtype.kind in _SHARED_KINDS and array.dtype not in NUMPY_LACKS.values() and array.flags.writeable
    try:
        return ort_value_sharing(array, np.uint8, is_bool=array.dtype == np.bool_) if is_shared else _copied(array)
    except (BufferError, RuntimeError, ValueError, KeyError) as error:
        raise UnsupportedError(
            f"OrtValue: expected an array of numbers that onnxruntime can hold, got one of {array.dtype.name}. "
            "Use run, which gives arrays."
        ) from error


def from_ort_value(value: onnxruntime.OrtValue) -> Any:
    """The array of an OrtValue that holds a tensor; of numbers on the CPU it shares and holds the memory."""
    kind = KINDS.get(value.data_type())
    if kind is None or value.device_name() != "cpu":
        return value.numpy()
    return array_at(value.data_ptr(), value.shape(), kind, value)


def array_at(address: int, shape: Sequence[int], kind: np.dtype[Any], owner: object = None) -> AnyArray:
    """An array in existing memory; it holds the owner."""
    size = math.prod(shape) * kind.itemsize
    if not size:
        return np.empty(shape, kind)
    return np.asarray(Memory(address, size, owner)).view(kind).reshape(shape)


class Memory:
    """Bytes at an address, by the array interface of NumPy or of CUDA."""

    def __init__(self, address: int, size: int, owner: object, interface: str = "__array_interface__") -> None:
        self.owner = owner
        setattr(self, interface, {"version": 3, "data": (address, False), "shape": (size,), "typestr": "|u1"})


def ort_value_sharing(x: Any, uint8: Any, *, is_bool: bool) -> onnxruntime.OrtValue:
    """An OrtValue that shares and holds the memory of an array or a tensor, by DLPack.

    Before 1.32, onnxruntime takes booleans as bytes, of the type `uint8`, with a flag.
    """
    if is_bool and not _has_dlpack_bool():
        return onnxruntime.OrtValue(_pybind_state.OrtValue.from_dlpack(x.view(uint8).__dlpack__(), True))
    return onnxruntime.OrtValue(_pybind_state.OrtValue.from_dlpack(x.__dlpack__()))


@cache
def _has_dlpack_bool() -> bool:
    array: AnyArray = np.zeros(1, np.bool_)
    try:
        _pybind_state.OrtValue.from_dlpack(array.__dlpack__())
    except (TypeError, RuntimeError, ValueError):
        return False
    return True


def _copied(array: AnyArray) -> onnxruntime.OrtValue:
    """An OrtValue with memory of its own."""
    if array.dtype.kind not in _SHARED_KINDS and array.dtype not in NUMPY_LACKS.values():
        raise ValueError(f"no numbers: {array.dtype}")
    from onnx import helper  # few callers need it

    element = helper.np_dtype_to_tensor_dtype(array.dtype)
    value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(array.shape, element)
    ctypes.memmove(value.data_ptr(), array.ctypes.data, array.nbytes)
    return value
