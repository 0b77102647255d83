"""Checks that every operator makes on its tensors: type, rank, and how the shape splits."""

from typing import Any, NamedTuple

import numpy as np

from unpool.display import format_shape
from unpool.dtypes import TYPES, StorageType, storage_type
from unpool.errors import ShapeError, UnpoolError, UnsupportedError
from unpool.operators.contract import ROWS, Row

Shape = tuple[int, ...]


class FeatureShape(NamedTuple):
    """The shape of a feature map, independent of its layout."""

    batch: int
    channels: int
    spatial: Shape

    def in_layout(self, row: Row) -> Shape:
        """The shape as the row's layout orders it."""
        return (self.batch, *self.spatial, self.channels) if row.is_channels_last else self.in_onnx_order()

    def in_onnx_order(self) -> Shape:
        """(N, C, D1..Dk)."""
        return (self.batch, self.channels, *self.spatial)


def feature_shape(row: Row, name: str, shape: Shape) -> FeatureShape:
    """The shape of an input in the row's layout, split; without a spatial axis a ShapeError."""
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
    """The storage type of an input.

    Raises:
        UnsupportedError: another version accepts the type; the message says which.
        UnpoolError: no version does, or the byte order is not the machine's.
    """
    if dtype in row.dtypes:
        return row.dtypes[dtype]
    expected = f"{row.label}: {name} expects one of {', '.join(row.value_types)}; got {dtype.name}"
    if dtype.isnative and dtype.name not in TYPES:
        raise UnpoolError(f"{expected}. Convert the tensor.")
    storage = storage_type(dtype, f"{row.label}: {name}")
    rows = [other for other in ROWS if other.operator == row.operator and storage.name in other.value_types]
    if rows:
        raise UnsupportedError(f"{expected}, which {rows[0].label} accepts. Raise the opset or convert the tensor.")
    raise UnsupportedError(f"{expected}. Convert the tensor.")


def same_type(row: Row, names: str, first: np.dtype[Any], second: np.dtype[Any]) -> None:
    """Refuse inputs of different types that share one type variable."""
    if first != second:
        if not second.isnative:
            storage_type(second, f"{row.label}: {names.rpartition(' ')[2]}")  # refuses it
        raise UnpoolError(
            f"{row.label}: {names} need one type, got {first.name} and {second.name}. Convert one of them."
        )


def check_like(row: Row, x: Shape, residual: Shape | None) -> None:
    """Refuse an X without channels, or a residual of another shape."""
    if len(x) < 2:
        raise ShapeError(f"{row.label}: X needs rank 2 or more, (N, C, ...), got {format_shape(x)}.")
    if residual is not None and residual != x:
        raise ShapeError(
            f"{row.label}: residual needs the shape of X, {format_shape(x)}, got {format_shape(residual)}."
        )


def index_type(label: str, name: str, dtype: np.dtype[Any]) -> None:
    """Refuse an index tensor that is not int64, the type in every version."""
    if dtype != np.int64 or not dtype.isnative:
        raise UnpoolError(f"{label}: {name} expects int64, got {dtype.str!r}. Use astype('int64').")
