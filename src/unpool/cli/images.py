"""Image file -> a picture as it is to be looked at, in the type of the file; nothing is resized or rescaled.

.png .jpg   Pillow: palettes looked up, turned upright, CMYK and the like as RGB; 16-bit grey as it is
.tif        tifffile: any integer or float type, pages, palettes, MINISWHITE, the orientation; see `tiff`

What is none of these is refused rather than guessed.
"""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from unpool.cli.picture import Picture, opaque_of, to_channels
from unpool.cli.tiff import read_tiff
from unpool.errors import FileError, MissingFileError, ShapeError, UnpoolError, UnsupportedError

if TYPE_CHECKING:
    from PIL import Image

PILLOW_SUFFIXES = (".png", ".jpg", ".jpeg")
TIFF_SUFFIXES = (".tif", ".tiff")
IMAGE_SUFFIXES = PILLOW_SUFFIXES + TIFF_SUFFIXES
CONTENT = ("PNG", "JPEG", "WEBP", "BMP")  # what such a name may hide; none is cut to 8 bits without a word

_log = logging.getLogger("unpool.cli")


def read_image(path: Path, spatial_rank: int, channels: int | None) -> Picture:
    """The picture of one image file.

    Args:
        path: .png, .jpg or .jpeg (8-bit, or 16-bit grey .png), .tif or .tiff (any integer or float type).
        spatial_rank: 2 for a picture, 3 for a volume (the pages of a TIFF file are its depth).
        channels: how many channels are wanted: 1 grey, 3 RGB, 4 RGBA, or as many as the file has
            (TIFF); None takes those of the file.

    Raises:
        MissingFileError, FileError: no such file, or not an image.
        ShapeError: a volume was expected and a picture came, or the other way round, or other channels.
        UnsupportedError: an image whose pixels would be guessed, such as 16-bit colour .png; the message says which.
    """
    if not path.is_file():
        raise MissingFileError(f"{path}: no such file.")
    if path.suffix.lower() in TIFF_SUFFIXES:
        picture = read_tiff(path, spatial_rank, channels)
    else:
        picture = _read_with_pillow(path, spatial_rank)
    if channels is None:
        return picture
    _tell_transparency(picture, channels, path)
    return Picture(to_channels(picture.pixels, channels, str(path)), picture.white)


def _tell_transparency(picture: Picture, channels: int, path: Path) -> None:
    pixels = picture.pixels
    if pixels.shape[-1] == 4 and channels in (1, 3) and (pixels[..., 3] != opaque_of(pixels.dtype)).any():
        _log.warning("%s: some of it is transparent; the colours there are taken as they are stored", path)


def _read_with_pillow(path: Path, spatial_rank: int) -> Picture:
    from PIL import Image, ImageOps

    if spatial_rank != 2:
        raise ShapeError(
            f"{path}: the model takes volumes (N, C, D, H, W), a {path.suffix} file is a flat picture. "
            "Give a .tif with one page per slice, or a .npy."
        )
    _refuse_deep_colour(path)
    try:
        with Image.open(path, formats=CONTENT) as image:
            _refuse_animation(image, path)
            upright = _plain_mode(ImageOps.exif_transpose(image))
            pixels = np.asarray(upright)
    except UnpoolError:
        raise
    except Exception as error:  # decoders raise whatever a broken file leads them to
        raise FileError(f"{path}: expected an image, could not read it ({error}).") from error
    pixels = pixels.astype(pixels.dtype.newbyteorder("="), copy=False)
    white = 65535 if upright.mode.startswith("I") else 255
    return Picture(pixels[..., None] if pixels.ndim == 2 else pixels, white)


def _plain_mode(image: "Image.Image") -> "Image.Image":
    if image.mode in ("RGBA",) or image.mode.startswith("I"):
        return image
    if image.mode in ("LA", "La", "PA", "RGBa") or "transparency" in image.info:
        return image.convert("RGBA")
    if image.mode in ("L", "RGB"):
        return image
    return image.convert("L" if image.mode == "1" else "RGB")


def _refuse_animation(image: "Image.Image", path: Path) -> None:
    count = getattr(image, "n_frames", 1)
    if count > 1 and image.format != "MPO":  # MPO: a photograph, and smaller copies behind it
        raise UnsupportedError(f"{path}: expected one picture, got an animation of {count}. Save one of them.")


def _refuse_deep_colour(path: Path) -> None:
    """Refuse 16-bit colour .png: Pillow reads it as 8-bit without a word."""
    with path.open("rb") as stream:
        header = stream.read(26)
    is_png = header[:8] == b"\x89PNG\r\n\x1a\n" and len(header) == 26
    if is_png and header[24] == 16 and header[25] != 0:
        raise UnsupportedError(f"{path}: 16-bit colour .png is not supported, 16-bit .tif is. Convert the image first.")
