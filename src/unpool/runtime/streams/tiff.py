"""TIFF files, window by window: tiled ones, strips, BigTIFF, a level of a pyramid; written in tiles, uncompressed.

What has to be looked up or turned to be seen as it is meant (palettes, orientations, other colours than grey and RGB)
is refused; it can be read whole. tifffile decodes, and its Zarr store knows which parts of the file a window needs.
"""

import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from unpool.errors import FileError, ShapeError, UnsupportedError
from unpool.extras import require
from unpool.runtime.streams.arrangement import (
    Array,
    AxisMapping,
    Shape,
    Slices,
    channel_axis,
    shape_of,
    spatial_axes,
)
from unpool.runtime.streams.fingerprint import fingerprint_file
from unpool.runtime.streams.opened import BATCH, Wanted, pages_advice
from unpool.runtime.streams.raw import Raw, require_header, reserve
from unpool.runtime.streams.sink import OutputSpec, Sink
from unpool.runtime.streams.source import Source, read_errors
from unpool.runtime.streams.tiff_layout import Layout, layout_of
from unpool.runtime.streams.tiff_pages import check_decoding, check_pages

PACKAGES = ("tifffile", "zarr", "numcodecs")
SIDE = 256
"""Elements of a tile that is written, along both its axes."""

MIN_IS_BLACK, RGB, YCBCR = 1, 2, 6
ORIENTATION, MAX_SAMPLE = 274, 281
SMALLEST_WHITE, MOST_BITS, ASSOCIATED = 255, 16, 1


def open_tiff(path: Path, wanted: Wanted) -> Source:
    """A TIFF file to read.

    Raises:
        FileError: not such a file, or it has no such level.
        ShapeError: its axes are not those of the tensor.
        UnsupportedError: its pixels have to be changed to be seen as they are meant.
        MissingExtraError: zarr is not installed, or imagecodecs, which the compression needs.
    """
    require(str(path), "formats", *PACKAGES)
    import tifffile
    import zarr

    with ExitStack() as opened, read_errors(str(path), "a TIFF image"):
        file = opened.enter_context(tifffile.TiffFile(path))
        check_pages(file, file.filehandle, file.filehandle.size, str(path))
        series = _series(file, path, wanted.level)
        page = series.levels[wanted.level].keyframe
        _refuse_changed(page, path)
        _require_decoder(page, path)
        check_decoding(page, str(path))
        array: Any = zarr.open_array(series.aszarr(level=wanted.level), mode="r")
        arrangement = _arrangement(series.axes, array.shape, wanted, str(path))
        read = _by_windows(array) if page.is_tiled else _by_bands(array, series.axes.index("Y"))
        weakref.finalize(read, opened.pop_all().close)
    return Source(path, array.shape, page.dtype, arrangement, read, lambda: fingerprint_file(path), white=_white(page))


def _series(file: Any, path: Path, level: int) -> Any:
    found = [one for one in file.series if not one.keyframe.is_reduced] or file.series[:1]
    levels = len(found[0].levels)
    if level >= levels:
        raise FileError(f"{path}: expected a level from 0 to {levels - 1}, got {level}. Choose one of them.")
    return found[0]


def _refuse_changed(page: Any, path: Path) -> None:
    kind, turned = int(page.photometric), page.tags.valueof(ORIENTATION, default=1)
    is_plain = kind in (MIN_IS_BLACK, RGB) or (kind == YCBCR and page.bitspersample == 8)
    extras = [int(one) for one in page.extrasamples]
    if not is_plain or turned != 1 or ASSOCIATED in extras or page.dtype is None or page.dtype.kind not in "uif":
        raise UnsupportedError(
            f"{path}: expected upright pixels in grey or RGB to be read in parts, got {page.photometric.name}, "
            f"{page.dtype}, orientation {turned}, {len(extras)} extra samples. Convert the image, or run it whole."
        )


def _require_decoder(page: Any, path: Path) -> None:
    """Refuse a compression that tifffile cannot undo here; a segment that is not in the file is decoded for that."""
    try:
        page.decode(None, 0)
    except (ValueError, ImportError) as error:
        compression = getattr(page.compression, "name", page.compression)
        require(f"{path}, compressed by {compression}", "formats", "imagecodecs")
        raise FileError(
            f"{path}: expected a compression that tifffile reads, got {compression} ({error}). "
            "Save the image with deflate or without compression."
        ) from error


def _arrangement(axes: str, stored: Shape, wanted: Wanted, where: str) -> AxisMapping:
    """Y, X are the last axes of space; S or C are channels; one axis of pages is depth, or channels where they fit."""
    spatial = spatial_axes(wanted.rank, wanted.layout)
    places = {"Y": spatial[-2], "X": spatial[-1]} if len(spatial) >= 2 else {}
    channel = channel_axis(wanted.rank, wanted.layout)
    places |= dict.fromkeys("SC", channel)
    if wanted.pages == BATCH:
        places |= dict.fromkeys([letter for letter in axes if letter not in places][:1], 0)
    for letter, size in zip(axes, stored, strict=True):
        if letter not in places:
            is_depth = len(spatial) == 3
            places[letter] = spatial[0] if is_depth else channel if size == wanted.channels else -1
    found = tuple(places[letter] for letter in axes)
    if -1 in found or len(set(found)) < len(found) or not set("YX") <= set(axes):
        raise ShapeError(
            f"{where}: expected an image of {len(spatial)} axes of space, got {'x'.join(map(str, stored))} pixels with "
            f"axes {axes}. {pages_advice(wanted.pages)}"
        )
    return AxisMapping(found, wanted.rank)


def _by_windows(array: Any) -> Any:
    def read(slices: Slices) -> Array:
        return np.asarray(array[slices])

    return read


def _by_bands(array: Any, vertical: int) -> Any:
    """Reads strips of the whole width, and keeps them for the next window beside: each is decoded once per row."""
    kept: dict[tuple[tuple[int, int], ...], Array] = {}

    def read(slices: Slices) -> Array:
        rows = slices[vertical]
        outer = slices[: vertical + 1]
        key = tuple((part.start, part.stop) for part in outer)
        if key not in kept:
            kept.clear()
            kept[key] = np.asarray(array[(*outer, *(slice(None) for _ in slices[vertical + 1 :]))])
        inner = (*(slice(None) for _ in slices[:vertical]), slice(0, rows.stop - rows.start))
        return kept[key][(*inner, *slices[vertical + 1 :])]

    return read


def _white(page: Any) -> float | None:
    """All bits set, or fewer where the file says so; None where it does not say."""
    if page.dtype.kind != "u" or not isinstance(page.bitspersample, int) or page.bitspersample > MOST_BITS:
        return None
    full = 2**page.bitspersample - 1
    type_name = page.tags.valueof(MAX_SAMPLE, default=full)
    type_name = int(type_name[0] if isinstance(type_name, tuple) else type_name)
    return type_name if SMALLEST_WHITE <= type_name < full and (type_name + 1).bit_count() == 1 else full


def create_tiff(path: Path, written: OutputSpec) -> None:
    """A BigTIFF file of zeros in tiles: in colour for 3 or 4 channels of 8 or 16 bits, else with a page per channel.

    Raises:
        UnsupportedError: TIFF has no such type.
    """
    require(str(path), "run", *PACKAGES[:1])
    layout = tiff_layout(path, written)
    with path.open("wb") as file:
        for offset, content in layout.tags.items():
            file.seek(offset)
            file.write(content)
    reserve(path, layout.size)


def tiff_layout(path: Path, written: OutputSpec) -> Layout:
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
        self.raw = Raw(path, stored, written.dtype, 0)

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
