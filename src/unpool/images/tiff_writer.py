"""TIFF files written tile by tile: BigTIFF, uncompressed, a page per channel or in colour.

    header and tags of page 1 | pixels of page 1 | tags of page 2 | pixels of page 2 | ...

tifffile writes the bytes around the pixels, without memory or disk for the pixels. A file of zeros is made from them,
and the file of an interrupted run has to hold the same bytes in the same places.
"""

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unpool.errors import UnsupportedError
from unpool.extras import require
from unpool.images.axes import Array, AxisMapping, Slices, shape_of
from unpool.images.sink import OutputSpec, RawArrayFile, Sink, require_header, reserve

SIDE = 256
"""Elements of a tile that is written, along both its axes."""

PAGE = 1 << 12
SHORTEST_PIXELS = 1 << 16
"""Bytes that are written in one piece, from which on zeros are pixels; tags are shorter, or not all zero."""


class TiffLayout(NamedTuple):
    """A TIFF file without its pixels.

    Attributes:
        tags: by offset, the bytes around the pixels.
        pages: by page, where its pixels begin.
        size: bytes of the file.
    """

    tags: Mapping[int, bytes]
    pages: list[int]
    size: int


def create_tiff(path: Path, written: OutputSpec) -> None:
    """A BigTIFF file of zeros in tiles: in colour for 3 or 4 channels of 8 or 16 bits, else with a page per channel.

    Raises:
        UnsupportedError: TIFF has no such type.
    """
    require(str(path), "run", "tifffile")
    layout = tiff_layout(path, written)
    with path.open("wb") as file:
        for offset, content in layout.tags.items():
            file.seek(offset)
            file.write(content)
    reserve(path, layout.size)


def tiff_layout(path: Path, written: OutputSpec) -> TiffLayout:
    """The tags of a file that is written, and where its pages begin.

    Raises:
        UnsupportedError: TIFF has no such type.
    """
    shape = _sink_arrangement(written).stored_shape(written.shape)
    is_colour = _is_colour(written)
    if written.dtype.kind not in "uif":
        raise UnsupportedError(f"{path}: expected integers or floats, got {written.dtype}. Write .npy.")
    return layout_of(
        shape=shape,
        dtype=written.dtype,
        bigtiff=True,
        tile=(SIDE, SIDE),
        photometric="rgb" if is_colour else "minisblack",
        planarconfig="contig" if is_colour else None,
        metadata={},
    )


def open_tiff_sink(path: Path, written: OutputSpec) -> Sink:
    """A TIFF file to write.

    Raises:
        FileError: its tags are not those that `create_tiff` writes.
    """
    layout = tiff_layout(path, written)
    require_header(path, layout.tags, "TIFF")
    tiles = _Tiles(path, written, layout.pages)
    arrangement = _sink_arrangement(written)
    return Sink(
        written.shape, arrangement, tiles.write, tiles.read, tiles.raw.sync, lambda _: reserve(path, layout.size)
    )


class _Tiles:
    """The tiles of a file that `create_tiff` made: those of a page in a row, a grid in row-major order."""

    def __init__(self, path: Path, written: OutputSpec, pages: Sequence[int]) -> None:
        self.shape = _sink_arrangement(written).stored_shape(written.shape)
        self._is_colour = _is_colour(written)
        last = 2 if not self._is_colour else 3
        plane = self.shape[-last:]
        self._grid = (-(-plane[0] // SIDE), -(-plane[1] // SIDE))
        samples = plane[2] if self._is_colour else 1
        self._pages = pages
        stored = (self._grid[0] * self._grid[1], SIDE, SIDE, samples)
        self.raw = RawArrayFile(path, stored, written.dtype, 0)

    def write(self, slices: Slices, array: Array) -> None:
        """Write a window."""
        for window, tile, begin in self._pieces(slices):
            self.raw.write(tile, array[window].reshape(shape_of(tile)), begin)

    def read(self, slices: Slices) -> Array:
        """A window."""
        made = np.empty(shape_of(slices), self.raw.dtype)
        for window, tile, begin in self._pieces(slices):
            made[window] = self.raw.read(tile, begin).reshape(made[window].shape)
        return made

    def _pieces(self, slices: Slices) -> Iterator[tuple[Slices, Slices, int]]:
        """By tile that a window touches: its part of the window, its place in its page, and where that begins."""
        last = 3 if self._is_colour else 2
        outer, (rows, columns, *_) = slices[:-last], slices[-last:]
        spans = [range(part.start // SIDE, -(-part.stop // SIDE)) for part in (rows, columns)]
        for place in product(*(range(part.start, part.stop) for part in outer)):
            page = int(np.ravel_multi_index(place, self.shape[:-last])) if place else 0
            leading = tuple(slice(at - part.start, at - part.start + 1) for at, part in zip(place, outer, strict=True))
            for down, right in product(*spans):
                window, within = zip(_cut(rows, down), _cut(columns, right), strict=True)
                number = down * self._grid[1] + right
                more = (slice(None),) * (last - 2)
                samples = (slice(0, self.raw.shape[-1]),)
                yield (*leading, *window, *more), (slice(number, number + 1), *within, *samples), self._pages[page]


def _cut(span: slice, tile: int) -> tuple[slice, slice]:
    """The part of a span that a tile has: as the span counts it, and as the tile does."""
    first, stop = max(span.start, tile * SIDE), min(span.stop, (tile + 1) * SIDE)
    return slice(first - span.start, stop - span.start), slice(first - tile * SIDE, stop - tile * SIDE)


def _is_colour(written: OutputSpec) -> bool:
    is_colour = written.channel is not None and written.shape[written.channel] in (3, 4)
    return is_colour and written.dtype in (np.uint8, np.uint16)


def _sink_arrangement(written: OutputSpec) -> AxisMapping:
    """Channels first, where there are several, or last where they are colours; a page for each picture of a batch."""
    spatial = tuple(axis for axis in range(1, len(written.shape)) if axis != written.channel)
    if len(spatial) not in (2, 3):
        raise UnsupportedError(f"TIFF: expected 2 or 3 axes of space, got {len(spatial)}. Write .npy.")
    has_channels = written.channel is not None and written.shape[written.channel] > 1
    channels = (written.channel,) if has_channels and written.channel is not None else ()
    batch: tuple[int, ...] = () if written.shape[0] == 1 else (0,)
    if batch and (len(spatial) != 2 or (channels and not _is_colour(written))):
        raise UnsupportedError(
            f"TIFF: expected a batch of one, or of pictures in grey or colour, got {list(written.shape)}. Write .npy."
        )
    axes = (*batch, *spatial, *channels) if _is_colour(written) else (*batch, *channels, *spatial)
    return AxisMapping(axes, len(written.shape))


def layout_of(**words: Any) -> TiffLayout:
    """The layout of the file that `tifffile.imwrite` makes of zeros.

    Args:
        words: of `tifffile.imwrite`; pixels are not compressed.

    >>> layout = layout_of(shape=(2, 300, 40), dtype="u1", tile=(256, 256), photometric="minisblack")
    >>> len(layout.pages), layout.size - sum(map(len, layout.tags.values())) == 2 * 2 * 256 * 256
    (2, True)
    """
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
    return TiffLayout(tags, pages, file.size)


class _SparseFile(io.RawIOBase):
    """A file in memory that keeps what is not zero, in pages."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0
        self._place = 0
        self._pages: dict[int, bytearray] = {}

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

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
        found = bytearray(count)
        for number, first, stop in _parts(self._place, count):
            if number in self._pages:
                begin = first % PAGE
                found[first - self._place : stop - self._place] = self._pages[number][begin : begin + stop - first]
        memoryview(buffer)[:count] = found
        self._place += count
        return count


def _parts(place: int, count: int) -> Iterator[tuple[int, int, int]]:
    """The pages that a span of bytes touches: number, first and last offset."""
    for number in range(place // PAGE, -(-(place + count) // PAGE)):
        yield number, max(place, number * PAGE), min(place + count, (number + 1) * PAGE)
