"""Opens files by the ends of their names."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from unpool.errors import MissingFileError, UnpoolError, UnsupportedError
from unpool.runtime.streams.nifti import create_nifti, open_nifti, open_nifti_sink
from unpool.runtime.streams.npy import create_npy, open_npy, open_npy_sink
from unpool.runtime.streams.opened import BATCH, Wanted
from unpool.runtime.streams.sink import OutputSpec, Sink
from unpool.runtime.streams.source import Source
from unpool.runtime.streams.tiff import create_tiff, open_tiff, open_tiff_sink
from unpool.runtime.streams.zarr_arrays import create_zarr, open_zarr, open_zarr_sink


class Format(NamedTuple):
    """What is written: a file of zeros is made once, and opened to write by every run that goes on with it."""

    create: Callable[[Path, OutputSpec], None]
    open: Callable[[Path, OutputSpec], Sink]


READERS: Mapping[str, Callable[[Path, Wanted], Source]] = MappingProxyType(
    {
        ".npy": open_npy,
        ".zarr": open_zarr,
        ".tif": open_tiff,
        ".tiff": open_tiff,
        ".nii": open_nifti,
        ".nii.gz": open_nifti,
    }
)
FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        ".npy": Format(create_npy, open_npy_sink),
        ".zarr": Format(create_zarr, open_zarr_sink),
        ".tif": Format(create_tiff, open_tiff_sink),
        ".tiff": Format(create_tiff, open_tiff_sink),
        ".nii": Format(create_nifti, open_nifti_sink),
    }
)


def open_source(
    path: str | Path,
    *,
    rank: int = 4,
    layout: str = "NCHW",
    level: int = 0,
    channels: int | None = None,
    pages: str | None = None,
) -> Source:
    """A file as a tensor of which windows are read, and no more than these.

    Args:
        path: .npy, .zarr (version 2 or 3, or a group of levels), .tif (tiled, strips, BigTIFF, pyramids), .nii; of
            .nii.gz, all is read.
        rank: of the tensor: batch, channels and the spatial axes. Axes that the file does not have are of one element.
        layout: "NCHW", or "NHWC".
        level: of a pyramid; 0 is the full size.
        channels: pages of a TIFF file are channels where there are so many.
        pages: "batch" where the pages of a TIFF file are those of a batch; by default they are depth, or channels.

    Raises:
        MissingFileError, FileError: no such file, or it cannot be read.
        ShapeError: its axes are not those of the tensor.
        UnsupportedError: no such format, or pixels that have to be changed to be seen as they are meant.
        MissingExtraError: a package for the format is not installed.

    >>> import numpy as np, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(Path(folder) / "x.npy", np.arange(12).reshape(3, 4))
    ...     source = open_source(Path(folder) / "x.npy")
    ...     source.shape, source[:, :, 1:3, 2:4].tolist()
    ((1, 1, 3, 4), [[[[6, 7], [10, 11]]]])
    """
    place = Path(path)
    if pages not in (None, BATCH):
        raise UnpoolError(f"pages: expected {BATCH!r} or None, got {pages!r}. Pass one of them.")
    if not place.exists():
        raise MissingFileError(f"{place}: expected a file, there is none. Correct the path.")
    return READERS[_ending(place, READERS)](place, Wanted(rank, layout, level, channels, pages))


def ending_of(path: Path) -> str | None:
    """How a name ends, where files of that ending are read in windows.

    >>> ending_of(Path("ct.nii.gz")), ending_of(Path("a.png"))
    ('.nii.gz', None)
    """
    return next(
        (ending for ending in sorted(READERS, key=len, reverse=True) if path.name.lower().endswith(ending)), None
    )


def format_of(path: Path) -> Format:
    """How a file of this name is written.

    Raises:
        UnsupportedError: nothing of this ending is written in windows.
    """
    return FORMATS[_ending(path, FORMATS)]


def _ending(path: Path, known: Mapping[str, object]) -> str:
    found = ending_of(path)
    if found is None or found not in known:
        raise UnsupportedError(
            f"{path}: expected a name that ends in {', '.join(known)}, got {path.name}. Choose one of them."
        )
    return found
