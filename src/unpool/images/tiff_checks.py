"""Checks of TIFF files before tifffile follows their page directories and unpacks their strips and tiles."""

import struct
from math import prod
from typing import Any, BinaryIO

from unpool.errors import FileError, UnsupportedError
from unpool.images.checks import check_claim, check_pixels
from unpool.memory import check_bytes

JPEG = 7
DEFLATED = (1, 5, 8, 32773, 32946)
"""None, LZW, deflate, PackBits, and deflate by its older number: none unpacks to more than deflate does, or by far."""
READ = (*DEFLATED, 2, 3, 4, JPEG, 34925, 50000)
"""Beside them the three of fax machines, JPEG, LZMA and Zstandard."""
BLOCK = 16
"""Pixels: JPEG pads to whole blocks."""


def check_pages(file: Any, stream: Any, size: int, where: str) -> None:
    """Refuse pages that form a circle, which tifffile would follow for ever, or that lie over each other.

    Args:
        file: of tifffile, which knows how long an offset and an entry are.
        stream: the file.
        size: bytes of it.
        where: what an error message begins with.

    Raises:
        FileError: the chain of pages has no end, or its entries are more than the file can hold.
    """
    words, offset, seen, entries = file.tiff, file.pages.first.offset, set(), 0
    while 0 < offset < size:
        if offset in seen or entries * words.tagsize > size:
            raise FileError(f"{where}: corrupt TIFF: its page directories form a loop or overlap.")
        seen.add(offset)
        stream.seek(offset)
        found = stream.read(words.tagnosize)
        count = struct.unpack(words.tagnoformat, found)[0] if len(found) == words.tagnosize else 0
        stream.seek(offset + words.tagnosize + count * words.tagsize)
        following = stream.read(words.offsetsize)
        offset = struct.unpack(words.offsetformat, following)[0] if len(following) == words.offsetsize else 0
        entries += 1 + count


def require_compression(page: Any, where: str) -> None:
    """Refuse a compression that is not in the list.

    Raises:
        UnsupportedError: it would be left to whatever decoder is installed.
    """
    compression = int(page.compression)
    if compression not in READ:
        raise UnsupportedError(
            f"{where}: its compression, {getattr(page.compression, 'name', compression)}, is not read. "
            "Save the image with deflate, LZW or JPEG."
        )


def check_decoding(page: Any, where: str) -> None:
    """Refuse segments of a page that no memory holds, and let each JPEG be looked at before it is unpacked.

    Args:
        page: of tifffile, whose segments are read one by one.
        where: what an error message begins with.

    Raises:
        UnsupportedError: a compression that is not read.
        ShapeError: a strip or tile is larger than the memory.
    """
    require_compression(page, where)
    check_bytes(prod(page.chunks) * page.dtype.itemsize, "one strip or tile", where)
    if int(page.compression) != JPEG:
        return
    decode = page.decode

    def decode_checked(data: bytes | None, *place: Any, **words: Any) -> Any:
        if data:
            require_jpeg(data, page, where)
        return decode(data, *place, **words)

    page.decode = decode_checked


def require_jpeg(data: bytes, page: Any, where: str) -> None:
    """Refuse a JPEG in a strip or tile that says another size than that of the strip or tile.

    Raises:
        FileError: it would unpack to more than the file says.
    """
    rows = page.tilelength if page.is_tiled else min(page.rowsperstrip, page.imagelength)
    columns = page.tilewidth if page.is_tiled else page.imagewidth
    found = jpeg_size((page.jpegheader or b"") + data) or (0, 0)
    if not (0 < found[0] < rows + BLOCK and 0 < found[1] < columns + BLOCK):
        raise FileError(
            f"{where}: expected a JPEG of {rows}x{columns} pixels, got one of {found[0]}x{found[1]}. "
            "Save the image again."
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
    """Refuse a JPEG whose own size is not that of its strip or tile."""
    for page in (page.aspage() for page in series.pages if page is not None):
        for offset, count in zip(page.dataoffsets, page.databytecounts, strict=True):
            stream.seek(offset)
            require_jpeg(stream.read(min(count, HEAD)), page, where)
