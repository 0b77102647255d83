"""Arrays <-> onnxruntime's OrtValue, for the types that NumPy lacks too."""

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
from onnx import TensorProto

NUMPY_LACKS = {
    f"tensor({name})": (np.dtype(bits), np.dtype(kind), element)
    for name, bits, kind, element in (
        ("bfloat16", np.uint16, ml_dtypes.bfloat16, TensorProto.BFLOAT16),
        ("float8e4m3fn", np.uint8, ml_dtypes.float8_e4m3fn, TensorProto.FLOAT8E4M3FN),
        ("float8e4m3fnuz", np.uint8, ml_dtypes.float8_e4m3fnuz, TensorProto.FLOAT8E4M3FNUZ),
        ("float8e5m2", np.uint8, ml_dtypes.float8_e5m2, TensorProto.FLOAT8E5M2),
        ("float8e5m2fnuz", np.uint8, ml_dtypes.float8_e5m2fnuz, TensorProto.FLOAT8E5M2FNUZ),
    )
}
_BY_KIND = {kind: (bits, element) for bits, kind, element in NUMPY_LACKS.values()}


def to_ort_value(value: Any) -> onnxruntime.OrtValue:
    """The array as an OrtValue on the CPU, without a copy if it is in row-major order.

    >>> to_ort_value(np.ones(2, ml_dtypes.bfloat16)).data_type()
    'tensor(bfloat16)'
    """
    array = np.asarray(value, order="C")
    if array.dtype in _BY_KIND:
        bits, element = _BY_KIND[array.dtype]
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(bits), element)
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def from_ort_value(value: onnxruntime.OrtValue) -> Any:
    """The array of an OrtValue; a copy only of types that NumPy lacks."""
    if value.data_type() not in NUMPY_LACKS:
        return value.numpy()
    _, kind, _ = NUMPY_LACKS[value.data_type()]
    raw = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(bytearray(raw), kind).reshape(value.shape())
