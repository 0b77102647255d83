"""Readers and writers of files by the suffix of their names.

    suffix                        in one piece (`read`)                     in windows (`open`)   written in windows
    .png .jpg .webp .bmp .gif     Pillow: flat pictures; see `raster`
    .tif .tiff                    tifffile: any number type, pages          yes                   yes
    .nii .nii.gz                  nibabel: volumes with their position      yes                   .nii
    .npy .zarr                                                              yes                   yes

`read` gives pixels as they are to be looked at; `open` refuses files whose pixels would have to be changed for that.
"""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from unpool.errors import FileError, MissingFileError, ShapeError, UnpoolError, UnsupportedError
from unpool.images.checks import read_errors
from unpool.images.nifti import nifti_layout, open_nifti, read_nifti
from unpool.images.npy import npy_layout, open_npy
from unpool.images.pixels import Picture, opaque_of, to_channels
from unpool.images.raster import read_raster
from unpool.images.sink import WindowFormat, raw_format
from unpool.images.source import BATCH, OpenOptions, TiledSource
from unpool.images.tiff import open_tiff, read_tiff
from unpool.images.tiff_writer import tiff_layout
from unpool.images.zarr import create_zarr, open_zarr, open_zarr_sink

RASTER_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif")
TIFF_SUFFIXES = (".tif", ".tiff")
NIFTI_SUFFIXES = (".nii", ".nii.gz")
IMAGE_SUFFIXES = RASTER_SUFFIXES + TIFF_SUFFIXES + NIFTI_SUFFIXES
DOUBLE_SUFFIX = ".nii.gz"

_log = logging.getLogger("unpool.images")


READERS: Mapping[str, Callable[[Path, OpenOptions], TiledSource]] = {
    ".npy": open_npy,
    ".zarr": open_zarr,
    ".tif": open_tiff,
    ".tiff": open_tiff,
    ".nii": open_nifti,
    ".nii.gz": open_nifti,
}
FORMATS: Mapping[str, WindowFormat] = {
    ".npy": raw_format(npy_layout),
    ".zarr": WindowFormat(create_zarr, open_zarr_sink),
    ".tif": raw_format(tiff_layout),
    ".tiff": raw_format(tiff_layout),
    ".nii": raw_format(nifti_layout),
}


def read(
    path: str | Path, *, spatial_rank: int | None = None, channels: int | None = None, pages: str | None = None
) -> Picture:
    """The pixels of an image file, as they are to be looked at, in the type of the file; nothing is resized.

    Args:
        path: .png, .jpg, .webp, .bmp, .gif, .tif, .nii or .nii.gz.
        spatial_rank: 2 for a picture, 3 for a volume (the pages of a TIFF file are its depth); by default 3 for NIfTI,
            else 2.
        channels: 1 for grey, 3 for RGB, 4 for RGBA, or the number that a TIFF or NIfTI file has; None: those of the
            file.
        pages: "batch" where the pages of a TIFF file are those of a batch.

    Returns:
        a Picture: its `pixels` with `axes` such as "HWC", the `white_level`, and `notes` about what was assumed.

    Raises:
        MissingFileError, FileError: no such file, or not an image.
        ShapeError: other axes or channels, or more pixels than this process has memory for.
        UnsupportedError: no format of an image, or pixels whose meaning would be guessed; the message says which.
        MissingExtraError: a package that reads such files is not installed.

    >>> import numpy as np, tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.fromarray(np.array([[0, 255]], np.uint8)).save(Path(folder) / "x.png")
    ...     picture = read(Path(folder) / "x.png", channels=3)
    >>> picture.pixels.tolist(), picture.axes, picture.white_level
    ([[[0, 0, 0], [255, 255, 255]]], 'HWC', 255)
    """
    place = Path(path)
    _check_pages_word(pages)
    if not place.is_file():
        raise MissingFileError(f"{place}: no such file.")
    suffix = suffix_of(place)
    if suffix not in IMAGE_SUFFIXES:
        text = f"{place}: expected a name that ends in {', '.join(IMAGE_SUFFIXES)}, got {place.name}."
        raise UnsupportedError(f"{text} Read arrays with numpy.load, or with unpool.images.open.")
    try:
        stream = place.open("rb")
    except OSError as error:
        raise FileError(f"{place}: cannot be read: {error.strerror}.") from error
    with stream:
        rank = spatial_rank or (3 if suffix in NIFTI_SUFFIXES else 2)
        return read_stream(stream, suffix, str(place), rank, channels, pages)


def read_stream(
    stream: BinaryIO, suffix: str, where: str, spatial_rank: int, channels: int | None, pages: str | None = None
) -> Picture:
    """The picture of an open file, as `read` has it.

    Args:
        stream: the file, of bytes, which can be rewound.
        suffix: determines the reader, such as ".png".
        where: what messages call the file.
        spatial_rank: as that of `read`.
        channels: as those of `read`.
        pages: as those of `read`.

    >>> import io
    >>> from PIL import Image
    >>> Image.new("L", (2, 1), 7).save(upload := io.BytesIO(), "png")
    >>> read_stream(upload, ".png", "the upload", 2, channels=3).pixels.tolist()
    [[[7, 7, 7], [7, 7, 7]]]
    """
    with read_errors(where, "an image"):
        picture = read_stored(stream, suffix, where, spatial_rank, channels, pages)
        return picture if channels is None else replace(picture, pixels=to_channels(picture.pixels, channels, where))


def read_stored(
    stream: BinaryIO, suffix: str, where: str, spatial_rank: int, channels: int | None, pages: str | None = None
) -> Picture:
    """As `read_stream`, with the channels of the file."""
    size = stream.seek(0, 2)
    stream.seek(0)
    if suffix in TIFF_SUFFIXES:
        picture = read_tiff(stream, size, where, spatial_rank, channels, pages)
    elif suffix in NIFTI_SUFFIXES:
        picture = read_nifti(stream, size, where, spatial_rank)
    elif spatial_rank == 2:
        picture = read_raster(stream, size, where)
    else:
        text = f"{where}: the model takes volumes (N, C, D, H, W), a {suffix} file is a flat picture."
        raise ShapeError(f"{text} Give a .nii, a .tif with one page per slice, or a .npy.")
    pixels = picture.pixels
    may_be_transparent = pixels.shape[-1] == 4 and channels in (1, 3) and picture.spatial_header is None
    if may_be_transparent and (pixels[..., 3] != opaque_of(pixels.dtype)).any():
        _log.warning("%s: some of it is transparent; the colours there are taken as they are stored", where)
    return picture


def open(
    path: str | Path,
    *,
    rank: int = 4,
    layout: str = "NCHW",
    level: int = 0,
    channels: int | None = None,
    pages: str | None = None,
) -> TiledSource:
    """A file as a tensor; `source[slices]` reads a window, and no more than it needs.

    Args:
        path: .npy, .zarr (version 2 or 3, or a group of levels), .tif (tiled, strips, BigTIFF, pyramids), .nii; of
            .nii.gz, all is read.
        rank: of the tensor: batch, channels and the spatial axes. Axes that the file does not have are of one element.
        layout: "NCHW", or "NHWC".
        level: of a pyramid; 0 is the full size.
        channels: number of channels; pages of a TIFF file are channels where this is their number.
        pages: "batch" where the pages of a TIFF file are those of a batch; by default they are depth, or channels.

    Returns:
        a TiledSource: `shape`, `dtype`, windows, the `white_level` that the file states, and a `warning`.

    Raises:
        MissingFileError, FileError: no such file, or it cannot be read.
        ShapeError: its axes are not those of the tensor.
        UnsupportedError: no such format, or pixels that have to be changed to be seen as they are meant.
        MissingExtraError: a package for the format is not installed.

    >>> import numpy as np, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(Path(folder) / "x.npy", np.arange(12).reshape(3, 4))
    ...     source = open(Path(folder) / "x.npy")
    ...     source.shape, source[:, :, 1:3, 2:4].tolist()
    ((1, 1, 3, 4), [[[[6, 7], [10, 11]]]])
    """
    place = Path(path)
    _check_pages_word(pages)
    if not place.exists():
        raise MissingFileError(f"{place}: no such file.")
    return READERS[_ending(place, READERS)](place, OpenOptions(rank, layout, level, channels, pages))


def _check_pages_word(pages: str | None) -> None:
    if pages not in (None, BATCH):
        raise UnpoolError(f"pages: expected {BATCH!r} or None, got {pages!r}.")


def ending_of(path: Path) -> str | None:
    """The suffix of a file that can be read in windows, else None."""
    endings = sorted(READERS, key=len, reverse=True)
    return next((ending for ending in endings if path.name.lower().endswith(ending)), None)


def format_of(path: Path) -> WindowFormat:
    """The writer of windows for a file of this name; an UnsupportedError where there is none."""
    return FORMATS[_ending(path, FORMATS)]


def _ending(path: Path, known: Mapping[str, object]) -> str:
    ending = ending_of(path)
    if ending is None or ending not in known:
        names = ", ".join(known)
        raise UnsupportedError(f"{path}: expected a name that ends in {names}, got {path.name}. Choose one of them.")
    return ending


def suffix_of(path: Path) -> str:
    """The suffix in lower case; that of a compressed NIfTI file is `.nii.gz`.

    >>> suffix_of(Path("a.b.TIF")), suffix_of(Path("ct.nii.gz")), suffix_of(Path("a"))
    ('.tif', '.nii.gz', '')
    """
    return DOUBLE_SUFFIX if path.name.lower().endswith(DOUBLE_SUFFIX) else path.suffix.lower()


def stem_of(path: Path) -> str:
    """The name without its suffix: `ct` of `ct.nii.gz`, `a.b` of `a.b.png`."""
    return path.name[: -len(DOUBLE_SUFFIX)] if suffix_of(path) == DOUBLE_SUFFIX else path.stem


def natural(path: Path) -> tuple[object, ...]:
    """A key for sorting: numbers in a name count as numbers.

    >>> [path.name for path in sorted(map(Path, ["s10.png", "s9.png", "S1.png", "a.png"]), key=natural)]
    ['a.png', 'S1.png', 's9.png', 's10.png']
    """
    parts = re.split(r"([0-9]+)", path.name.casefold())
    return *(parts[at] if at % 2 == 0 else int(parts[at]) for at in range(len(parts))), path.name
