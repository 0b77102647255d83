"""NIfTI volumes: .nii is read and written window by window, .nii.gz is read whole, for it can only be read in a row."""

from pathlib import Path
from typing import Any

import numpy as np

from unpool.errors import FileError, UnsupportedError
from unpool.extras import require
from unpool.runtime.streams.arrangement import Arrangement, Shape, Slices, channel_axis, one_of, spatial_axes
from unpool.runtime.streams.identity import file_identity
from unpool.runtime.streams.nifti_header import header_like
from unpool.runtime.streams.opened import Wanted
from unpool.runtime.streams.raw import Raw, reserve
from unpool.runtime.streams.sink import Sink, Written
from unpool.runtime.streams.source import Source

PACKAGES = ("nibabel",)


def open_nifti(path: Path, wanted: Wanted) -> Source:
    """A NIfTI file to read: the axes are those of the file, its slope and intercept are applied.

    Raises:
        FileError: not such a file.
        ShapeError: it has other axes than three of space and, for several channels, a fourth.
        MissingExtraError: nibabel is not installed.
    """
    require(str(path), "formats", *PACKAGES)
    import nibabel

    try:
        image: Any = nibabel.load(path)
        stored: Shape = image.shape
        note, proxy = "", image.dataobj
        if path.suffix.lower() == ".gz":
            note, proxy = "it is compressed, so it was read whole; .nii is read in parts", np.asanyarray(proxy)
        first = np.asanyarray(proxy[(slice(0, 1),) * len(stored)])
        kind = _dtype(first.dtype, np.dtype(image.get_data_dtype()))
    except Exception as error:  # nibabel leads a broken file to many
        raise FileError(f"{path}: expected a NIfTI file, could not read it ({error}).") from error
    arrangement = _arrangement(stored, wanted.rank, wanted.layout, str(path))

    def read(slices: Slices) -> Any:
        return np.asanyarray(proxy[slices]).astype(kind, copy=False)

    return Source(path, stored, kind, arrangement, read, lambda: file_identity(path), space=image.header, note=note)


def _dtype(scaled: np.dtype[Any], stored: np.dtype[Any]) -> np.dtype[Any]:
    """float32 for integers of 16 bits or fewer with a slope, for which nibabel gives float64."""
    is_small = stored.kind in "iu" and stored.itemsize <= 2
    return np.dtype(np.float32) if is_small and scaled == np.float64 else scaled.newbyteorder("=")


def _arrangement(stored: Shape, rank: int, layout: str, where: str) -> Arrangement:
    spatial = spatial_axes(rank, layout)
    return one_of(((*spatial, channel_axis(rank, layout)), spatial), stored, rank, where)


def create_nifti(path: Path, written: Written) -> None:
    """A .nii file of zeros, which lies where the volume lies that the model saw.

    Raises:
        ShapeError: it has another number of voxels.
        UnsupportedError: NIfTI has no such type, or no room for such an array.
    """
    require(str(path), "formats", *PACKAGES)
    import nibabel

    try:
        stored = _sink_arrangement(written).stored_shape(written.shape)
        header = header_like(written.space, stored, written.dtype, str(path))
        header.set_data_offset(header.single_vox_offset)
    except nibabel.spatialimages.HeaderDataError as error:
        raise UnsupportedError(
            f"{path}: expected what NIfTI holds, got {written.dtype} ({error}). Write .npy."
        ) from error
    with path.open("wb") as file:
        header.write_to(file)
        file.write(b"\0" * (header.single_vox_offset - file.tell()))
    reserve(path, header.single_vox_offset + int(np.prod(written.shape, dtype=object)) * written.dtype.itemsize)


def open_nifti_sink(path: Path, written: Written) -> Sink:
    """A .nii file to write."""
    import nibabel

    forward = _sink_arrangement(written)
    backward = Arrangement(forward.axes[::-1], forward.rank)
    image: Any = nibabel.load(path)
    raw = Raw(path, backward.stored_shape(written.shape), written.dtype, int(image.dataobj.offset))
    return Sink(written.shape, backward, raw.write, raw.read, raw.sync)


def _sink_arrangement(written: Written) -> Arrangement:
    """Space, then channels where there are several; a batch has no place in the file."""
    if written.shape[0] != 1:
        raise UnsupportedError(f"NIfTI: expected a batch of one, got {written.shape[0]}. Write .npy.")
    spatial = tuple(axis for axis in range(1, len(written.shape)) if axis != written.channel)
    has_channels = written.channel is not None and written.shape[written.channel] > 1
    channels = (written.channel,) if has_channels and written.channel is not None else ()
    return Arrangement((*spatial, *channels), len(written.shape))
