"""Writers of windows: files as tensors, and arrays in files.

Arrays are never mapped: pages of a mapped file count as memory of the process, many times the window where rows are
short, and a write to a mapped file on a full disk ends the process.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unpool.errors import FileError
from unpool.files import sync, sync_file
from unpool.images.axes import Array, AxisMapping, Shape, Slices, normalize_slices, shape_of


@dataclass(frozen=True)
class OutputSpec:
    """Shape and type of an output tensor, and the axis of its channels.

    `piece` is the maximum shape of what a tile gives; formats align chunks with it. `spatial_header` is that
    of the input volume. `classes` counts classes where elements are class numbers.
    """

    shape: Shape
    dtype: np.dtype[Any]
    channel: int | None
    piece: Shape
    spatial_header: Any = None
    classes: int = 0

    @property
    def spatial_axes(self) -> tuple[int, ...]:
        """All axes but the batch and the channels."""
        return tuple(axis for axis in range(1, len(self.shape)) if axis != self.channel)

    @property
    def channel_axes(self) -> tuple[int, ...]:
        """The axis of the channels; empty where there is only one channel."""
        return (self.channel,) if self.channel is not None and self.shape[self.channel] > 1 else ()


@dataclass(frozen=True)
class Sink:
    """A tensor of a shape in a file: `store`, `load` and `sync` take windows of the file.

    After an interruption, `repair` makes the file valid again; the windows of it that it is given keep their content.
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
        """A window of the tensor; an OSError where it cannot be read."""
        return self.arrangement.tensor(self.load(self.arrangement.slices(normalize_slices(slices, self.shape))))

    def keep(self, windows: Iterable[Slices]) -> None:
        """Prepare the file of an interrupted run: these windows keep their content, all others may be written."""
        self.repair(self.arrangement.slices(normalize_slices(window, self.shape)) for window in windows)


class RawArrayFile:
    """A row-major array `offset` bytes into a file, which is open only while a window is read or written.

    `read` and `write` take a further offset in bytes for one of several arrays of this shape.
    """

    def __init__(self, path: Path, shape: Shape, dtype: np.dtype[Any], offset: int) -> None:
        self.path, self.shape, self.dtype, self._offset = path, shape, dtype, offset
        self.end = offset + prod(shape) * dtype.itemsize

    def read(self, slices: Slices, offset: int = 0) -> Array:
        """A window of the array."""
        window = np.empty(shape_of(slices), self.dtype)
        flat = window.reshape(-1).view(np.uint8)
        with self.path.open("rb", buffering=0) as file:
            for first, start, size in _runs(self.shape, slices, self.dtype.itemsize):
                file.seek(self._offset + offset + start)
                missing = flat[first : first + size].data
                while missing:
                    count = file.readinto(missing)
                    if not count:
                        raise FileError(f"{self.path}: the file is truncated ({len(missing)} bytes missing).")
                    missing = missing[count:]
        return window

    def write(self, slices: Slices, array: Array, offset: int = 0) -> None:
        """Write a window of the array."""
        flat = np.ascontiguousarray(array, self.dtype).reshape(-1).view(np.uint8)
        with self.path.open("r+b", buffering=0) as file:
            for first, start, size in _runs(self.shape, slices, self.dtype.itemsize):
                file.seek(self._offset + offset + start)
                rest = flat[first : first + size].data
                while rest:
                    rest = rest[file.write(rest) :]


class RawLayout(NamedTuple):
    """A file of fixed size: by offset the bytes around its elements, its bytes, and its windows as in a `Sink`."""

    kind: str
    header: Mapping[int, bytes]
    size: int
    arrangement: AxisMapping
    store: Callable[[Slices, Array], None]
    load: Callable[[Slices], Array]


class WindowFormat(NamedTuple):
    """Writer of windows: `create` makes a file of zeros, and `open` opens it for every run that resumes it."""

    create: Callable[[Path, OutputSpec], None]
    open: Callable[[Path, OutputSpec], Sink]


def raw_format(layout: Callable[[Path, OutputSpec], RawLayout]) -> WindowFormat:
    """The writer of files whose layout is known before their elements."""

    def create(path: Path, written: OutputSpec) -> None:
        raw = layout(path, written)
        with path.open("wb") as file:
            for offset, content in raw.header.items():
                file.seek(offset)
                file.write(content)
        reserve(path, raw.size)

    def open_sink(path: Path, written: OutputSpec) -> Sink:
        raw = layout(path, written)
        _require_header(path, raw)

        return Sink(
            written.shape,
            raw.arrangement,
            raw.store,
            raw.load,
            sync=lambda _: sync_file(path),
            repair=lambda _: reserve(path, raw.size),
        )

    return WindowFormat(create, open_sink)


def reserve(path: Path, size: int) -> None:
    """Give a file its size, and reserve it on the disk; its content stays."""
    with path.open("r+b") as file:
        if hasattr(os, "posix_fallocate") and size:
            os.posix_fallocate(file.fileno(), 0, size)
        file.truncate(size)
        sync(file.fileno())


def _require_header(path: Path, raw: RawLayout) -> None:
    """Refuse a link, and a file that holds other bytes around its elements than this run writes."""
    kind = raw.kind
    if path.is_symlink() or not path.is_file():
        raise FileError(f"{path}: is not the {kind} file of an interrupted run. Delete {path.parent} to start over.")
    with path.open("rb") as file:
        for offset, expected in raw.header.items():
            file.seek(offset)
            stored = file.read(len(expected))
            if stored != expected:
                bytes_of_both = enumerate(zip(stored, expected, strict=False))
                place = next((at for at, (here, there) in bytes_of_both if here != there), len(stored))
                here, there = stored[place : place + 16], expected[place : place + 16]
                raise FileError(
                    f"{path}: its {kind} header differs from what this run would write, at byte {offset + place}, "
                    f"{here!r} instead of {there!r}. Delete {path.parent} to start over."
                )


def _runs(shape: Shape, slices: Slices, item: int) -> Iterator[tuple[int, int, int]]:
    """The contiguous parts of a window, in bytes: start in the window, start in the array, and size.

    >>> list(_runs((4, 6), (slice(1, 3), slice(2, 5)), 1)), list(_runs((4, 6), (slice(1, 3), slice(0, 6)), 1))
    ([(0, 8, 3), (3, 14, 3)], [(0, 6, 12)])
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
        yield number * size, outer + inner, size
