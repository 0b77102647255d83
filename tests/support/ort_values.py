"""Tensors between NumPy and onnxruntime, which takes bfloat16 from no array."""

import ctypes
import math

import ml_dtypes
import numpy as np
import onnxruntime
from onnx import TensorProto


def to_value(x: np.ndarray) -> onnxruntime.OrtValue:
    if x.dtype != ml_dtypes.bfloat16:
        return onnxruntime.OrtValue.ortvalue_from_numpy(x)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(x.view(np.uint16), TensorProto.BFLOAT16)


def to_numpy(value: onnxruntime.OrtValue) -> np.ndarray:
    if value.element_type() != TensorProto.BFLOAT16:
        return value.numpy()
    shape = value.shape()
    bits = (ctypes.c_uint16 * math.prod(shape)).from_address(value.data_ptr())
    return np.array(bits, np.uint16).reshape(shape).view(ml_dtypes.bfloat16)


def run_values(session: onnxruntime.InferenceSession, arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    """The outputs of a session, for arrays of any type by name."""
    names = [each.name for each in session.get_outputs()]
    values = session.run_with_ort_values(names, {name: to_value(x) for name, x in arrays.items()})
    return tuple(map(to_numpy, values))
