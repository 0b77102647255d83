"""Checks that every operator makes on its tensors: type, rank, and how the shape splits."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from unpool.display import format_shape
from unpool.dtypes import TYPES, StorageType, storage_type
from unpool.errors import ShapeError, UnpoolError, UnsupportedError
from unpool.operators.contract import ROWS, Row

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FeatureShape:
    """The shape of a feature map, apart from its layout."""

    batch: int
    channels: int
    spatial: Shape

    def in_layout(self, row: Row) -> Shape:
        """The shape as the row's layout orders it."""
        if row.is_channels_last:
            return (self.batch, *self.spatial, self.channels)
        return self.in_onnx_order()

    def in_onnx_order(self) -> Shape:
        """(N, C, D1..Dk)."""
        return (self.batch, self.channels, *self.spatial)


def feature_shape(row: Row, name: str, shape: Shape) -> FeatureShape:
    """Split the shape of an input in the row's layout.

    Raises:
        ShapeError: there is no spatial axis.
    """
    if len(shape) < 3:
        layout = "(N, D1..Dk, C)" if row.is_channels_last else "(N, C, D1..Dk)"
        raise ShapeError(
            f"{row.label}: {name} needs rank 3 or more, {layout}, got rank {len(shape)}: {format_shape(shape)}. "
            "Add the missing axes."
        )
    if row.is_channels_last:
        return FeatureShape(shape[0], shape[-1], shape[1:-1])
    return FeatureShape(shape[0], shape[1], shape[2:])


def value_type(row: Row, name: str, dtype: np.dtype[Any]) -> StorageType:
    """The storage type of an input, if this version has it.

    Raises:
        UnsupportedError: another version accepts the type; the message says which.
        UnpoolError: no version does, or the byte order is foreign.
    """
    if dtype in row.dtypes:
        return row.dtypes[dtype]
    where = f"{row.label}: {name}"
    if dtype.isnative and dtype.name not in TYPES:
        raise UnpoolError(f"{where} expects one of {', '.join(row.value_types)}; got {dtype.name}. Convert the tensor.")
    storage = storage_type(dtype, where)
    rows = [other for other in ROWS if other.operator == row.operator and storage.name in other.value_types]
    expected = f"{where} expects one of {', '.join(row.value_types)}; got {storage.name}"
    if rows:
        raise UnsupportedError(f"{expected}, which {rows[0].label} accepts. Raise the opset or convert the tensor.")
    raise UnsupportedError(f"{expected}. Convert the tensor.")


def same_type(row: Row, names: str, first: np.dtype[Any], second: np.dtype[Any]) -> None:
    """Inputs that share one type variable have equal types.

    Raises:
        UnpoolError: they differ.
    """
    if first != second:
        raise UnpoolError(
            f"{row.label}: {names} need one type, got {first.name} and {second.name}. Convert one of them."
        )


def index_type(label: str, name: str, dtype: np.dtype[Any]) -> None:
    """Index tensors are int64 in every version.

    Raises:
        UnpoolError: they are not.
    """
    if dtype != np.int64 or not dtype.isnative:
        raise UnpoolError(f"{label}: {name} expects int64, got {dtype.str!r}. Use astype('int64').")
