"""The bytes of a TIFF file around its pixels, as tifffile writes them, without taking memory or disk for the pixels.

    header and tags of page 1 | pixels of page 1 | tags of page 2 | pixels of page 2 | ...

A file of zeros is made from them; and the file of an interrupted run has to hold the same bytes in the same places.
"""

import io
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

PAGE = 1 << 12
SHORTEST_PIXELS = 1 << 16
"""Bytes that are written in one piece, from which on zeros are pixels; tags are shorter, or not all zero."""


class Layout(NamedTuple):
    """A TIFF file without its pixels.

    Attributes:
        tags: by offset, the bytes around the pixels.
        pages: by page, where its pixels begin.
        size: bytes of the file.
    """

    tags: Mapping[int, bytes]
    pages: list[int]
    size: int


def layout_of(**words: Any) -> Layout:
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
    return Layout(tags, pages, file.size)


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
    """The pages in which so many bytes lie: the number of each, and the first and the last place in it."""
    for number in range(place // PAGE, -(-(place + count) // PAGE)):
        yield number, max(place, number * PAGE), min(place + count, (number + 1) * PAGE)
