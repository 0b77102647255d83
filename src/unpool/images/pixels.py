"""The pixels of an image file: channels, the value that means white, and how they are shown."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unpool.errors import ShapeError

LUMA = (0.299, 0.587, 0.114)
WHITE_LEVEL = 255.0  # white in the units that models get, those of 8-bit pictures

_log = logging.getLogger("unpool.images")


@dataclass(frozen=True)
class Picture:
    """Pixels as they are to be looked at.

    Attributes:
        pixels: (H, W, C), or (D, H, W, C), in the type of the file; of a batch of them, with N in front.
        white_level: the value that means white, or full light; None where the file does not say.
        notes: assumptions about the file.
        spatial_header: the header of a NIfTI file, which says where its voxels are; None of other files.
        is_batch: whether there is an axis of pages before all others.
    """

    pixels: NDArray[Any]
    white_level: float | None
    notes: tuple[str, ...] = ()
    spatial_header: Any = None
    is_batch: bool = False

    @property
    def axes(self) -> str:
        """A letter per axis of the pixels: N pages of a batch, D depth, H rows, W columns, C channels."""
        return "N" + "DHWC"[1 - self.pixels.ndim :] if self.is_batch else "NDHWC"[-self.pixels.ndim :]

    @property
    def pages(self) -> "list[Picture]":
        """The pictures of a batch, or this one."""
        return [replace(self, pixels=page, is_batch=False) for page in self.pixels] if self.is_batch else [self]


class DecodingBytes(NamedTuple):
    """The sizes of an image in a file, pages before height and width, and the memory that reading it takes."""

    sizes: tuple[int, ...]
    channels: int
    peak: int  # bytes while it is read
    held: int  # bytes of the pixels


def upright(pixels: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Pixels (..., H, W, C) as they are to be looked at.

    Source: TIFF 6.0 and Exif 3.0, tag 274: which sides of the picture the first row and the first column are.
    """
    if orientation in (5, 6, 7, 8):
        pixels = np.swapaxes(pixels, -3, -2)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[..., ::-1, :]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[..., ::-1, :, :]
    return pixels


def to_channels(pixels: NDArray[Any], channels: int, where: str) -> NDArray[Any]:
    """Pixels (..., C) with another number of channels: grey by the ITU-R BT.601 weights, alpha dropped or opaque."""
    have = pixels.shape[-1]
    if have == channels:
        return pixels
    if have not in (1, 3, 4) or channels not in (1, 3, 4):
        raise ShapeError(f"{where}: the model takes {channels} channels, the image has {have}. Convert the image.")
    if have == 4:
        _log.info("%s: the alpha channel is left out", where)
        pixels, have = pixels[..., :3], 3
    if channels == 1 and have == 3:
        grey: NDArray[Any] = pixels.astype(np.float64) @ np.array(LUMA)
        if np.issubdtype(pixels.dtype, np.integer):
            grey = np.rint(grey)
        return grey.astype(pixels.dtype)[..., None]
    colour = np.repeat(pixels, 3, axis=-1) if have == 1 else pixels
    if channels == 3 or have == channels:
        return colour[..., :channels]
    opaque = np.full((*colour.shape[:-1], 1), opaque_of(colour.dtype), colour.dtype)
    return np.concatenate([colour, opaque], axis=-1)


def scaled(pixels: NDArray[Any], white: float | None, dtype: type[np.floating[Any]]) -> NDArray[Any]:
    """Pixels in units in which white is 255, each rounded once; unchanged if it is 255 already, or unknown.

    >>> scaled(np.array([0, 257, 65535], np.uint16), 65535, np.float32).tolist()
    [0.0, 1.0, 255.0]
    """
    if white is None or white == WHITE_LEVEL:
        return pixels
    values: NDArray[Any] = pixels.astype(dtype) * dtype(WHITE_LEVEL) / dtype(white)
    return values


@dataclass(frozen=True)
class Backdrop:
    """The picture below classes: its sizes along the spatial axes, and a reader of the rows from one to another."""

    sizes: tuple[int, ...]
    read: Callable[[int, int], Picture]

    def extent(self, step: int) -> tuple[float, float] | None:
        """Values shown as black and as white where the file has no white, found in bands of `step` rows."""
        first = self.read(0, 1)
        if first.white_level is not None or first.pixels.dtype == np.uint8:
            return None
        rows = (self.read(start, min(start + step, self.sizes[0])) for start in range(0, self.sizes[0], step))
        extents = [extent for band in rows if (extent := _finite_extent(_colours(band.pixels))) is not None]
        return (min(low for low, _ in extents), max(high for _, high in extents)) if extents else (0.0, 0.0)


def backdrop(picture: Picture) -> Backdrop:
    """The backdrop of a picture in memory."""
    return Backdrop(picture.pixels.shape[:-1], lambda start, stop: replace(picture, pixels=picture.pixels[start:stop]))


def for_display(
    pixels: NDArray[Any], white: float | None = None, extent: tuple[float, float] | None = None
) -> NDArray[np.uint8]:
    """RGB bytes (H, W, 3) of (H, W, C) pixels; types other than uint8 are stretched where white is unknown.

    `extent` are the values then shown as black and as white; by default the smallest and the largest.

    >>> for_display(np.array([[[0], [500], [1000]]], np.uint16))[0, :, 0].tolist()
    [0, 128, 255]
    """
    colour = _colours(pixels)
    if colour.dtype == np.uint8 and white in (None, WHITE_LEVEL):
        return np.ascontiguousarray(colour)
    if white is not None:
        known = np.nan_to_num(colour.astype(np.float64) / white, nan=0.0)
        return np.rint(np.clip(known, 0, 1) * WHITE_LEVEL).astype(np.uint8)
    values = colour.astype(np.float64)
    low, high = extent or _finite_extent(values) or (0.0, 0.0)
    span = high - low if high > low else 1.0
    shown = np.nan_to_num((values - low) / span, nan=0.0, posinf=1.0, neginf=0.0)
    return np.rint(shown * WHITE_LEVEL).astype(np.uint8)


def _colours(pixels: NDArray[Any]) -> NDArray[Any]:
    """Three channels: the colours, or the first channel as grey."""
    if pixels.shape[-1] not in (1, 3, 4):
        pixels = pixels[..., :1]
    return np.repeat(pixels, 3, axis=-1) if pixels.shape[-1] == 1 else pixels[..., :3]


def _finite_extent(values: NDArray[Any]) -> tuple[float, float] | None:
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else None


def opaque_of(dtype: np.dtype[Any]) -> Any:
    """The value of alpha that is opaque."""
    return np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else 1.0
