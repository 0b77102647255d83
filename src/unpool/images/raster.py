"""Flat pictures: .png, .jpg, .webp, .bmp, .gif read by Pillow; .png, .jpg and .tif written row by row.

    read        palettes looked up, turned upright, CMYK and the like as RGB
                16 bits: grey .png by Pillow, colour .png by imagecodecs, which Pillow would cut to 8
                animations: the first picture, with a note
    write       only a .jpg is held in memory

The claims of a header are checked before anything is unpacked.

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
from unpool.errors import FileError, ShapeError, UnsupportedError
from unpool.extras import require
from unpool.images.checks import check_claim, check_pixels, pillow_unlimited, read_errors
from unpool.images.pixels import DecodingBytes, Picture, upright

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
ORIENTATION = 274
PNG = b"\x89PNG\r\n\x1a\n"
PNG_CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}
HEADER = 30  # bytes that say how large a .png or .webp is
DECODERS = {"WEBP": 13}  # bytes per pixel that a decoder takes in addition to the image

BAND = 2**18  # elements of an image that are in memory at a time, where it is read row by row
FLAT_CHANNELS = {"png": (1, 3, 4), "jpg": (1, 3)}  # of pictures that are written
CLASS_ADVICE = "For classes, add --argmax (a mask) or --overlay; to keep all channels, write .tif or .npy."
JPEG_QUALITY = 90
MAX_JPEG_SIDE = 65535
TILE = 256  # pixels of a row that a tile of a .tif has
GREY, COLOUR, PALETTE, TRANSPARENT = 0, 2, 3, 6
KINDS = {1: GREY, 3: COLOUR, 4: TRANSPARENT}
AVERAGE = 3  # the filter of rows of a .png
MIN_CHUNK_BYTES = 2**16  # of compressed pixels in a .png, but for the last chunk


def read_raster(stream: BinaryIO, size: int, where: str) -> Picture:
    """The picture of a file of `size` bytes; 16-bit colour needs imagecodecs."""
    from PIL import Image, UnidentifiedImageError

    with read_errors(where, "an image"), pillow_unlimited():
        header = stream.read(HEADER)
        stream.seek(0)
        if header[:4] == b"RIFF" and header[8:16] == b"WEBPVP8X" and len(header) == HEADER:
            # Pillow takes memory for all pixels of a .webp as soon as it is opened
            width, height = (1 + int.from_bytes(header[at : at + 3], "little") for at in (24, 27))
            check_pixels((height, width, 4), 4, where)
        try:
            image = Image.open(stream, formats=FORMATS)
        except UnidentifiedImageError as error:
            text = f"{where}: expected an image ({', '.join(FORMATS)}), got other bytes. Convert it."
            raise FileError(text) from error
        with image:
            deep_channels = _deep_channels(header)
            width, height = image.size
            is_wide = image.mode.startswith("I")
            channels = deep_channels or (1 if image.mode in ("1", "L") or is_wide else 4)
            if image.format == "PNG":
                check_claim(height * width // 8, size, where)
            check_pixels((height, width, channels), 2 if deep_channels or is_wide else 1, where)
            is_photograph = image.format == "MPO"  # followed by smaller copies
            is_animation = getattr(image, "is_animated", False) and not is_photograph
            notes = ("an animation: its first picture is taken",) if is_animation else ()
            if not deep_channels:
                return from_pillow(image, notes)
            orientation = image.getexif().get(ORIENTATION, 1)
        require(f"{where}, a .png of 16-bit colour", "formats", "imagecodecs")
        import imagecodecs

        stream.seek(0)
        pixels: NDArray[Any] = imagecodecs.png_decode(stream.read())
        if pixels.shape[-1] == 2:  # grey with alpha
            pixels = pixels.take([0, 0, 0, 1], axis=-1)
        return Picture(upright(pixels, orientation), 65535, notes)


def _deep_channels(header: bytes) -> int:
    """The channels of a .png of 16-bit colour, which Pillow would cut to 8 bits; 0 for other files."""
    is_deep = header[:8] == PNG and header[12:16] == b"IHDR" and header[24] == 16 and header[25] != 0
    return PNG_CHANNELS.get(header[25], 0) if is_deep else 0


def from_pillow(image: "Image.Image", notes: tuple[str, ...] = ()) -> Picture:
    """An open image, upright, in grey, RGB or RGBA; `decoding_bytes` counts its memory."""
    from PIL import ImageOps

    if image.getexif().get(ORIENTATION, 1) != 1:  # it would be copied
        image = ImageOps.exif_transpose(image)
    mode = _plain_mode(image)
    shown = image if mode == image.mode else image.convert(mode)
    kind = np.asarray(shown.crop((0, 0, 1, 1))).dtype.newbyteorder("=")
    pixels = np.empty((shown.height, shown.width, len(shown.getbands())), kind)
    step = max(1, BAND // shown.width)
    for top in range(0, shown.height, step):  # an array of a whole image would be made through two copies
        band = np.asarray(shown.crop((0, top, shown.width, min(top + step, shown.height))))
        pixels[top : top + step] = band.reshape(*band.shape[:2], -1)
    return Picture(pixels, 65535 if shown.mode.startswith("I") else 255, notes)


def _plain_mode(image: "Image.Image") -> str:
    """The mode of Pillow in which an image is read: grey, RGB or RGBA."""
    if image.mode == "RGBA" or image.mode.startswith("I"):
        return image.mode
    if image.mode in ("LA", "La", "PA", "RGBa") or "transparency" in image.info:
        return "RGBA"
    return "L" if image.mode in ("1", "L") else "RGB"


def decoding_bytes(stream: BinaryIO, _: str) -> DecodingBytes:
    """The size of a flat picture, and the memory that reading it takes at most."""
    from PIL import Image

    header, size = stream.read(HEADER), stream.seek(0, 2)
    stream.seek(0)
    with pillow_unlimited(), Image.open(stream, formats=FORMATS) as image:
        count, mode, stored = image.width * image.height, _plain_mode(image), _mode_bytes(image.mode)
        # Pillow decodes a .png to look for an orientation at its end
        orientation = 1 if image.format == "PNG" and "exif" not in image.info else image.getexif().get(ORIENTATION, 1)
        shape = image.size if orientation >= 5 else image.size[::-1]
        if channels := _deep_channels(header):
            bands = 4 if channels == 2 else channels  # grey with alpha becomes RGBA
            decoded = 2 * count * (channels + (bands if bands != channels else 0))
            return DecodingBytes(shape, bands, size + count * stored + decoded, 2 * count * bands)
        channels = len(Image.new(mode, (1, 1)).getbands())
        pixels = count * channels * (2 if mode.startswith("I") else 1)
        images = stored * (1 if orientation == 1 else 2) + (0 if mode == image.mode else _mode_bytes(mode))
        peak = max(count * images + pixels, int(count * (stored + _decoder_bytes(image))))
        return DecodingBytes(shape, channels, peak, pixels)


def _decoder_bytes(image: "Image.Image") -> float:
    """Bytes per pixel that a decoder takes in addition to the image: for a progressive .jpg, its coefficients."""
    if not image.info.get("progressive"):
        return DECODERS.get(image.format or "", 0)
    blocks: list[int] = [across * down for _, across, down, _ in getattr(image, "layer", [])] or [1]
    return 2 * sum(blocks) / max(blocks)


def _mode_bytes(mode: str) -> int:
    """Bytes that Pillow takes for a pixel."""
    return 1 if mode in ("1", "L", "P") else 2 if mode.startswith("I;16") else 4


@dataclass(frozen=True)
class Sheet:
    """The size and kind of a picture: 1, 3 or 4 channels of 8 or 16 bits; a palette has colours for one of 8 bits."""

    height: int
    width: int
    channels: int = 1
    depth: int = 8
    palette: Sequence[tuple[int, int, int]] = ()


def write_pages(stream: BinaryIO, form: str, pages: Iterable[tuple[Sheet, Iterable[NDArray[Any]]]]) -> None:
    """Write pictures as the pages of a .tif, or the only one in any format; each as `write_rows` does."""
    if form != "tif":
        ((sheet, bands),) = pages
        write_rows(stream, form, sheet, bands)
        return
    import tifffile

    with tifffile.TiffWriter(stream) as file:
        for sheet, bands in pages:
            rows = max(16, min(TILE, BAND // sheet.width // 16 * 16))
            file.write(
                _tiles(_regroup(bands, rows), rows),
                shape=(sheet.height, sheet.width, *((sheet.channels,) if sheet.channels > 1 else ())),
                dtype=np.uint16 if sheet.depth == 16 else np.uint8,
                photometric="rgb" if sheet.channels > 1 else "minisblack",
                compression="zlib",
                tile=(rows, TILE),
                maxworkers=1,
                metadata=None,
            )


def write_rows(
    stream: BinaryIO, form: str, sheet: Sheet, bands: Iterable[NDArray[Any]], quality: int = JPEG_QUALITY
) -> None:
    """Write a flat picture as png, jpg or tif, row by row; a jpg is held, in 4 bytes per pixel.

    `bands` are its rows from top to bottom, (rows, width) or (rows, width, channels); `quality` is 1 to 100.
    """
    if form == "png":
        write_png(stream, sheet, bands)
    elif form == "jpg":
        _write_jpeg(stream, sheet, bands, quality)
    else:
        write_pages(stream, form, [(sheet, bands)])


def _write_jpeg(stream: BinaryIO, sheet: Sheet, bands: Iterable[NDArray[Any]], quality: int) -> None:
    from PIL import Image

    if max(sheet.height, sheet.width) > MAX_JPEG_SIDE:
        size = f"{sheet.height}x{sheet.width}"
        raise ShapeError(f".jpg: holds {MAX_JPEG_SIDE} pixels along a side, got {size}. Write .png or .tif.")
    picture, top = Image.new("L" if sheet.channels == 1 else "RGB", (sheet.width, sheet.height)), 0
    for band in bands:
        picture.paste(Image.fromarray(np.ascontiguousarray(band)), (0, top))
        top += len(band)
    picture.save(stream, format="JPEG", quality=quality)


def _regroup(bands: Iterable[NDArray[Any]], rows: int) -> Iterator[NDArray[Any]]:
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
        for start in range(0, band.shape[1], TILE):
            piece = band[:, start : start + TILE]
            missing = ((0, rows - piece.shape[0]), (0, TILE - piece.shape[1]), *((0, 0),) * (band.ndim - 2))
            yield np.ascontiguousarray(np.pad(piece, missing))


def write_planes(stream: BinaryIO, form: str, pixels: NDArray[Any], where: str) -> None:
    """Write one image or volume given with channels last: (H, W, C) or (D, H, W, C), or without C.

    Nothing is rescaled or clipped: a type or shape that the format does not hold is an error.
    """
    if form in FLAT_CHANNELS:
        sheet = sheet_of(pixels.shape, pixels.dtype, form, where)
        write_rows(stream, form, sheet, [pixels[..., 0] if sheet.channels == 1 else pixels])
        return
    import tifffile

    if pixels.ndim >= 3 and pixels.shape[-1] in (3, 4) and pixels.dtype in (np.uint8, np.uint16):
        tifffile.imwrite(stream, pixels, photometric="rgb", compression="zlib")
        return
    has_pages = pixels.ndim >= 3 and pixels.shape[-1] != 1
    pages = np.moveaxis(pixels, -1, 0) if has_pages else pixels.reshape(pixels.shape[:-1])
    tifffile.imwrite(stream, np.ascontiguousarray(pages), photometric="minisblack", compression="zlib")


def sheet_of(shape: tuple[int, ...], dtype: np.dtype[Any], form: str, where: str) -> Sheet:
    """The size and kind of a picture of pixels (H, W, C), which the format has to hold."""
    channels = FLAT_CHANNELS[form]
    if len(shape) != 3 or shape[-1] not in channels or not min(shape):
        text = f"{where}: .{form} holds a flat picture of {channel_counts(form)}, got {format_shape(shape)}."
        raise ShapeError(f"{text} {CLASS_ADVICE if len(shape) == 3 else 'Write .tif or .npy.'}")
    if dtype == np.uint8 or (form == "png" and dtype == np.uint16 and shape[-1] == 1):
        return Sheet(*shape, depth=8 * dtype.itemsize)
    kinds = "uint8, or uint16 grey" if form == "png" else "uint8"
    raise UnsupportedError(f"{where}: .{form} holds {kinds}, got {dtype}. Write .tif or .npy, or add --argmax.")


def channel_counts(form: str) -> str:
    """The numbers of channels that a flat picture of a format has, as a text."""
    *others, last = FLAT_CHANNELS[form]
    return f"{', '.join(map(str, others))} or {last} channels"


def write_png(stream: BinaryIO, sheet: Sheet, bands: Iterable[NDArray[Any]]) -> None:
    """Write a picture from bands of rows, as in `write_rows`, of uint8 or uint16."""
    kind = PALETTE if sheet.palette else KINDS[sheet.channels]
    stream.write(PNG)
    _chunk(stream, b"IHDR", struct.pack(">IIBBBBB", sheet.width, sheet.height, sheet.depth, kind, 0, 0, 0))
    if sheet.palette:
        _chunk(stream, b"PLTE", bytes(part for colour in sheet.palette for part in colour))
    packer, packed = zlib.compressobj(), bytearray()
    step = sheet.channels * sheet.depth // 8
    above = np.zeros(sheet.width * step, np.uint8)
    for band in bands:
        plain = np.ascontiguousarray(band, ">u2" if sheet.depth == 16 else np.uint8)
        rows = plain.reshape(len(band), -1).view(np.uint8)
        is_plain = sheet.palette or sheet.channels == 1
        filtered = np.insert(rows, 0, 0, axis=1) if is_plain else _filter_rows(rows, above, step)
        above = rows[-1]
        packed += packer.compress(filtered.tobytes())
        if len(packed) >= MIN_CHUNK_BYTES:
            _chunk(stream, b"IDAT", bytes(packed))
            packed.clear()
    _chunk(stream, b"IDAT", bytes(packed) + packer.flush())
    _chunk(stream, b"IEND", b"")


def _chunk(stream: BinaryIO, name: bytes, content: bytes) -> None:
    stream.write(struct.pack(">I", len(content)) + name + content)
    stream.write(struct.pack(">I", zlib.crc32(content, zlib.crc32(name))))


def _filter_rows(rows: NDArray[np.uint8], above: NDArray[np.uint8], step: int) -> NDArray[np.uint8]:
    """Each row less the mean of its left neighbours and the row above, after the number of this filter.

    Source: PNG 9.2. Photographs are 3 % larger at most than with the best filter of each row.
    """
    left = np.pad(rows, ((0, 0), (step, 0)))[:, :-step]
    up = np.concatenate([above[None], rows[:-1]])
    mean = (left.astype(np.uint16) + up) >> 1
    return np.insert(rows - mean.astype(np.uint8), 0, AVERAGE, axis=1)
