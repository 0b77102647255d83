"""Checks that every operator makes on its tensors: type, rank, and how the shape splits."""

from typing import Any, NamedTuple

import numpy as np

from unpool.display import format_shape
from unpool.dtypes import TYPES, StorageType, storage_type
from unpool.errors import ShapeError, UnpoolError, UnsupportedError
from unpool.operators.contract import VERSIONS, OperatorVersion

Shape = tuple[int, ...]


class FeatureShape(NamedTuple):
    """The shape of a feature map, independent of its layout."""

    batch: int
    channels: int
    spatial: Shape

    def in_layout(self, version: OperatorVersion) -> Shape:
        """The shape as the version's layout orders it."""
        return (self.batch, *self.spatial, self.channels) if version.is_channels_last else self.in_onnx_order()

    def in_onnx_order(self) -> Shape:
        """(N, C, D1..Dk)."""
        return (self.batch, self.channels, *self.spatial)


def feature_shape(version: OperatorVersion, name: str, shape: Shape) -> FeatureShape:
    """The shape of an input in the version's layout, split; without a spatial axis a ShapeError."""
    if len(shape) < 3:
        layout = "(N, D1..Dk, C)" if version.is_channels_last else "(N, C, D1..Dk)"
        raise ShapeError(
            f"{version.label}: {name} needs rank 3 or more, {layout}, got rank {len(shape)}: {format_shape(shape)}. "
            "Add the missing axes."
        )
    if version.is_channels_last:
        return FeatureShape(shape[0], shape[-1], shape[1:-1])
    return FeatureShape(shape[0], shape[1], shape[2:])


def value_type(version: OperatorVersion, name: str, dtype: np.dtype[Any]) -> StorageType:
    """The storage type of an input.

    Raises:
        UnsupportedError: another version accepts the type; the message says which.
        UnpoolError: no version does, or the byte order is not the machine's.
    """
    if dtype in version.dtypes:
        return version.dtypes[dtype]
    expected = f"{version.label}: {name} expects one of {', '.join(version.value_types)}; got {dtype.name}"
    if dtype.isnative and dtype.name not in TYPES:
        raise UnpoolError(f"{expected}. Convert the tensor.")
    storage = storage_type(dtype, f"{version.label}: {name}")
    versions = [other for other in VERSIONS if other.operator == version.operator and storage.name in other.value_types]
    if versions:
        raise UnsupportedError(f"{expected}, which {versions[0].label} accepts. Raise the opset or convert the tensor.")
    raise UnsupportedError(f"{expected}. Convert the tensor.")


def same_type(version: OperatorVersion, names: str, first: np.dtype[Any], second: np.dtype[Any]) -> None:
    """Refuse inputs of different types that share one type variable."""
    if first != second:
        if not second.isnative:
            storage_type(second, f"{version.label}: {names.rpartition(' ')[2]}")  # refuses it
        raise UnpoolError(
            f"{version.label}: {names} need one type, got {first.name} and {second.name}. Convert one of them."
        )


def check_like(version: OperatorVersion, x: Shape, residual: Shape | None) -> None:
    """Refuse an X without channels, or a residual of another shape."""
    if len(x) < 2:
        raise ShapeError(f"{version.label}: X needs rank 2 or more, (N, C, ...), got {format_shape(x)}.")
    if residual is not None and residual != x:
        raise ShapeError(
            f"{version.label}: residual needs the shape of X, {format_shape(x)}, got {format_shape(residual)}."
        )


def index_type(label: str, name: str, dtype: np.dtype[Any]) -> None:
    """Refuse an index tensor that is not int64, the type in every version."""
    if dtype != np.int64 or not dtype.isnative:
        raise UnpoolError(f"{label}: {name} expects int64, got {dtype.str!r}. Use astype('int64').")
