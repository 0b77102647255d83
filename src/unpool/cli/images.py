"""Image file -> pixels, with channels last, in the type of the file; nothing is resized or rescaled."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unpool.errors import FileError, MissingFileError, ShapeError, UnsupportedError

if TYPE_CHECKING:
    from PIL import Image

PILLOW_SUFFIXES = (".png", ".jpg", ".jpeg")
TIFF_SUFFIXES = (".tif", ".tiff")
IMAGE_SUFFIXES = PILLOW_SUFFIXES + TIFF_SUFFIXES
LUMA = (0.299, 0.587, 0.114)

_log = logging.getLogger("unpool.cli")


def read_image(path: Path, spatial_rank: int, channels: int | None) -> NDArray[Any]:
    """Pixels of one image file.

    Args:
        path: .png, .jpg or .jpeg (8-bit, or 16-bit grey .png), .tif or .tiff (any integer or float type).
        spatial_rank: 2 for a picture, 3 for a volume (the pages of a TIFF file are its depth).
        channels: how many channels are wanted: 1 grey, 3 RGB, 4 RGBA, or as many as the file has
            (TIFF); None takes those of the file.

    Returns:
        (H, W, C), or (D, H, W, C) when `spatial_rank` is 3, in the type of the file.

    Raises:
        MissingFileError, FileError: no such file, or not an image.
        ShapeError: a volume was expected and a picture came, or the other way round, or other channels.
        UnsupportedError: 16-bit colour .png.
    """
    if not path.is_file():
        raise MissingFileError(f"{path}: no such file.")
    if path.suffix.lower() in TIFF_SUFFIXES:
        pixels = _read_tiff(path, spatial_rank, channels)
    else:
        pixels = _read_with_pillow(path, spatial_rank)
    return pixels if channels is None else to_channels(pixels, channels, str(path))


def to_channels(pixels: NDArray[Any], channels: int, where: str) -> NDArray[Any]:
    """Pixels with another number of channels: grey by the ITU-R BT.601 weights, alpha dropped or opaque.

    Args:
        pixels: (..., C).
        channels: the number wanted.
        where: what the error message begins with.

    >>> to_channels(np.array([[[255, 0, 0]]], np.uint8), 1, "red.png").tolist()
    [[[76]]]
    """
    have = pixels.shape[-1]
    if have == channels:
        return pixels
    if have not in (1, 3, 4) or channels not in (1, 3, 4):
        raise ShapeError(
            f"{where}: the model takes {channels} channels, the image has {have}. Convert the image first."
        )
    if have == 4:
        _log.info("%s: the alpha channel is left out", where)
        pixels, have = pixels[..., :3], 3
    if channels == 1 and have == 3:
        grey = pixels.astype(np.float64) @ np.array(LUMA)
        return _like(grey, pixels.dtype)[..., None]
    colour = np.repeat(pixels, 3, axis=-1) if have == 1 else pixels
    if channels == 3 or have == channels:
        return colour[..., :channels]
    opaque = np.full((*colour.shape[:-1], 1), _white(colour), colour.dtype)
    return np.concatenate([colour, opaque], axis=-1)


def for_display(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """RGB bytes (H, W, 3) of (H, W, C) pixels; types other than uint8 are stretched from smallest to largest.

    >>> for_display(np.array([[[0], [500], [1000]]], np.uint16))[0, :, 0].tolist()
    [0, 128, 255]
    """
    if pixels.shape[-1] not in (1, 3, 4):
        pixels = pixels[..., :1]
    colour = np.repeat(pixels, 3, axis=-1) if pixels.shape[-1] == 1 else pixels[..., :3]
    if colour.dtype == np.uint8:
        return np.ascontiguousarray(colour)
    values = colour.astype(np.float64)
    finite = values[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    span = high - low if high > low else 1.0
    shown = np.nan_to_num((values - low) / span, nan=0.0, posinf=1.0, neginf=0.0)
    return np.rint(shown * 255).astype(np.uint8)


def _like(values: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[Any]:
    rounded = np.rint(values) if np.issubdtype(dtype, np.integer) else values
    return rounded.astype(dtype)


def _white(pixels: NDArray[Any]) -> Any:
    return np.iinfo(pixels.dtype).max if np.issubdtype(pixels.dtype, np.integer) else 1.0


def _read_with_pillow(path: Path, spatial_rank: int) -> NDArray[Any]:
    from PIL import Image, ImageOps, UnidentifiedImageError

    if spatial_rank != 2:
        raise ShapeError(
            f"{path}: the model takes volumes (N, C, D, H, W), a {path.suffix} file is a flat picture. "
            "Give a .tif with one page per slice, or a .npy."
        )
    _refuse_deep_colour(path)
    try:
        with Image.open(path) as image:
            pixels = np.asarray(_plain_mode(ImageOps.exif_transpose(image)))
    except (UnidentifiedImageError, Image.DecompressionBombError, SyntaxError, ValueError, OSError) as error:
        raise FileError(f"{path}: expected an image, could not read it ({error}).") from error
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _plain_mode(image: "Image.Image") -> "Image.Image":
    if image.mode in ("L", "RGB", "RGBA", "F") or image.mode.startswith("I"):
        return image
    if image.mode == "1":
        return image.convert("L")
    has_alpha = "A" in image.mode.upper() or "transparency" in image.info
    is_grey = image.mode in ("LA", "La")
    return image.convert("RGBA" if has_alpha or is_grey else "RGB")


def _refuse_deep_colour(path: Path) -> None:
    """Refuse 16-bit colour .png: Pillow reads it as 8-bit without a word."""
    with path.open("rb") as stream:
        header = stream.read(26)
    is_png = header[:8] == b"\x89PNG\r\n\x1a\n" and len(header) == 26
    if is_png and header[24] == 16 and header[25] != 0:
        raise UnsupportedError(f"{path}: 16-bit colour .png is not supported, 16-bit .tif is. Convert the image first.")


def _read_tiff(path: Path, spatial_rank: int, channels: int | None) -> NDArray[Any]:
    import tifffile

    try:
        with tifffile.TiffFile(path) as file:
            series = file.series[0]
            axes, pixels = series.axes, series.asarray()
    except (tifffile.TiffFileError, ValueError, IndexError, KeyError, OSError) as error:
        raise FileError(f"{path}: expected a TIFF image, could not read it ({error}).") from error
    return arrange(pixels, axes, spatial_rank, channels, str(path))


def arrange(pixels: NDArray[Any], axes: str, spatial_rank: int, channels: int | None, where: str) -> NDArray[Any]:
    """Move the axes of a TIFF series to (H, W, C) or (D, H, W, C).

    Args:
        pixels: the series.
        axes: one letter per axis as tifffile names them: Y, X, S or C for channels, others for pages.
        spatial_rank: 2 or 3.
        channels: pages count as channels when there are exactly as many; None: never.
        where: what the error message begins with.

    >>> arrange(np.zeros((3, 5, 7)), "CYX", 2, 3, "a.tif").shape
    (5, 7, 3)
    >>> arrange(np.zeros((9, 5, 7)), "QYX", 3, 1, "a.tif").shape
    (9, 5, 7, 1)
    """
    pages = [letter for letter in axes if letter not in "YXSC"]
    colour = [letter for letter in axes if letter in "SC"]
    if spatial_rank == 2 and len(pages) == 1 and not colour and pixels.shape[axes.index(pages[0])] == channels:
        pages, colour = [], pages
    fits = "Y" in axes and "X" in axes and len(pages) == spatial_rank - 2 and len(colour) <= 1
    if not fits:
        expected = "a flat picture" if spatial_rank == 2 else "a volume, one page per slice"
        sizes = "x".join(str(size) for size in pixels.shape)
        raise ShapeError(
            f"{where}: expected {expected}, got {sizes} pixels with axes {axes}. "
            "Split or stack the pages, or give a .npy."
        )
    order = [axes.index(letter) for letter in (*pages, "Y", "X", *colour)]
    arranged = pixels.transpose(order)
    return arranged if colour else arranged[..., None]
