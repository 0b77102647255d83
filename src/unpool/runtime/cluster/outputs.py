"""The Zarr arrays that workers write: chunks end where tiles end, so that no two tiles write to the same chunk."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from unpool.errors import FileError, UnsupportedError
from unpool.runtime.tiles.tiling import Tiling
from unpool.runtime.tiles.walk import Shape

LONGEST = 1024
"""Elements of a chunk along a spatial axis, unless a tile has no divisor that is near to it."""

FINISHED = "unpool_finished"
"""The attribute that is true once all tiles are there."""


class Outputs:
    """The arrays of one run: one array where one output is wanted, else a group with an array for each."""

    def __init__(self, place: Any, names: tuple[str, ...]) -> None:
        """Begin it at a path or in a Zarr store.

        Raises:
            FileError: something is there, or nothing can be made there.
        """
        self._place, self._names = place, names
        self.arrays: dict[str, Any] = {}
        self._group: Any = None
        if len(names) != 1:
            self._group = self._made(lambda zarr: zarr.create_group(place, attributes={FINISHED: False}))

    def create(self, name: str, shape: Shape, chunks: Shape, dtype: "np.dtype[Any]") -> Any:
        """A new array.

        Raises:
            FileError: something is there, or nothing can be made there.
            UnsupportedError: Zarr has no such type.
        """
        if dtype.kind not in "?biuf":
            raise UnsupportedError(
                f"{self._place}: output {name!r}: expected a type that Zarr has, got {dtype}. Choose other outputs."
            )
        words = {"shape": shape, "chunks": tuple(max(1, size) for size in chunks), "dtype": dtype, "fill_value": 0}
        if self._group is None:
            attributes = {FINISHED: False}
            made = self._made(lambda zarr: zarr.create_array(self._place, attributes=attributes, **words))
        else:
            made = self._group.create_array(name.strip("/"), **words)
        self.arrays[name] = made
        return made

    def finish(self) -> None:
        """Say that everything is there."""
        root = self.arrays[self._names[0]] if self._group is None else self._group
        root.attrs[FINISHED] = True

    def _made(self, make: Any) -> Any:
        import zarr

        try:
            return make(zarr)
        except (OSError, ValueError) as error:  # zarr's own errors are ValueErrors
            raise FileError(
                f"{self._place}: expected a free place for Zarr arrays, got: {error}. Choose another."
            ) from error


def local_place(to: Any) -> Path | None:
    """The folder that Zarr arrays go into; None for a URL, or a store that is no folder.

    >>> local_place("masks/a.zarr").name, local_place("s3://masks/a.zarr")
    ('a.zarr', None)
    """
    if isinstance(to, (str, Path)):
        return None if "://" in str(to) else Path(to)
    root = getattr(getattr(to, "store", to), "root", None)
    return None if root is None else Path(root, getattr(to, "path", ""))


def chunks_of(tiling: Tiling, name: str) -> Shape:
    """Chunks of an output: those of a tile, or equal parts of them.

    >>> [_part(length) for length in (512, 4096, 3000, 4099)]
    [512, 1024, 1000, 4099]
    """
    lengths = [next(part.output_spans[name] for part in parts if name in part.output_spans) for parts in tiling.cells]
    field: Mapping[str, Any] = tiling.trace.fields
    sizes = [_part(span.stop - span.first) for span in lengths]
    pairs = zip(field[name].shape, field[name].axes, strict=True)
    return tuple(size if axis is None else sizes[axis] for size, axis in pairs)


def _part(length: int) -> int:
    """The largest equal part of a tile that is no longer than LONGEST; the whole where all parts are short."""
    parts = (length // count for count in range(1, length + 1) if length % count == 0)
    found = next((part for part in parts if part <= LONGEST), length)
    return found if found * 16 > LONGEST or found == length else length
