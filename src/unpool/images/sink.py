"""A file as a tensor whose windows are written and read back; and an array in a file as it lies in memory.

Arrays are never mapped: pages of a mapped file count as memory of the process, many times the window where rows are
short, and a write to a mapped file on a full disk ends the process.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import FileIO
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from unpool.errors import FileError
from unpool.files import sync
from unpool.images.axes import Array, AxisMapping, Shape, Slices, normalize_slices, shape_of


@dataclass(frozen=True)
class OutputSpec:
    """Shape, type and chunks of an output file.

    Attributes:
        shape: of the tensor.
        dtype: of its elements.
        channel: the axis of its channels; None where it has none.
        piece: the shape of what a tile gives at most; a format with chunks aligns them with it.
        spatial_header: the header of the volume that the model saw, which says where its voxels are and in which units.
        classes: of how many channels the numbers are those of the best; 0 where they are values.
    """

    shape: Shape
    dtype: np.dtype[Any]
    channel: int | None
    piece: Shape
    spatial_header: Any = None
    classes: int = 0


@dataclass(frozen=True)
class Sink:
    """A file as a tensor.

    Attributes:
        shape: of the tensor.
        arrangement: of the file's axes.
        store: writes a window of the file.
        load: reads a window of the file.
        sync: returns when all that was stored in a window is on the disk.
        repair: makes the file whole again after an interruption; the content of windows of it is kept.
    """

    shape: Shape
    arrangement: AxisMapping
    store: Callable[[Slices, Array], None]
    load: Callable[[Slices], Array]
    sync: Callable[[Slices], None]
    repair: Callable[[Iterable[Slices]], None]

    def write(self, slices: Slices, tensor: Array) -> None:
        """Write a window of the tensor; it is on the disk when this returns."""
        window = self.arrangement.slices(normalize_slices(slices, self.shape))
        self.store(window, np.ascontiguousarray(self.arrangement.stored(tensor)))
        self.sync(window)

    def read(self, slices: Slices) -> Array:
        """A window of the tensor.

        Raises:
            OSError: it cannot be read.
        """
        return self.arrangement.tensor(self.load(self.arrangement.slices(normalize_slices(slices, self.shape))))

    def keep(self, windows: Iterable[Slices]) -> None:
        """Prepare the file of an interrupted run: these windows keep their content, all others may be written."""
        self.repair(self.arrangement.slices(normalize_slices(window, self.shape)) for window in windows)


class RawArrayFile:
    """An array in a file, in row-major order; the file is open as long as a window is read or written.

    Args:
        path: of the file.
        shape: of the array.
        dtype: of its elements, in the order of bytes that the file has.
        offset: bytes before the first element.
    """

    def __init__(self, path: Path, shape: Shape, dtype: np.dtype[Any], offset: int) -> None:
        self.path, self.shape, self.dtype, self._offset = path, shape, dtype, offset

    def read(self, slices: Slices, offset: int = 0) -> Array:
        """A window of the array that begins `offset` bytes later."""
        made = np.empty(shape_of(slices), self.dtype)
        flat = made.reshape(-1).view(np.uint8)
        with self.path.open("rb", buffering=0) as file:
            for first, (start, size) in _runs(self.shape, slices, self.dtype.itemsize):
                file.seek(self._offset + offset + start)
                self._fill(file, flat[first : first + size].data)
        return made

    def write(self, slices: Slices, array: Array, offset: int = 0) -> None:
        """Write a window of the array that begins `offset` bytes later."""
        flat = np.ascontiguousarray(array, self.dtype).reshape(-1).view(np.uint8)
        with self.path.open("r+b", buffering=0) as file:
            for first, (start, size) in _runs(self.shape, slices, self.dtype.itemsize):
                file.seek(self._offset + offset + start)
                left = flat[first : first + size].data
                while left:
                    left = left[file.write(left) :]

    def sync(self, _: Slices) -> None:
        """Return when all that was written is on the disk."""
        with self.path.open("rb") as file:
            sync(file.fileno())

    def _fill(self, file: FileIO, left: memoryview) -> None:
        while left:
            count = file.readinto(left)
            if not count:
                raise FileError(f"{self.path}: the file is truncated ({len(left)} bytes missing).")
            left = left[count:]


def reserve(path: Path, size: int) -> None:
    """Make a file of `size` bytes, and reserve them on the disk."""
    with path.open("r+b" if path.exists() else "w+b") as file:
        if hasattr(os, "posix_fallocate") and size:
            os.posix_fallocate(file.fileno(), 0, size)
        file.truncate(size)
        sync(file.fileno())


def require_header(path: Path, header: Mapping[int, bytes], kind: str) -> None:
    """Refuse a file that holds other bytes around its elements than this run writes there.

    Args:
        path: of the file; a link is refused.
        header: by offset, bytes that it has to hold.
        kind: of file, for the message.

    Raises:
        FileError: a byte differs, or it is no file.
    """
    if path.is_symlink() or not path.is_file():
        raise FileError(f"{path}: is not the {kind} file of an interrupted run. Delete {path.parent} to start over.")
    with path.open("rb") as file:
        for offset, expected in header.items():
            file.seek(offset)
            found = file.read(len(expected))
            if found != expected:
                same = (here == there for here, there in zip(found, expected, strict=False))
                place = next((at for at, is_same in enumerate(same) if not is_same), len(found))
                here, there = found[place : place + 16], expected[place : place + 16]
                raise FileError(
                    f"{path}: its {kind} header differs from that of this run at byte {offset + place}, "
                    f"{here!r} instead of {there!r}. Delete {path.parent} to start over."
                )


def _runs(shape: Shape, slices: Slices, item: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """The parts of a window that lie in one piece: where each begins in the window, and in the array, and its bytes.

    >>> list(_runs((4, 6), (slice(1, 3), slice(2, 5)), 1))
    [(0, (8, 3)), (3, (14, 3))]
    >>> list(_runs((4, 6), (slice(1, 3), slice(0, 6)), 1))
    [(0, (6, 12))]
    """
    if 0 in shape_of(slices):
        return
    cut = len(shape)
    while cut and slices[cut - 1] == slice(0, shape[cut - 1]):
        cut -= 1
    cut = max(cut - 1, 0)
    steps = [prod(shape[axis + 1 :]) * item for axis in range(len(shape))]
    inner = sum(part.start * step for part, step in zip(slices[cut:], steps[cut:], strict=True))
    size = prod(shape_of(slices[cut:])) * item
    for number, place in enumerate(np.ndindex(*shape_of(slices[:cut]))):
        outer = sum((part.start + at) * step for part, at, step in zip(slices[:cut], place, steps[:cut], strict=True))
        yield number * size, (outer + inner, size)
