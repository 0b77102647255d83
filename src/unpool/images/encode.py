"""Encoders of pictures: .png, .jpg and .tif, written row by row; only a .jpg is held in memory.

Source: PNG Specification, third edition, W3C 2025: chunks 5, filters 9, IHDR and PLTE 11.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from unpool.display import format_shape
from unpool.errors import ShapeError, UnsupportedError

if TYPE_CHECKING:
    from PIL import Image

BAND = 2**18
"""Elements of an image that are in memory at a time, where it is read row by row."""
FLAT_FORMATS = ("png", "jpg")
QUALITY = 90
"""Of .jpg, unless it is said."""
LONGEST_JPEG = 65535
"""Pixels of a side."""
TILE = 256
"""Pixels of a row that a tile of a .tif has."""
SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY, COLOUR, PALETTE, TRANSPARENT = 0, 2, 3, 6
KINDS = {1: GREY, 3: COLOUR, 4: TRANSPARENT}
BLOCK = 2**16
"""Bytes of a chunk of pixels, at least."""


@dataclass(frozen=True)
class Sheet:
    """The size and kind of a picture.

    Attributes:
        height, width: in pixels.
        channels: 1, 3 or 4.
        depth: bits of a sample, 8 or 16.
        palette: colours of the numbers in one channel of 8 bits; empty for grey.
    """

    height: int
    width: int
    channels: int = 1
    depth: int = 8
    palette: Sequence[tuple[int, int, int]] = ()


def write_picture(stream: BinaryIO, form: str, picture: "Image.Image") -> None:
    """Write a ready picture as .png or .tif."""
    if form == "png":
        picture.save(stream, format="PNG")
    else:
        import tifffile

        pixels = np.asarray(picture)
        tifffile.imwrite(stream, pixels, photometric="rgb" if pixels.ndim == 3 else "minisblack", compression="zlib")


def write_pages(stream: BinaryIO, form: str, pages: Iterable[tuple[Sheet, Iterable[NDArray[Any]]]]) -> None:
    """Write pictures as the pages of a .tif, or the only one in any format; each as `write_rows` does."""
    if form != "tif":
        ((sheet, bands),) = pages
        write_rows(stream, form, sheet, bands)
        return
    import tifffile

    with tifffile.TiffWriter(stream) as file:
        for sheet, bands in pages:
            _write_page(file, sheet, bands)


def write_rows(
    stream: BinaryIO, form: str, sheet: Sheet, bands: Iterable[NDArray[Any]], quality: int = QUALITY
) -> None:
    """Write a flat picture row by row; only .jpg holds it, in 4 bytes per pixel.

    Args:
        stream: an open file.
        form: png, jpg or tif.
        sheet: the size and kind of the picture.
        bands: its rows from top to bottom, (rows, width) or (rows, width, channels).
        quality: of .jpg, 1 to 100.
    """
    if form == "png":
        write_png(stream, sheet, bands)
    elif form == "jpg":
        _write_jpeg(stream, sheet, bands, quality)
    else:
        import tifffile

        with tifffile.TiffWriter(stream) as file:
            _write_page(file, sheet, bands)


def _write_page(file: Any, sheet: Sheet, bands: Iterable[NDArray[Any]]) -> None:
    rows = max(16, min(TILE, BAND // sheet.width // 16 * 16))
    file.write(
        _tiles(_regrouped(bands, rows), rows),
        shape=(sheet.height, sheet.width, *((sheet.channels,) if sheet.channels > 1 else ())),
        dtype=np.uint16 if sheet.depth == 16 else np.uint8,
        photometric="rgb" if sheet.channels > 1 else "minisblack",
        compression="zlib",
        tile=(rows, TILE),
        maxworkers=1,
        metadata=None,
    )


def _write_jpeg(stream: BinaryIO, sheet: Sheet, bands: Iterable[NDArray[Any]], quality: int) -> None:
    from PIL import Image

    if max(sheet.height, sheet.width) > LONGEST_JPEG:
        raise ShapeError(
            f".jpg: holds {LONGEST_JPEG} pixels along a side, got {sheet.height}x{sheet.width}. Write .png or .tif."
        )
    picture, top = Image.new("L" if sheet.channels == 1 else "RGB", (sheet.width, sheet.height)), 0
    for band in bands:
        picture.paste(Image.fromarray(np.ascontiguousarray(band)), (0, top))
        top += len(band)
    picture.save(stream, format="JPEG", quality=quality)


def _regrouped(bands: Iterable[NDArray[Any]], rows: int) -> Iterator[NDArray[Any]]:
    """The same rows in bands of equal size; the last one may be smaller."""
    held: list[NDArray[Any]] = []
    for band in bands:
        held.append(band)
        while sum(map(len, held)) >= rows:
            joined = np.concatenate(held) if len(held) > 1 else held[0]
            yield joined[:rows]
            held = [joined[rows:]] if len(joined) > rows else []
    if held:
        yield np.concatenate(held)


def _tiles(bands: Iterable[NDArray[Any]], rows: int) -> Iterator[NDArray[Any]]:
    """Tiles of a .tif, filled up with zeros at its ends."""
    for band in bands:
        for left in range(0, band.shape[1], TILE):
            piece = band[:, left : left + TILE]
            missing = ((0, rows - piece.shape[0]), (0, TILE - piece.shape[1]), *((0, 0),) * (band.ndim - 2))
            yield np.ascontiguousarray(np.pad(piece, missing))


def write_planes(stream: BinaryIO, form: str, pixels: NDArray[Any], where: str) -> None:
    """Write one image or volume given with channels last: (H, W, C) or (D, H, W, C), or without C.

    Raises:
        ShapeError: the shape is not one of these, or .png cannot hold it.
        UnsupportedError: the type is not one that the format holds; nothing is rescaled or clipped.
    """
    if form in FLAT_FORMATS:
        sheet = sheet_of(pixels.shape, pixels.dtype, form, where)
        write_rows(stream, form, sheet, [pixels[..., 0] if sheet.channels == 1 else pixels])
        return
    import tifffile

    is_colour = pixels.ndim >= 3 and pixels.shape[-1] in (3, 4) and pixels.dtype in (np.uint8, np.uint16)
    if is_colour:
        tifffile.imwrite(stream, pixels, photometric="rgb", compression="zlib")
        return
    pages = (
        np.moveaxis(pixels, -1, 0) if pixels.ndim >= 3 and pixels.shape[-1] != 1 else pixels.reshape(pixels.shape[:-1])
    )
    tifffile.imwrite(stream, np.ascontiguousarray(pages), photometric="minisblack", compression="zlib")


def sheet_of(shape: tuple[int, ...], dtype: np.dtype[Any], form: str, where: str) -> Sheet:
    """The size and kind of a picture of pixels (H, W, C).

    Raises:
        ShapeError, UnsupportedError: .png or .jpg does not hold them.
    """
    channels = (1, 3, 4) if form == "png" else (1, 3)
    if len(shape) != 3 or shape[-1] not in channels or not min(shape):
        counts = "1, 3 or 4" if form == "png" else "1 or 3"
        raise ShapeError(
            f"{where}: .{form} holds a flat picture of {counts} channels, got {format_shape(shape)}. "
            "Write .tif or .npy."
        )
    if dtype == np.uint8 or (form == "png" and dtype == np.uint16 and shape[-1] == 1):
        return Sheet(*shape, depth=8 * dtype.itemsize)
    kinds = "uint8, or uint16 grey" if form == "png" else "uint8"
    raise UnsupportedError(f"{where}: .{form} holds {kinds}, got {dtype}. Write .tif or .npy, or add --argmax.")


def write_png(stream: BinaryIO, sheet: Sheet, bands: Iterable[NDArray[Any]]) -> None:
    """Write a picture.

    Args:
        stream: an open file.
        sheet: its size and kind.
        bands: its rows from top to bottom, (rows, width) or (rows, width, channels) of uint8 or uint16.

    >>> import io
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> write_png(file, Sheet(2, 3), [np.array([[1, 2, 3]], np.uint8), np.array([[4, 5, 6]], np.uint8)])
    >>> np.asarray(Image.open(file)).tolist()
    [[1, 2, 3], [4, 5, 6]]
    """
    kind = PALETTE if sheet.palette else KINDS[sheet.channels]
    stream.write(SIGNATURE)
    _chunk(stream, b"IHDR", struct.pack(">IIBBBBB", sheet.width, sheet.height, sheet.depth, kind, 0, 0, 0))
    if sheet.palette:
        _chunk(stream, b"PLTE", bytes(part for colour in sheet.palette for part in colour))
    packer, packed = zlib.compressobj(), bytearray()
    step = sheet.channels * sheet.depth // 8
    above = np.zeros(sheet.width * step, np.uint8)
    for band in bands:
        rows = _bytes(band, sheet.depth)
        filtered = _unfiltered(rows) if sheet.palette or sheet.channels == 1 else _filtered(rows, above, step)
        above = rows[-1]
        packed += packer.compress(filtered.tobytes())
        if len(packed) >= BLOCK:
            _chunk(stream, b"IDAT", bytes(packed))
            packed.clear()
    _chunk(stream, b"IDAT", bytes(packed) + packer.flush())
    _chunk(stream, b"IEND", b"")


def _chunk(stream: BinaryIO, name: bytes, content: bytes) -> None:
    stream.write(struct.pack(">I", len(content)) + name + content)
    stream.write(struct.pack(">I", zlib.crc32(content, zlib.crc32(name))))


def _bytes(band: NDArray[Any], depth: int) -> NDArray[np.uint8]:
    """(rows, bytes of a row); samples of 16 bits have their high byte first."""
    plain = np.ascontiguousarray(band, ">u2" if depth == 16 else np.uint8)
    return plain.reshape(len(band), -1).view(np.uint8)


def _unfiltered(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.insert(rows, 0, 0, axis=1)


def _filtered(rows: NDArray[np.uint8], above: NDArray[np.uint8], step: int) -> NDArray[np.uint8]:
    """Each row by the filter that makes it smallest: the left neighbour, the one above, or their mean taken away.

    Source: PNG 12.7: the sum of absolute differences says which.
    """
    left = np.zeros_like(rows)
    left[:, step:] = rows[:, :-step]
    up = np.concatenate([above[None], rows[:-1]])
    mean = ((left.astype(np.uint16) + up) >> 1).astype(np.uint8)
    ways = {0: rows, 1: rows - left, 2: rows - up, 3: rows - mean}
    costs = [np.abs(way.view(np.int8).astype(np.int16)).sum(axis=1) for way in ways.values()]
    best = np.argmin(costs, axis=0)
    made = np.empty((len(rows), rows.shape[1] + 1), np.uint8)
    for number, way in ways.items():
        chosen = best == number
        made[chosen, 0], made[chosen, 1:] = number, way[chosen]
    return made
