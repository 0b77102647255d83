"""Readers and writers of files by the suffix of their names.

    suffix                        in one piece (`read`)                     in windows (`open`)   written in windows
    .png .jpg .webp .bmp .gif     Pillow: flat pictures; see `raster`
    .tif .tiff                    tifffile: any number type, pages          yes                   yes
    .nii .nii.gz                  nibabel: volumes with their position      yes                   .nii
    .npy .zarr                                                              yes                   yes

`read` gives pixels as they are displayed; `open` refuses files whose pixels would have to be changed for that.
"""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from unpool.errors import FileError, MissingFileError, ShapeError, UnpoolError, UnsupportedError
from unpool.images.checks import read_errors
from unpool.images.nifti import decoding_bytes as nifti_bytes
from unpool.images.nifti import nifti_layout, open_nifti, read_nifti
from unpool.images.npy import npy_layout, open_npy
from unpool.images.pixels import DecodingBytes, Picture, opaque_of, to_channels
from unpool.images.raster import FLAT_CHANNELS, read_raster
from unpool.images.raster import decoding_bytes as raster_bytes
from unpool.images.sink import WindowFormat, raw_format
from unpool.images.source import BATCH, OpenOptions, TiledSource
from unpool.images.tiff import decoding_bytes as tiff_bytes
from unpool.images.tiff import open_tiff, read_tiff
from unpool.images.tiff_writer import tiff_layout
from unpool.images.zarr import create_zarr, open_zarr, open_zarr_sink

_log = logging.getLogger("unpool.images")


class Content(StrEnum):
    """The content of a file."""

    ARRAY = "array"
    PICTURE = "picture"  # flat, of a few channels
    PAGES = "pages"  # pictures, or the planes of a volume
    VOLUME = "volume"  # with its position in space


@dataclass(frozen=True)
class FileFormat:
    """A format of files."""

    name: str  # as in `--format`
    content: Content
    suffixes: tuple[str, ...]
    signature: bytes | None = None  # a regular expression of the first bytes; None: not known by its bytes
    read: Callable[..., Picture] | None = None  # (stream, size, where, spatial_rank, channels, pages) -> the pixels
    decoding_bytes: Callable[[BinaryIO, str], DecodingBytes] | None = None  # of an open file
    open: Callable[[Path, OpenOptions], TiledSource] | None = None  # to read windows
    windows: WindowFormat | None = None  # to write windows
    channels: tuple[int, ...] = ()  # that a flat picture is written with
    is_written: bool = True
    is_folder: bool = False
    temporary_format: str = "npy"  # that holds a result, in windows, until the file is written in one piece

    @property
    def is_drawable(self) -> bool:
        """True where an overlay can be written."""
        return self.is_written and self.content in (Content.PICTURE, Content.PAGES)


def _read_flat(stream: BinaryIO, size: int, where: str, *_: object) -> Picture:
    return read_raster(stream, size, where)


def _read_volume(stream: BinaryIO, size: int, where: str, spatial_rank: int, *_: object) -> Picture:
    return read_nifti(stream, size, where, spatial_rank)


def _picture(name: str, signature: bytes, *suffixes: str) -> FileFormat:
    """A format of flat pictures, which Pillow reads."""
    names, channels = (f".{name}", *suffixes), FLAT_CHANNELS.get(name, ())
    return FileFormat(
        name, Content.PICTURE, names, signature, read=_read_flat, decoding_bytes=raster_bytes, channels=channels,
        is_written=bool(channels),
    )  # fmt: skip


FORMATS = (
    FileFormat("npy", Content.ARRAY, (".npy",), rb"\x93NUMPY", open=open_npy, windows=raw_format(npy_layout)),
    FileFormat("npz", Content.ARRAY, (".npz",)),
    _picture("png", rb"\x89PNG"),
    _picture("jpg", rb"\xff\xd8\xff", ".jpeg"),
    _picture("webp", rb"RIFF....WEBP"),
    _picture("bmp", rb"BM"),
    _picture("gif", rb"GIF8"),
    FileFormat(
        "tif", Content.PAGES, (".tif", ".tiff"), rb"II[*+]\0|MM\0[*+]", read=read_tiff, decoding_bytes=tiff_bytes,
        open=open_tiff, windows=raw_format(tiff_layout), temporary_format="tif",
    ),
    FileFormat(
        "nii", Content.VOLUME, (".nii",), rb"\x5c\x01\0\0|\0\0\x01\x5c", read=_read_volume,
        decoding_bytes=nifti_bytes, open=open_nifti, windows=raw_format(nifti_layout), temporary_format="nii",
    ),
    FileFormat(
        "nii.gz", Content.VOLUME, (".nii.gz",), rb"\x1f\x8b", read=_read_volume, decoding_bytes=nifti_bytes,
        open=open_nifti, temporary_format="nii",
    ),
    FileFormat(
        "zarr", Content.ARRAY, (".zarr",), open=open_zarr, windows=WindowFormat(create_zarr, open_zarr_sink),
        is_folder=True,
    ),
)  # fmt: skip
"""All formats. Commands, their help and messages read this; a new one is a record here, and its functions."""

BY_NAME = {each.name: each for each in FORMATS}
BY_SUFFIX = {suffix: each for each in FORMATS for suffix in each.suffixes}
WRITTEN_SUFFIXES = tuple(suffix for suffix, each in BY_SUFFIX.items() if each.is_written)
WINDOW_NAMES = tuple(each.name for each in FORMATS if each.windows is not None)
IMAGE_SUFFIXES = tuple(suffix for suffix, each in BY_SUFFIX.items() if each.read is not None)
_DOUBLE_SUFFIXES = tuple(suffix for suffix in BY_SUFFIX if suffix.count(".") > 1)


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
        pages: "batch" if the pages of a TIFF file are a batch.

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
        rank = spatial_rank or (3 if BY_SUFFIX[suffix].content is Content.VOLUME else 2)
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
    known = BY_SUFFIX[suffix]
    assert known.read is not None
    if known.content is Content.PICTURE and spatial_rank != 2:
        text = f"{where}: the model takes volumes (N, C, D, H, W), a {suffix} file is a flat picture."
        raise ShapeError(f"{text} Give a .nii, a .tif with one page per slice, or a .npy.")
    picture = known.read(stream, size, where, spatial_rank, channels, pages)
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
        pages: "batch" if the pages of a TIFF file are a batch; by default they are depth, or channels.

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
    read_windows = _known_format(place, "open").open
    assert read_windows is not None
    return read_windows(place, OpenOptions(rank, layout, level, channels, pages))


def _check_pages_word(pages: str | None) -> None:
    if pages not in (None, BATCH):
        raise UnpoolError(f"pages: expected {BATCH!r} or None, got {pages!r}.")


def format_of(path: Path) -> FileFormat | None:
    """The format that the name of a file says; None where it says none."""
    return BY_SUFFIX.get(suffix_of(path))


def window_format(path: Path) -> WindowFormat:
    """The writer of windows for a file of this name; an UnsupportedError where there is none."""
    windows = _known_format(path, "windows").windows
    assert windows is not None
    return windows


def _known_format(path: Path, function: str) -> FileFormat:
    """The format of a file; an UnsupportedError where the format lacks a function."""
    known = format_of(path)
    if known is None or getattr(known, function) is None:
        names = ", ".join(suffix for suffix, each in BY_SUFFIX.items() if getattr(each, function) is not None)
        raise UnsupportedError(f"{path}: expected a name that ends in {names}, got {path.name}. Choose one of them.")
    return known


def format_of_content(content: bytes) -> FileFormat | None:
    """The format of a file by its first bytes.

    >>> format_of_content(b"GIF89a").name
    'gif'
    """
    for each in FORMATS:
        if each.signature is not None and re.match(each.signature, content, re.DOTALL):
            return each
    return None


def suffix_of(path: Path) -> str:
    """The suffix in lower case; for a compressed NIfTI file `.nii.gz`.

    >>> suffix_of(Path("a.b.TIF")), suffix_of(Path("ct.nii.gz")), suffix_of(Path("a"))
    ('.tif', '.nii.gz', '')
    """
    name = path.name.lower()
    return next((each for each in _DOUBLE_SUFFIXES if name.endswith(each)), path.suffix.lower())


def stem_of(path: Path) -> str:
    """The name without its suffix: `ct` of `ct.nii.gz`, `a.b` of `a.b.png`."""
    return path.name[: len(path.name) - len(suffix_of(path))]


def natural(path: Path) -> tuple[object, ...]:
    """A key for sorting: numbers in a name count as numbers.

    >>> [path.name for path in sorted(map(Path, ["s10.png", "s9.png", "S1.png", "a.png"]), key=natural)]
    ['a.png', 'S1.png', 's9.png', 's10.png']
    """
    parts = re.split(r"([0-9]+)", path.name.casefold())
    return *(parts[at] if at % 2 == 0 else int(parts[at]) for at in range(len(parts))), path.name
