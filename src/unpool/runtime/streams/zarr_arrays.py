"""Zarr arrays of version 3 in folders, window by window; chunks fit the tiles, so that each is written once."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from unpool.errors import FileError
from unpool.extras import require
from unpool.files import sync, sync_folder
from unpool.runtime.streams.arrangement import Arrangement, Slices, of_array
from unpool.runtime.streams.identity import folder_identity
from unpool.runtime.streams.opened import Wanted
from unpool.runtime.streams.sink import Sink, Written
from unpool.runtime.streams.source import Source

LONGEST = 1024
"""Elements of a chunk along a spatial axis, at most."""

LARGEST = 16 << 20
"""Bytes of a chunk, at most, unless a single channel has more."""

PACKAGES = ("zarr",)


def open_zarr(path: Path, wanted: Wanted) -> Source:
    """A Zarr array to read, of version 2 or 3; of a group of levels, as OME-Zarr writes it, the one that is wanted.

    Raises:
        FileError: no such array.
        MissingExtraError: zarr is not installed.
    """
    require(str(path), "formats", *PACKAGES)
    import zarr

    try:
        array: Any = zarr.open(str(path), mode="r")
        if isinstance(array, zarr.Group):
            array = array[str(wanted.level)]
        elif wanted.level:
            raise FileError(f"{path}: expected a group of levels, got a single array. Leave the level out.")
    except FileError:
        raise
    except Exception as error:  # zarr leads a folder that is none of its own to many
        raise FileError(f"{path}: expected a Zarr array, could not read it ({error}).") from error
    arrangement = of_array(array.shape, wanted.rank, wanted.layout, str(path))

    def read(slices: Slices) -> Any:
        return np.asarray(array[slices])

    return Source(path, array.shape, np.dtype(array.dtype), arrangement, read, lambda: folder_identity(path))


def create_zarr(path: Path, written: Written) -> None:
    """A Zarr array without chunks."""
    require(str(path), "formats", *PACKAGES)
    import zarr

    zarr.create_array(
        str(path),
        shape=written.shape,
        dtype=written.dtype,
        chunks=chunks(written),
        fill_value=0,
    )
    sync_all(path.rglob("*.json"))


def open_zarr_sink(path: Path, written: Written) -> Sink:
    """A Zarr array to write."""
    import zarr

    array: Any = zarr.open_array(str(path), mode="r+")

    def store(slices: Slices, part: Any) -> None:
        array[slices] = part

    def load(slices: Slices) -> Any:
        return np.asarray(array[slices])

    def synced(slices: Slices) -> None:
        names = ("/".join(map(str, ("c", *place))) for place in _touched(slices, array.chunks))
        sync_all(path / name for name in names)

    arrangement = Arrangement(tuple(range(len(written.shape))), len(written.shape))
    return Sink(written.shape, arrangement, store, load, synced)


def chunks(written: Written) -> tuple[int, ...]:
    """Chunks of which a tile has whole ones: along each axis the longest divisor of what a tile gives.

    >>> chunks(Written((1, 2, 9000, 9000), np.dtype(np.float32), 1, (1, 2, 2048, 1500)))
    (1, 2, 1024, 750)
    """
    found = [_divisor(size) for size in written.piece]
    found[0] = 1
    if written.channel is not None:
        found[written.channel] = written.shape[written.channel]
        if np.prod(found, dtype=object) * written.dtype.itemsize > LARGEST:
            found[written.channel] = 1
    return tuple(max(1, size) for size in found)


def sync_all(paths: Any) -> None:
    """Return when files and the names in their folders are on the disk; chunks of zeros alone have no file."""
    folders = set()
    for path in paths:
        if path.exists():
            with path.open("rb") as file:
                sync(file.fileno())
        if path.parent.exists():
            folders.add(path.parent)
    for folder in folders:
        sync_folder(folder)


def _divisor(size: int) -> int:
    """The longest that divides a size; where that is short, one that does not."""
    if size <= LONGEST:
        return size
    found = next(length for length in range(LONGEST, 0, -1) if size % length == 0)
    return found if found >= LONGEST // 8 else LONGEST // 2


def _touched(slices: Slices, lengths: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The places of the chunks that a window touches."""
    return product(
        *(range(part.start // length, -(-part.stop // length)) for part, length in zip(slices, lengths, strict=True))
    )
