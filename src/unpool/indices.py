"""Flat indices: whole-tensor and per-plane, row-major and column-major, and from one shape to another.

A flat index of ONNX counts elements of the whole (N, C, D1..Dk) tensor; one of PyTorch counts inside its own
(n, c) plane. -1 marks a window without data and stays -1.
"""

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from unpool.errors import IndicesError, ShapeError

Indices = npt.NDArray[np.int64]


def plane_bases(shape: tuple[int, ...], plane: int) -> Indices:
    """The whole-tensor index of the first element of every (n, c) plane, shaped to broadcast over `shape`."""
    bases = np.arange(shape[0] * shape[1], dtype=np.int64) * plane
    return bases.reshape(shape[:2] + (1,) * (len(shape) - 2))


def to_onnx(per_plane: Indices, spatial: tuple[int, ...]) -> Indices:
    """Indices (N, C, d1..dk) into planes of `spatial` as whole-tensor indices i + (n * C + c) * D1 * .. * Dk."""
    plane = _plane_size(per_plane, spatial)
    _check_range(per_plane, plane, "to_onnx_indices")
    return np.where(per_plane < 0, per_plane, per_plane + plane_bases(per_plane.shape, plane))


def to_torch(whole: Indices, spatial: tuple[int, ...]) -> Indices:
    """Whole-tensor indices (N, C, d1..dk) as indices i - (n * C + c) * D1 * .. * Dk into planes of `spatial`."""
    plane = _plane_size(whole, spatial)
    per_plane = np.where(whole == -1, whole, whole - plane_bases(whole.shape, plane))
    _check_range(per_plane, plane, "to_torch_indices")
    return per_plane


def to_column_major(row_major: Indices, spatial: tuple[int, ...]) -> Indices:
    """Whole-tensor indices whose planes have the first spatial axis fastest (storage_order 1); -1 stays."""
    plane = math.prod(spatial)
    if plane == 0:
        return row_major
    base, inside = np.divmod(row_major, plane)
    weights = [math.prod(spatial[:number]) for number in range(len(spatial))]
    return base * plane + _weighted_sum(inside, spatial, weights)


def rebase(flat: Indices, source: tuple[int, ...], target: tuple[int, ...]) -> Indices:
    """Indices of elements of `source` as indices of the same coordinates in `target`, both whole shapes.

    An index outside `source` becomes an arbitrary number: compare it before using it as an address.

    >>> rebase(np.array([5, 7]), (1, 1, 4, 4), (1, 1, 5, 5))
    array([6, 8])
    """
    return _weighted_sum(flat, source, [math.prod(target[number + 1 :]) for number in range(len(target))])


def from_part(flat: Indices, part: tuple[int, ...], whole: tuple[int, ...], first: int) -> Indices:
    """Indices into a box of a tensor, of shape `part`, as indices into the whole tensor; -1 stays.

    `first` is the flat index in the tensor of the first element of the box.

    >>> from_part(np.array([-1, 0, 3]), (1, 1, 2, 2), (1, 1, 4, 4), 5)
    array([-1,  5, 10])
    """
    return np.where(flat < 0, flat, rebase(flat, part, whole) + first)


def _weighted_sum(flat: Indices, shape: tuple[int, ...], weights: list[int]) -> Indices:
    """Row-major indices in `shape` as the sum of their coordinates, each times the weight of its axis.

    One axis at a time: coordinates of all axes at once would take a multiple of the memory, and NumPy's functions for
    them support fewer axes than its arrays.
    """
    axes = [(size, weight) for size, weight in zip(shape, weights, strict=True) if size > 1] or [(1, 1)]
    total, rest = None, flat
    for size, weight in reversed(axes[1:]):
        quotient = rest // size
        place = (rest - quotient * size) * weight
        total, rest = place if total is None else total + place, quotient
    return rest * axes[0][1] if total is None else total + rest * axes[0][1]


def out_of_range(
    indices: Indices, position: int, limit: int, where: str, origin: tuple[int, ...] | None = None
) -> IndicesError:
    """The error for the element at flat `position`, not in [0, limit), of indices that begin at `origin` of a whole."""
    place = tuple(int(coordinate) for coordinate in np.unravel_index(position, indices.shape))
    at = [offset + first for offset, first in zip(place, origin or (0,) * len(place), strict=True)]
    return IndicesError(
        f"{where}: indices need values from 0 to {limit - 1}, got {int(indices[place])} at {at}. "
        "Pass the indices of the pool that made X, and its input shape as output_shape."
    )


def outside_its_plane(where: str, plane: int, value: int, place: Iterable[int]) -> IndicesError:
    """The error for an index that is `value`, counted from its own plane, which has `plane` elements."""
    return IndicesError(
        f"{where}: indices inside planes of {plane} elements expected, got {value} counted from its own plane, at "
        f"{[int(p) for p in place]}. Check the spatial shape."
    )


def _plane_size(indices: Indices, spatial: tuple[int, ...]) -> int:
    if indices.ndim != len(spatial) + 2:
        fact = f"{indices.ndim - 2} sizes expected for indices of rank {indices.ndim}, got {list(spatial)}"
        raise ShapeError(f"spatial_shape: {fact}. Give the spatial shape that the indices count in.")
    return math.prod(spatial)


def _check_range(per_plane: Indices, plane: int, where: str) -> None:
    wrong = np.flatnonzero((per_plane < -1) | (per_plane >= plane))
    if wrong.size:
        place = np.unravel_index(wrong[0], per_plane.shape)
        raise outside_its_plane(where, plane, int(per_plane[place]), place)
