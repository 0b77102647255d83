"""The caller's arrays and NumPy arrays, without a copy: NumPy itself, and anything with `__dlpack__` on the CPU.

DLPack has a code for bfloat16 that NumPy does not read: those bits travel as int16 where the owner can view them so.
"""

import sys
from collections.abc import Callable
from typing import Any, cast

import ml_dtypes
import numpy as np

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError

_CPU_DEVICES = (1, 3)  # kDLCPU and kDLCUDAHost of DLPack


def to_numpy(x: Any, name: str) -> AnyArray:
    """A NumPy view of the caller's array.

    Args:
        x: a NumPy array, or an object with `__dlpack__` whose memory is on the CPU.
        name: how errors call it.

    Raises:
        UnpoolError: not an array, not on the CPU, or part of a gradient graph.
    """
    if isinstance(x, np.ndarray):
        return x
    if isinstance(x, np.generic):
        return np.asarray(x)
    if _is_torch(x) and x.is_cpu:
        return _from_torch(x, name)
    if not hasattr(x, "__dlpack__"):
        raise UnpoolError(
            f"{name}: expected a NumPy array or an array with __dlpack__, got {type(x).__name__}. Use np.asarray(...)."
        )
    _check_device(x, name)
    try:
        return np.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError) as cause:
        if hasattr(x, "__array__"):
            return np.asarray(x)
        raise UnpoolError(f"{name}: expected an array that NumPy can view, got {cause}. Convert it.") from cause


def like(y: AnyArray, model: Any) -> Any:
    """`y` as the kind of array that `model` is, sharing its memory."""
    if isinstance(model, (np.ndarray, np.generic)):
        return y
    if _is_torch(model):
        return _to_torch(y)
    convert = _converter(model)
    return y if convert is None else convert(y)


def _check_device(x: Any, name: str) -> None:
    if hasattr(x, "__dlpack_device__"):
        kind, number = x.__dlpack_device__()
        if int(kind) not in _CPU_DEVICES:
            raise UnpoolError(
                f"{name}: expected memory on the CPU, got DLPack device ({int(kind)}, {number}). Copy it to the host."
            )


def _is_torch(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _from_torch(x: Any, name: str) -> AnyArray:
    if x.requires_grad:
        raise UnpoolError(f"{name}: expected a tensor without gradient, got requires_grad=True. Use x.detach().")
    torch = sys.modules["torch"]
    x = x.resolve_conj().resolve_neg()
    array = x.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if x.dtype == torch.bfloat16 else x.numpy()
    return cast(AnyArray, array)


def _to_torch(y: AnyArray) -> Any:
    torch = sys.modules["torch"]
    if y.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(y.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(y)


def _converter(model: Any) -> Callable[[AnyArray], Any] | None:
    """The function that makes an array of the model's library out of a NumPy array, if the library has one."""
    namespace = getattr(model, "__array_namespace__", None)
    library = namespace() if namespace else sys.modules.get(type(model).__module__.partition(".")[0])
    return getattr(library, "from_dlpack", None) or getattr(library, "asarray", None)
