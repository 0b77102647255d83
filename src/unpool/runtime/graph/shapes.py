"""Reads the element type and the sizes off an ONNX type, and makes such types."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from unpool.errors import UnpoolError, suggest_name
from unpool.runtime.graph.symbolic import Dims

Types = dict[str, onnx.TypeProto]


def dims(type_: onnx.TypeProto | None) -> Dims | None:
    """Sizes of a tensor type, the name or None for each unknown one; None when the rank is unknown.

    >>> dims(onnx.helper.make_tensor_type_proto(1, [1, "h", None, 8]))
    (1, 'h', None, 8)
    """
    if type_ is None or not type_.tensor_type.HasField("shape"):
        return None
    return tuple(
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in type_.tensor_type.shape.dim
    )


def sizes(type_: onnx.TypeProto | None) -> tuple[int | None, ...] | None:
    """Sizes of a tensor type, None for each unknown one; None when the rank is unknown.

    >>> sizes(onnx.helper.make_tensor_type_proto(1, [1, "h", None, 8]))
    (1, None, None, 8)
    """
    known = dims(type_)
    return None if known is None else tuple(dim if isinstance(dim, int) else None for dim in known)


def dtype(type_: onnx.TypeProto | None) -> np.dtype[Any] | None:
    """NumPy type of a tensor type; None when it is unknown or not a tensor of numbers."""
    if type_ is None or not type_.HasField("tensor_type") or not type_.tensor_type.elem_type:
        return None
    return np.dtype(helper.tensor_dtype_to_np_dtype(type_.tensor_type.elem_type))


def tensor_type(element: int, known: Sequence[int | str | None] | None) -> onnx.TypeProto:
    """The type of a tensor; `known` None leaves the rank open."""
    return helper.make_tensor_type_proto(element, known)


def rank_only(type_: onnx.TypeProto) -> onnx.TypeProto:
    """The type with its rank, every size left open."""
    known = sizes(type_)
    if known is None:
        return type_
    return tensor_type(type_.tensor_type.elem_type, [None] * len(known))


def without_shape(type_: onnx.TypeProto) -> onnx.TypeProto:
    """The type with its rank and sizes left open."""
    copy = onnx.TypeProto()
    copy.CopyFrom(type_)
    if copy.HasField("tensor_type"):
        copy.tensor_type.ClearField("shape")
    return copy


def element(type_: onnx.TypeProto | None) -> int:
    """The element type of a tensor type as ONNX numbers it; 0 when it is unknown, -1 when it is no tensor."""
    if type_ is None:
        return 0
    return type_.tensor_type.elem_type if type_.HasField("tensor_type") else -1


def require_known(sizes: Mapping[str, int], dims: Iterable[int | str | None]) -> None:
    """Refuse sizes for names that no input of a model has.

    Args:
        sizes: by name.
        dims: of all inputs.

    Raises:
        UnpoolError: a name is none of theirs.
    """
    names = sorted({dim for dim in dims if isinstance(dim, str) and dim})
    unknown = sorted(set(sizes) - set(names))
    if unknown:
        raise UnpoolError(
            f"sizes: expected names from {', '.join(names) or 'none'}, the sizes that the inputs leave open, "
            f"got {', '.join(unknown)}. {suggest_name(unknown[0], names)}"
        )
