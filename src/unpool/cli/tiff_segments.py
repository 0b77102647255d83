"""The strips and tiles of a TIFF file: what they claim, checked before anything is unpacked."""

from math import prod
from typing import Any, BinaryIO

from unpool.cli.bounds import check_claim, check_pixels
from unpool.errors import FileError, UnsupportedError

JPEG = 7
DEFLATED = (1, 5, 8, 32773, 32946)
"""None, LZW, deflate, PackBits, and deflate by its older number: none unpacks to more than deflate does, or by far."""
READ = (*DEFLATED, 2, 3, 4, JPEG, 34925, 50000)
"""Beside them the three of fax machines, JPEG, LZMA and Zstandard."""
HEAD = 2**20
"""Bytes of a segment in which the size of a JPEG has to stand."""
BLOCK = 16
"""Pixels: JPEG pads to whole blocks."""


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
    if compression not in READ:
        raise UnsupportedError(
            f"{where}: its compression, {getattr(page.compression, 'name', compression)}, is not read. "
            "Save the image with deflate, LZW or JPEG."
        )
    if compression in DEFLATED:
        check_claim(series.nbytes, size, where)
        check_claim(prod(page.chunks) * page.dtype.itemsize, size, where)
    check_pixels(tuple(page.chunks), page.dtype.itemsize, where)
    if compression == JPEG:
        _check_jpeg(series, stream, where)


def _check_jpeg(series: Any, stream: BinaryIO, where: str) -> None:
    """A JPEG inside says its own size, which has to be that of its strip or tile."""
    for page in (page.aspage() for page in series.pages if page is not None):
        rows = page.tilelength if page.is_tiled else min(page.rowsperstrip, page.imagelength)
        columns = page.tilewidth if page.is_tiled else page.imagewidth
        for offset, count in zip(page.dataoffsets, page.databytecounts, strict=True):
            stream.seek(offset)
            found = jpeg_size(stream.read(min(count, HEAD))) or (0, 0)
            if not (0 < found[0] < rows + BLOCK and 0 < found[1] < columns + BLOCK):
                raise FileError(
                    f"{where}: expected a JPEG of {rows}x{columns} pixels at byte {offset}, "
                    f"got one of {found[0]}x{found[1]}. Save the image again."
                )


def jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Rows and columns that the first frame of a JPEG states; None without one.

    Source: ITU-T T.81, B.1.1.3: markers and the lengths of their segments.

    >>> jpeg_size(bytes.fromhex("ffd8 ffe0 0004 0000 ffc0 000b 08 0010 0020"))
    (16, 32)
    """
    at = 2
    while data[at : at + 1] == b"\xff":
        marker = data[at + 1] if at + 1 < len(data) else 0
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            frame = data[at + 5 : at + 9]
            return (int.from_bytes(frame[:2]), int.from_bytes(frame[2:])) if len(frame) == 4 else None
        at += 1 if marker == 0xFF else 2 + int.from_bytes(data[at + 2 : at + 4])
    return None
