"""Conversion between the caller's arrays and NumPy arrays, without a copy: NumPy, and `__dlpack__` on the CPU.

NumPy lacks bfloat16 and the floats of 8 bits, and reads none of them by DLPack. ml_dtypes has them under torch's names,
so tensors of these types are converted as integers of the same size.
"""

import sys
from functools import cache
from typing import Any, cast

import ml_dtypes
import numpy as np

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError

_CPU_DEVICES = (1, 3)  # kDLCPU and kDLCUDAHost of DLPack
_GPU_DEVICES = (2, 13)  # kDLCUDA and kDLCUDAManaged
_REGISTERED = 2  # np.dtype.isbuiltin of a type that another library, ml_dtypes, has given to NumPy

GPU_DEVICE_TYPES = {"cuda"}
"""Types of torch devices whose tensors the kernels in Triton take. Tests in Triton's interpreter add "cpu"."""


def to_numpy(x: Any, name: str) -> AnyArray:
    """A NumPy view of the array that errors call `name`; no mask, no gradient, and on the CPU."""
    if isinstance(x, np.ndarray):
        if type(x) is not np.ndarray and isinstance(x, np.ma.MaskedArray):
            raise UnpoolError(
                f"{name}: expected an array without a mask, got a numpy.ma.MaskedArray. Pass x.filled(value), or "
                "x.data to ignore the mask."
            )
        return x
    if isinstance(x, np.generic):
        return np.asarray(x)
    if not hasattr(x, "__dlpack__"):
        raise UnpoolError(
            f"{name}: expected a NumPy array or an array with __dlpack__, got {type(x).__name__}. Use np.asarray(...)."
        )
    try:
        if _is_torch(x) and x.is_cpu:
            return _from_torch(x, name)
        kind, number = x.__dlpack_device__() if hasattr(x, "__dlpack_device__") else (_CPU_DEVICES[0], 0)
        if int(kind) not in _CPU_DEVICES:
            raise UnpoolError(
                f"{name}: expected memory on the CPU, got DLPack device ({int(kind)}, {number}). Copy it to the host."
            )
        return _from_dlpack(x)
    except UnpoolError:
        raise
    except Exception as cause:
        raise UnpoolError(f"{name}: NumPy cannot view this array: {cause}. Convert it to a NumPy array.") from cause


def is_on_gpu(x: Any) -> bool:
    """True if an array is on a GPU."""
    if isinstance(x, (np.ndarray, np.generic)):
        return False
    if _is_torch(x):
        return x.device.type in GPU_DEVICE_TYPES
    try:
        return int(x.__dlpack_device__()[0]) in _GPU_DEVICES
    except Exception:  # not an array, or a broken one: reading it raises the error
        return False


def like_gpu(y: Any, model: Any) -> Any:
    """A tensor of torch as the kind of array that `model` is, sharing its memory if the library can."""
    return y if _is_torch(model) else _convert(y, model)


def like(y: AnyArray, model: Any) -> Any:
    """`y` as the kind of array that `model` is, sharing memory if it can; NumPy if the library lacks the type."""
    if isinstance(model, (np.ndarray, np.generic)):
        return y
    return _to_torch(y) if _is_torch(model) else _convert(y, model)


def _from_dlpack(x: Any) -> AnyArray:
    """The array by DLPack, or by `__array__` for types that NumPy does not read by DLPack."""
    try:
        return np.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError):
        if not hasattr(x, "__array__"):
            raise
        return np.asarray(x)


def _is_torch(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _from_torch(x: Any, name: str) -> AnyArray:
    if x.requires_grad:
        raise UnpoolError(f"{name}: expected a tensor without gradient, got requires_grad=True. Use x.detach().")
    x = x.resolve_conj().resolve_neg()
    kind = _type_that_numpy_lacks(x.dtype)
    array = x.numpy() if kind is None else x.view(_integer_of_torch(kind)).numpy().view(kind)
    return cast(AnyArray, array)


def _to_torch(y: AnyArray) -> Any:
    torch = sys.modules["torch"]
    if y.dtype.isbuiltin == _REGISTERED:
        return torch.from_numpy(y.view(f"i{y.itemsize}")).view(getattr(torch, y.dtype.name))
    return torch.from_numpy(y)


@cache
def _type_that_numpy_lacks(torch_type: Any) -> np.dtype[Any] | None:
    """NumPy's name for torch's type of elements, if ml_dtypes has registered it; else None."""
    found = getattr(ml_dtypes, str(torch_type).removeprefix("torch."), None)
    return None if found is None else np.dtype(found)


def _integer_of_torch(kind: np.dtype[Any]) -> Any:
    """The integer of torch that has the size of a type."""
    return getattr(sys.modules["torch"], f"int{8 * kind.itemsize}")


def _convert(y: Any, model: Any) -> Any:
    namespace = getattr(model, "__array_namespace__", None)
    library: Any = namespace() if namespace else sys.modules.get(type(model).__module__.partition(".")[0])
    for name in ("from_dlpack", "asarray"):
        try:
            return getattr(library, name)(y)
        except Exception:
            continue
    return y
