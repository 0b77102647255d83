"""PNG files written row by row, so that no picture is held: grey, colour, or numbers of a palette.

Source: PNG Specification, third edition, W3C 2025: chunks 5, filters 9, IHDR and PLTE 11.
"""

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

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
