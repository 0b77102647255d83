"""The strips and tiles of a TIFF file: what they claim, checked before anything is unpacked."""

from math import prod
from typing import Any, BinaryIO

from unpool.cli.bounds import check_pixels
from unpool.runtime.streams.opened import check_claim
from unpool.runtime.streams.tiff_pages import DEFLATED, JPEG, require_compression, require_jpeg

HEAD = 2**20
"""Bytes of a segment in which the size of a JPEG has to stand."""


def check_segments(series: Any, stream: BinaryIO, size: int, where: str) -> None:
    """Refuse pixels and segments that claim more than the file can hold, or this process.

    Args:
        series: of tifffile.
        stream: the file.
        size: bytes of it.
        where: what an error message begins with.

    Raises:
        FileError: a claim cannot be true.
        ShapeError: there is less memory.
        UnsupportedError: a compression that is not read.
    """
    page = series.keyframe
    compression = int(page.compression)
    require_compression(page, where)
    if compression in DEFLATED:
        check_claim(series.nbytes, size, where)
        check_claim(prod(page.chunks) * page.dtype.itemsize, size, where)
    check_pixels(tuple(page.chunks), page.dtype.itemsize, where)
    if compression == JPEG:
        _check_jpeg(series, stream, where)


def _check_jpeg(series: Any, stream: BinaryIO, where: str) -> None:
    """A JPEG inside says its own size, which has to be that of its strip or tile."""
    for page in (page.aspage() for page in series.pages if page is not None):
        for offset, count in zip(page.dataoffsets, page.databytecounts, strict=True):
            stream.seek(offset)
            require_jpeg(stream.read(min(count, HEAD)), page, where)
