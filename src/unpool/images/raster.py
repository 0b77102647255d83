"""Flat pictures that Pillow reads -> pixels: .png, .jpg, .webp, .bmp, .gif.

    palettes looked up, turned upright, CMYK and the like as RGB
    16 bits     grey .png by Pillow, colour .png by imagecodecs, which Pillow would cut to 8
    animations  the first picture, which is said

What a header claims is checked before anything is unpacked.
"""

from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from unpool.errors import FileError
from unpool.extras import require
from unpool.images.checks import check_claim, check_pixels, pillow_unlimited, read_errors
from unpool.images.pixels import Picture, upright

if TYPE_CHECKING:
    from PIL import Image


FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
ORIENTATION = 274
PNG = b"\x89PNG\r\n\x1a\n"
PNG_CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}
HEADER = 30  # bytes that say how large a .png or .webp is


def read_raster(stream: BinaryIO, size: int, where: str) -> Picture:
    """The picture of one file.

    Args:
        stream: the file, at its beginning.
        size: bytes of the file.
        where: what an error message begins with.

    Raises:
        FileError: not such a picture, or it is broken.
        ShapeError: it is larger than the memory.
        MissingExtraError: 16-bit colour, which needs imagecodecs.
    """
    from PIL import Image, UnidentifiedImageError

    with read_errors(where, "an image"), pillow_unlimited():
        header = stream.read(HEADER)
        stream.seek(0)
        _check_webp(header, where)
        try:
            image = Image.open(stream, formats=FORMATS)
        except UnidentifiedImageError as error:
            raise FileError(
                f"{where}: expected an image ({', '.join(FORMATS)}), got other bytes. Convert it."
            ) from error
        with image:
            depth = _deep_colour(header)
            _check(image, depth, size, where)
            first = "an animation: its first picture is taken" if getattr(image, "is_animated", False) else None
            is_photograph = image.format == "MPO"  # and smaller copies behind it
            notes = () if first is None or is_photograph else (first,)
            if depth:
                turned = image.getexif().get(ORIENTATION, 1)
                return Picture(upright(_decoded(stream, where), turned), 65535, notes)
            return _from_pillow(image, notes)


def _from_pillow(image: "Image.Image", notes: tuple[str, ...]) -> Picture:
    from PIL import ImageOps

    shown = _plain_mode(ImageOps.exif_transpose(image))
    pixels = np.asarray(shown)
    pixels = pixels.astype(pixels.dtype.newbyteorder("="), copy=False)
    white = 65535 if shown.mode.startswith("I") else 255
    return Picture(pixels[..., None] if pixels.ndim == 2 else pixels, white, notes)


def _plain_mode(image: "Image.Image") -> "Image.Image":
    if image.mode in ("RGBA",) or image.mode.startswith("I"):
        return image
    if image.mode in ("LA", "La", "PA", "RGBa") or "transparency" in image.info:
        return image.convert("RGBA")
    if image.mode in ("L", "RGB"):
        return image
    return image.convert("L" if image.mode == "1" else "RGB")


def _deep_colour(header: bytes) -> int:
    """Channels of a 16-bit .png in colour, which Pillow would cut to 8 bits; else 0."""
    is_deep = header[:8] == PNG and header[12:16] == b"IHDR" and header[24] == 16 and header[25] != 0
    return PNG_CHANNELS.get(header[25], 0) if is_deep else 0


def _check(image: "Image.Image", deep_channels: int, size: int, where: str) -> None:
    width, height = image.size
    channels = deep_channels or (1 if image.mode in ("1", "L") or image.mode.startswith("I") else 4)
    itemsize = 2 if deep_channels or image.mode.startswith("I") else 1
    if image.format == "PNG":
        check_claim(height * width // 8, size, where)
    check_pixels((height, width, channels), itemsize, where)


def _check_webp(header: bytes, where: str) -> None:
    """Pillow takes memory for all pixels of a .webp as soon as it is opened."""
    if header[:4] == b"RIFF" and header[8:16] == b"WEBPVP8X" and len(header) == HEADER:
        width, height = (1 + int.from_bytes(header[at : at + 3], "little") for at in (24, 27))
        check_pixels((height, width, 4), 4, where)


def _decoded(stream: BinaryIO, where: str) -> NDArray[Any]:
    """Pixels (H, W, C) of a 16-bit .png; grey with alpha as colours with alpha."""
    require(f"{where}, a .png of 16-bit colour", "formats", "imagecodecs")
    import imagecodecs

    stream.seek(0)
    pixels: NDArray[Any] = imagecodecs.png_decode(stream.read())
    if pixels.shape[-1] == 2:
        return np.concatenate([np.repeat(pixels[..., :1], 3, axis=-1), pixels[..., 1:]], axis=-1)
    return pixels
