"""A source whose elements become those that an input takes, where every one of them can."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import helper

from unpool.errors import UnpoolError
from unpool.runtime.graph.type_names import parse
from unpool.runtime.streams.arrangement import Array, Shape, Slices
from unpool.runtime.streams.fingerprint import fingerprint_array
from unpool.runtime.streams.source import Readable


def numpy_type(type_name: str) -> np.dtype[Any] | None:
    """NumPy's type for one in the words of a session; None where it is no tensor of numbers.

    >>> str(numpy_type("tensor(float)"))
    'float32'
    """
    parsed = parse(type_name)
    if parsed is None or type_name == "tensor(string)":
        return None
    return np.dtype(helper.tensor_dtype_to_np_dtype(parsed.tensor_type.elem_type))


@dataclass(frozen=True)
class Cast:
    """A source in another type; its windows are cast when they are read."""

    source: Readable
    dtype: np.dtype[Any]

    @property
    def shape(self) -> Shape:
        """Of the whole tensor."""
        return self.source.shape

    @property
    def space(self) -> Any:
        """The header that says where voxels are, where the source has one."""
        return getattr(self.source, "space", None)

    def __getitem__(self, slices: Slices) -> Array:
        """A window."""
        return np.asarray(self.source[slices]).astype(self.dtype)

    def fingerprint(self) -> str:
        """Equal for two of the same content."""
        return self.source.fingerprint() if hasattr(self.source, "fingerprint") else fingerprint_array(self.source)


def cast_source(source: Any, type_name: str, name: str) -> Any:
    """The source in the type that an input takes.

    Raises:
        UnpoolError: that type does not hold every value, such as float32 for float64.
    """
    wanted, have = numpy_type(type_name), np.dtype(source.dtype)
    if wanted is None or wanted == have:
        return source
    if wanted.kind in "biufc" and have.kind in "biufc" and np.can_cast(have, wanted, "safe"):
        return Cast(source, wanted)
    raise UnpoolError(f"input {name!r}: expected {wanted}, or what fits into it, got {have}. Convert the file first.")
