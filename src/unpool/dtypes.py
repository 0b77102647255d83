"""Storage types: their names, the bits for comparing them, and the types for computing with them.

16-bit floats are stored as bits, compared as order-preserving integers and computed in float32.
"""

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from unpool.errors import UnpoolError

AnyArray = np.ndarray[Any, np.dtype[Any]]


class StorageType(NamedTuple):
    """One element type of the operators, in native byte order."""

    name: str  # in NumPy and ml_dtypes
    dtype: np.dtype[Any]
    bits: np.dtype[Any]  # the integers of equal width that kernels see
    compute: np.dtype[Any]  # of products, sums and activations
    lowest: float | int  # the maximum of nothing: minus infinity, or the smallest integer
    infinity: int  # bit pattern of +infinity; 0 for integer types

    @property
    def is_float(self) -> bool:
        """True if the type has an infinity."""
        return self.infinity != 0


def _float(name: str, dtype: Any, bits: type, compute: type) -> StorageType:
    infinity = int(np.array(np.inf, dtype).view(bits))
    return StorageType(name, np.dtype(dtype), np.dtype(bits), np.dtype(compute), -np.inf, infinity)


def _integer(name: str, dtype: type) -> StorageType:
    return StorageType(name, np.dtype(dtype), np.dtype(dtype), np.dtype(np.float32), int(np.iinfo(dtype).min), 0)


TYPES = {
    storage.name: storage
    for storage in (
        _float("float16", np.float16, np.int16, np.float32),
        _float("bfloat16", ml_dtypes.bfloat16, np.int16, np.float32),
        _float("float32", np.float32, np.int32, np.float32),
        _float("float64", np.float64, np.int64, np.float64),
        _integer("int8", np.int8),
        _integer("uint8", np.uint8),
    )
}
_BY_DTYPE = {storage.dtype: storage for storage in TYPES.values()}


def storage_type(dtype: np.dtype[Any], where: str) -> StorageType:
    """The storage type of a NumPy dtype, which has to be one of the six, in the machine's byte order."""
    if dtype in _BY_DTYPE:
        return _BY_DTYPE[dtype]
    if not dtype.isnative:
        native = dtype.newbyteorder("=")
        raise UnpoolError(
            f"{where}: expected native byte order, got {dtype.str!r} (big-endian here). Use x.astype({native.name!r})."
        )
    raise UnpoolError(f"{where}: expected one of {', '.join(TYPES)}; got {dtype.name}. Convert it first.")
