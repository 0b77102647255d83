"""TIFF files written tile by tile: BigTIFF, uncompressed, a page per channel or in colour.

    header and tags of page 1 | pixels of page 1 | tags of page 2 | pixels of page 2 | ...

tifffile writes the bytes around the pixels, without memory or disk for the pixels. A file of zeros is made from them,
and the file of an interrupted run has to hold the same bytes in the same places.
"""

import io
import os
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from unpool.errors import UnsupportedError
from unpool.extras import require
from unpool.images.axes import Array, AxisMapping, Shape, Slices, shape_of
from unpool.images.sink import OutputSpec, RawArrayFile, RawLayout

SIDE = 256  # elements of a tile that is written, along both its axes
PAGE = 1 << 12
SHORTEST_PIXELS = 1 << 16
"""Bytes that are written in one piece, from which on zeros are pixels; tags are shorter, or not all zero."""


def tiff_layout(path: Path, written: OutputSpec) -> RawLayout:
    """A BigTIFF file in tiles: in colour for 3 or 4 channels of 8 or 16 bits, else with a page per channel."""
    require(str(path), "run", "tifffile")
    is_colour = written.channel is not None and written.shape[written.channel] in (3, 4)
    is_colour = is_colour and written.dtype in (np.uint8, np.uint16)
    arrangement = _arrangement(written, is_colour)
    if written.dtype.kind not in "uif":
        raise UnsupportedError(f"{path}: expected integers or floats, got {written.dtype}. Write .npy.")
    shape = arrangement.stored_shape(written.shape)
    tags, pages, size = _layout_of(
        shape=shape,
        dtype=written.dtype,
        bigtiff=True,
        tile=(SIDE, SIDE),
        photometric="rgb" if is_colour else "minisblack",
        planarconfig="contig" if is_colour else None,
        metadata={},
    )
    tiles = _Tiles(path, shape, written.dtype, pages, 3 if is_colour else 2)
    return RawLayout("TIFF", tags, size, arrangement, tiles.write, tiles.read)


class _Tiles:
    """The tiles of a BigTIFF file, page after page; the tiles of a page are a grid in row-major order."""

    def __init__(self, path: Path, shape: Shape, dtype: np.dtype[Any], pages: Sequence[int], plane_rank: int) -> None:
        self._pages, self._plane_rank = pages, plane_rank
        self._outer, (height, width, *samples) = shape[:-plane_rank], shape[-plane_rank:]
        self._columns = -(-width // SIDE)
        stored = (-(-height // SIDE) * self._columns, SIDE, SIDE, samples[0] if samples else 1)
        self._raw = RawArrayFile(path, stored, dtype, 0)

    def write(self, slices: Slices, array: Array) -> None:
        for window, tile, begin in self._pieces(slices):
            self._raw.write(tile, array[window].reshape(shape_of(tile)), begin)

    def read(self, slices: Slices) -> Array:
        array = np.empty(shape_of(slices), self._raw.dtype)
        for window, tile, begin in self._pieces(slices):
            array[window] = self._raw.read(tile, begin).reshape(array[window].shape)
        return array

    def _pieces(self, slices: Slices) -> Iterator[tuple[Slices, Slices, int]]:
        """By tile that a window touches: its part of the window, its place in its page, and where that begins."""
        outer, (rows, columns, *samples) = slices[: -self._plane_rank], slices[-self._plane_rank :]
        for place in product(*(range(part.start, part.stop) for part in outer)):
            page = int(np.ravel_multi_index(place, self._outer)) if place else 0
            leading = tuple(slice(at - part.start, at - part.start + 1) for at, part in zip(place, outer, strict=True))
            for down, right in product(_touched(rows), _touched(columns)):
                window, within = zip(_cut(rows, down), _cut(columns, right), strict=True)
                number = down * self._columns + right
                tile = (slice(number, number + 1), *within, slice(0, self._raw.shape[-1]))
                yield (*leading, *window, *(slice(None) for _ in samples)), tile, self._pages[page]


def _touched(span: slice) -> range:
    return range(span.start // SIDE, -(-span.stop // SIDE))


def _cut(span: slice, tile: int) -> tuple[slice, slice]:
    """The part of a span that a tile has: as the span counts it, and as the tile does."""
    first, stop = max(span.start, tile * SIDE), min(span.stop, (tile + 1) * SIDE)
    return slice(first - span.start, stop - span.start), slice(first - tile * SIDE, stop - tile * SIDE)


def _arrangement(written: OutputSpec, is_colour: bool) -> AxisMapping:
    """Channels first, where there are several, or last where they are colours; a page for each picture of a batch."""
    spatial, channels = written.spatial_axes, written.channel_axes
    if len(spatial) not in (2, 3):
        raise UnsupportedError(f"TIFF: expected 2 or 3 axes of space, got {len(spatial)}. Write .npy.")
    batch: tuple[int, ...] = () if written.shape[0] == 1 else (0,)
    if batch and (len(spatial) != 2 or (channels and not is_colour)):
        shape = list(written.shape)
        raise UnsupportedError(f"TIFF: expected one image, or pictures in grey or colour, got {shape}. Write .npy.")
    axes = (*batch, *spatial, *channels) if is_colour else (*batch, *channels, *spatial)
    return AxisMapping(axes, len(written.shape))


def _layout_of(**words: Any) -> tuple[dict[int, bytes], list[int], int]:
    """Of a file that `tifffile.imwrite` makes: by offset the bytes around pixels, offsets of pages, and size."""
    import tifffile

    file: Any = _SparseFile()
    tifffile.imwrite(file, None, **words)
    file.seek(0)
    with tifffile.TiffFile(file) as tiff:
        spans = sorted(
            (offset, offset + count)
            for page in tiff.pages
            for offset, count in zip(page.dataoffsets, page.databytecounts, strict=True)
        )
        pages = [int(page.dataoffsets[0]) for page in tiff.pages]
    tags: dict[int, bytes] = {}
    end = 0
    for first, stop in [*spans, (file.size, file.size)]:
        if first > end:
            file.seek(end)
            tags[end] = file.read(first - end)
        end = max(end, stop)
    return tags, pages, file.size


class _SparseFile(io.RawIOBase):
    """A file in memory that stores only pages with bytes other than zero."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0
        self._place = 0
        self._pages: dict[int, bytearray] = {}

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._place = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self.size}[whence]
        return self._place

    def write(self, content: Any) -> int:
        data = memoryview(content).cast("B")
        if len(data) < SHORTEST_PIXELS or data.tobytes().strip(b"\0"):
            for number, first, stop in _parts(self._place, len(data)):
                page = self._pages.setdefault(number, bytearray(PAGE))
                page[first % PAGE : first % PAGE + stop - first] = data[first - self._place : stop - self._place]
        self._place += len(data)
        self.size = max(self.size, self._place)
        return len(data)

    def readinto(self, buffer: Any) -> int:
        count = max(0, min(len(buffer), self.size - self._place))
        content = bytearray(count)
        for number, first, stop in _parts(self._place, count):
            if number in self._pages:
                begin = first % PAGE
                content[first - self._place : stop - self._place] = self._pages[number][begin : begin + stop - first]
        memoryview(buffer)[:count] = content
        self._place += count
        return count


def _parts(place: int, count: int) -> Iterator[tuple[int, int, int]]:
    """The pages that a span of bytes touches: number, first and last offset."""
    for number in range(place // PAGE, -(-(place + count) // PAGE)):
        yield number, max(place, number * PAGE), min(place + count, (number + 1) * PAGE)
