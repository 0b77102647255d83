"""Image file -> a picture as it is to be looked at, in the type of the file; nothing is resized or rescaled.

.png .jpg .webp .bmp .gif   Pillow; see `raster`
.tif                        tifffile: any integer or float type, pages; see `tiff`
.nii .nii.gz                nibabel: volumes with their place in space; see `nifti`

What is none of these is refused rather than guessed.
"""

import logging
from pathlib import Path
from typing import BinaryIO

from unpool.cli.nifti import read_nifti
from unpool.cli.picture import Picture, opaque_of, to_channels
from unpool.cli.raster import read_raster
from unpool.cli.suffixes import suffix_of
from unpool.cli.tiff import read_tiff
from unpool.errors import FileError, MissingFileError, ShapeError
from unpool.runtime.streams.source import read_errors

RASTER_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif")
TIFF_SUFFIXES = (".tif", ".tiff")
NIFTI_SUFFIXES = (".nii", ".nii.gz")
IMAGE_SUFFIXES = RASTER_SUFFIXES + TIFF_SUFFIXES + NIFTI_SUFFIXES

_log = logging.getLogger("unpool.cli")


def read_image(path: Path, spatial_rank: int, channels: int | None) -> Picture:
    """The picture of one image file.

    Args:
        path: a name that ends in one of IMAGE_SUFFIXES.
        spatial_rank: 2 for a picture, 3 for a volume (the pages of a TIFF file are its depth).
        channels: how many channels are wanted: 1 grey, 3 RGB, 4 RGBA, or as many as the file has
            (TIFF, NIfTI); None takes those of the file.

    Raises:
        MissingFileError, FileError: no such file, or not an image.
        ShapeError: a volume was expected and a picture came, or the other way round, or other channels, or more
            pixels than this process has memory for.
        UnsupportedError: an image whose pixels would be guessed; the message says which.
        MissingExtraError: a package that reads such files is not installed.
    """
    if not path.is_file():
        raise MissingFileError(f"{path}: no such file.")
    try:
        stream = path.open("rb")
    except OSError as error:
        raise FileError(f"{path}: expected a file to read, got an error: {error.strerror}.") from error
    with stream:
        return read_stream(stream, suffix_of(path), str(path), spatial_rank, channels)


def read_stream(
    stream: BinaryIO, suffix: str, where: str, spatial_rank: int, channels: int | None, pages: str | None = None
) -> Picture:
    """The picture of an open file, whose suffix says how to read it; `where` is what error messages begin with."""
    with read_errors(where, "an image"):
        picture = read_stored(stream, suffix, where, spatial_rank, channels, pages)
        return picture if channels is None else picture.with_pixels(to_channels(picture.pixels, channels, where))


def read_stored(
    stream: BinaryIO, suffix: str, where: str, spatial_rank: int, channels: int | None, pages: str | None = None
) -> Picture:
    """As `read_stream`, with the channels that the file has."""
    size = stream.seek(0, 2)
    stream.seek(0)
    if suffix in TIFF_SUFFIXES:
        picture = read_tiff(stream, size, where, spatial_rank, channels, pages)
    elif suffix in NIFTI_SUFFIXES:
        picture = read_nifti(stream, size, where, spatial_rank)
    elif spatial_rank == 2:
        picture = read_raster(stream, size, where)
    else:
        raise ShapeError(
            f"{where}: the model takes volumes (N, C, D, H, W), a {suffix} file is a flat picture. "
            "Give a .nii, a .tif with one page per slice, or a .npy."
        )
    if channels is not None:
        _tell_transparency(picture, channels, where)
    return picture


def _tell_transparency(picture: Picture, channels: int, where: str) -> None:
    pixels = picture.pixels
    is_clear = pixels.shape[-1] == 4 and channels in (1, 3) and picture.space is None
    if is_clear and (pixels[..., 3] != opaque_of(pixels.dtype)).any():
        _log.warning("%s: some of it is transparent; the colours there are taken as they are stored", where)
