"""Windows of TIFF files, from the segments (tiles or strips) that they touch.

    series     pages | page: separate samples, depth, rows, columns, samples
    segment    a tile, or a strip of whole rows; of strips that are not compressed, only the rows of the window are read

Source: TIFF 6.0, sections 3 and 15: the order of strips and tiles.
"""

import threading
from collections.abc import Iterator
from itertools import product
from math import prod
from operator import add
from typing import Any

import numpy as np

from unpool.images.axes import Array, Shape, Slices, shape_of

PLAIN_BITS = (8, 16, 32, 64)  # bits of a sample that needs no unpacking


class SegmentReader:
    """Reads windows of one level of a series of pages; segments that the file lacks have its value for no data."""

    def __init__(self, series: Any) -> None:
        page = series.keyframe
        self.shape: Shape = tuple(series.shape)
        self.dtype = np.dtype(page.dtype)
        self._series, self._page, self._lock = series, page, threading.Lock()
        sizes = (page.tiledepth, page.tilelength, page.tilewidth) if page.is_tiled else (1, page.rowsperstrip, 1 << 32)
        self._image: Shape = tuple(page.shaped)
        self._segment = (1, *(min(pair) for pair in zip(sizes, self._image[1:4], strict=True)), self._image[4])
        self._grid = tuple(-(-size // step) for size, step in zip(self._image, self._segment, strict=True))
        is_plain = page.compression == 1 and page.predictor == 1 and page.fillorder == 1
        self._has_rows = is_plain and not page.is_tiled and page.bitspersample in PLAIN_BITS
        rank = len(self.shape)
        self._outer = next(at for at in range(rank, -1, -1) if prod(self.shape[at:]) == page.size)  # axes of pages

    def read(self, slices: Slices) -> Array:
        """A window of the series."""
        outer, inner = slices[: self._outer], slices[self._outer :]
        window = np.full(shape_of(slices), self._page.nodata, self.dtype)
        if not window.size:
            return window
        spans = iter(span for span, size in zip(inner, self.shape[self._outer :], strict=True) if size > 1)
        spans5 = tuple(slice(0, 1) if size == 1 else next(spans) for size in self._image)
        pages = window.reshape(-1, *shape_of(spans5))
        places = product(*(range(span.start, span.stop) for span in outer))
        for pixels, place in zip(pages, places, strict=True):
            number = int(np.ravel_multi_index(place, self.shape[: self._outer])) if place else 0
            self._read_page(number, spans5, pixels)
        return window

    def _read_page(self, number: int, spans: Slices, pixels: Array) -> None:
        for place in product(*map(_touched, spans, self._segment)):
            begins = [at * step for at, step in zip(place, self._segment, strict=True)]
            ends = map(min, map(add, begins, self._segment), self._image)
            cut = [
                slice(max(span.start, begin), min(span.stop, end))
                for span, begin, end in zip(spans, begins, ends, strict=True)
            ]
            segment = self._decode(number, int(np.ravel_multi_index(place, self._grid)), cut[2], begins[2])
            if segment is not None:
                begins[2] = cut[2].start if self._has_rows else begins[2]
                source = tuple(
                    slice(part.start - begin, part.stop - begin) for part, begin in zip(cut, begins, strict=True)
                )
                target = tuple(
                    slice(part.start - span.start, part.stop - span.start)
                    for part, span in zip(cut, spans, strict=True)
                )
                pixels[target] = segment[source[1:]]

    def _decode(self, number: int, index: int, rows: slice, first_row: int) -> Array | None:
        """Depth, rows, columns and samples of a segment, or of these rows where they are read alone."""
        page, offset = self._page, 0
        with self._lock:
            if self._series.dataoffset is not None:  # pages in one block, of which there may be one directory only
                part, offset = self._series[0], number * page.size * self.dtype.itemsize
            else:
                part = self._series[number]
            if part is None or index >= len(part.dataoffsets) or not part.databytecounts[index]:
                return None
            offset, count = offset + part.dataoffsets[index], part.databytecounts[index]
            if self._has_rows:
                row = self._image[3] * self._image[4] * self.dtype.itemsize
                offset, count = offset + (rows.start - first_row) * row, (rows.stop - rows.start) * row
            file = part.parent.filehandle
            file.seek(offset)
            content = file.read(count)
        if self._has_rows:
            stored = np.frombuffer(content, self.dtype.newbyteorder(page.parent.byteorder))
            return stored.reshape(1, rows.stop - rows.start, *self._image[3:])
        tables = {"jpegtables": part.jpegtables, "jpegheader": page.jpegheader}
        words = {name: table for name, table in tables.items() if table is not None}
        decoded: Array | None = page.decode(content, index, **words)[0]
        return decoded


def _touched(span: slice, step: int) -> Iterator[int]:
    """The segments along an axis in which a span has elements."""
    return iter(range(span.start // step, -(-span.stop // step)))
