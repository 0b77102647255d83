"""NIfTI volumes: .nii is read and written window by window, .nii.gz is read whole, for it can only be read in a row."""

import gzip
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unpool.errors import UnsupportedError
from unpool.extras import require
from unpool.memory import check_bytes
from unpool.runtime.streams.arrangement import AxisMapping, Shape, Slices, channel_axis, one_of, spatial_axes
from unpool.runtime.streams.fingerprint import fingerprint_file
from unpool.runtime.streams.nifti_header import header_like, read_header
from unpool.runtime.streams.opened import Wanted
from unpool.runtime.streams.raw import Raw, require_header, reserve
from unpool.runtime.streams.sink import OutputSpec, Sink
from unpool.runtime.streams.source import Source, read_errors

PACKAGES = ("nibabel",)
WIDEST = 8
"""Bytes of a voxel, once slope and intercept are applied."""


def open_nifti(path: Path, wanted: Wanted) -> Source:
    """A NIfTI file to read: the axes are those of the file, its slope and intercept are applied.

    Raises:
        FileError: not such a file, or it is shorter than its header says.
        ShapeError: it has other axes than three of space and, for several channels, a fourth.
        UnsupportedError: voxels that are neither integers nor floats.
        MissingExtraError: nibabel is not installed.
    """
    require(str(path), "formats", *PACKAGES)
    import nibabel

    with read_errors(str(path), "a NIfTI file"):
        is_packed = path.suffix.lower() == ".gz"
        opener: Any = gzip.open if is_packed else open
        with opener(path, "rb") as stream:
            header = read_header(stream, path.stat().st_size, str(path), is_packed=is_packed)
        stored: Shape = tuple(map(int, header.get_data_shape()))
        if header.get_data_dtype().kind not in "uif":
            raise UnsupportedError(
                f"{path}: expected integers or floats to be read in parts, got {header.get_data_dtype()}. Run it whole."
            )
        proxies: Any = nibabel.arrayproxy
        note, proxy = "", proxies.ArrayProxy(str(path), header, mmap=False)
        if is_packed:
            check_bytes(prod(stored) * WIDEST, f"{'x'.join(map(str, stored))} voxels", str(path))
            note, proxy = "it is compressed, so it was read whole; .nii is read in parts", np.asanyarray(proxy)
        first = np.asanyarray(proxy[(slice(0, 1),) * len(stored)])
        kind = _dtype(first.dtype, np.dtype(header.get_data_dtype()))
    arrangement = _arrangement(stored, wanted.rank, wanted.layout, str(path))

    def read(slices: Slices) -> Any:
        return np.asanyarray(proxy[slices]).astype(kind, copy=False)

    return Source(path, stored, kind, arrangement, read, lambda: fingerprint_file(path), space=header, note=note)


def _dtype(scaled: np.dtype[Any], stored: np.dtype[Any]) -> np.dtype[Any]:
    """float32 for integers of 16 bits or fewer with a slope, for which nibabel gives float64."""
    is_small = stored.kind in "iu" and stored.itemsize <= 2
    return np.dtype(np.float32) if is_small and scaled == np.float64 else scaled.newbyteorder("=")


def _arrangement(stored: Shape, rank: int, layout: str, where: str) -> AxisMapping:
    spatial = spatial_axes(rank, layout)
    return one_of(((*spatial, channel_axis(rank, layout)), spatial), stored, rank, where)


def create_nifti(path: Path, written: OutputSpec) -> None:
    """A .nii file of zeros, which lies where the volume lies that the model saw.

    Raises:
        ShapeError: it has another number of voxels.
        UnsupportedError: NIfTI has no such type, or no room for such an array.
    """
    require(str(path), "formats", *PACKAGES)
    header = _sink_header(path, written)
    path.write_bytes(header.content)
    reserve(path, header.size)


def open_nifti_sink(path: Path, written: OutputSpec) -> Sink:
    """A .nii file to write.

    Raises:
        FileError: its header is not the one that `create_nifti` writes.
    """
    header, forward = _sink_header(path, written), _sink_arrangement(written)
    require_header(path, {0: header.content}, "NIfTI")
    backward = AxisMapping(forward.axes[::-1], forward.rank)
    raw = Raw(path, backward.stored_shape(written.shape), header.dtype, len(header.content))

    def load(slices: Slices) -> Any:
        return raw.read(slices).astype(written.dtype, copy=False)

    return Sink(written.shape, backward, raw.write, load, raw.sync, lambda _: reserve(path, header.size))


class _SinkHeader(NamedTuple):
    """All bytes before the voxels, the type of these in the byte order of the header, and the bytes of the file."""

    content: bytes
    dtype: np.dtype[Any]
    size: int


def _sink_header(path: Path, written: OutputSpec) -> _SinkHeader:
    import nibabel

    try:
        stored = _sink_arrangement(written).stored_shape(written.shape)
        header = header_like(written.space, stored, written.dtype, str(path))
        del header.extensions[:]  # they are of the patient, or of values
        header.set_data_offset(header.single_vox_offset)
    except nibabel.spatialimages.HeaderDataError as error:
        raise UnsupportedError(
            f"{path}: expected what NIfTI holds, got {written.dtype} ({error}). Write .npy."
        ) from error
    file = BytesIO()
    header.write_to(file)
    content = file.getvalue().ljust(header.single_vox_offset, b"\0")
    dtype = written.dtype.newbyteorder(header.endianness)
    return _SinkHeader(content, dtype, len(content) + prod(written.shape) * dtype.itemsize)


def _sink_arrangement(written: OutputSpec) -> AxisMapping:
    """Space, then channels where there are several; a batch has no place in the file."""
    if written.shape[0] != 1:
        raise UnsupportedError(f"NIfTI: expected a batch of one, got {written.shape[0]}. Write .npy.")
    spatial = tuple(axis for axis in range(1, len(written.shape)) if axis != written.channel)
    has_channels = written.channel is not None and written.shape[written.channel] > 1
    channels = (written.channel,) if has_channels and written.channel is not None else ()
    return AxisMapping((*spatial, *channels), len(written.shape))
