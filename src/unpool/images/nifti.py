"""NIfTI volumes, .nii and .nii.gz: read in one piece or in windows, and written with their position in space.

    axes       as stored, X, Y, Z, which become the D, H, W of a model; a fourth axis holds channels
    values     with the slope and intercept of the header; there is no white
    results    copy affines, units and kind from the header of the input, and drop what describes patient and values
    .nii.gz    is read in one piece, because gzip allows no random access

The claims of a header are checked before memory is taken, also the size that a .gz unpacks to.

Source: the NIfTI-1 and NIfTI-2 headers, https://nifti.nimh.nih.gov.
"""

import gzip
import logging
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from unpool.display import format_shape
from unpool.errors import FileError, ShapeError, UnsupportedError
from unpool.extras import require
from unpool.images.axes import AxisMapping, Shape, Slices, axes_with_rank, channel_axis, spatial_axes
from unpool.images.checks import REPLACE, check_claim, check_pixels, read_errors
from unpool.images.pixels import DecodingBytes, Picture
from unpool.images.sink import OutputSpec, RawArrayFile, RawLayout
from unpool.images.source import OpenOptions, TiledSource, fingerprint_file
from unpool.memory import check_bytes

SCALING_BYTES = 16  # that slope and intercept take per voxel
SCALED_BYTES = 8  # maximum size of a voxel, once slope and intercept are applied
SIZES = {348: "Nifti1Header", 540: "Nifti2Header"}
MAX_OFFSET = 2**24  # bytes before the first voxel; between it and the header are notes, which are not read
DROPPED_FIELDS = (
    "intent_code", "intent_p1", "intent_p2", "intent_p3", "intent_name", "cal_max", "cal_min", "descrip", "aux_file",
)  # fmt: skip
"""Fields that describe the values of the input, or the patient."""

GZIP = b"\x1f\x8b"
COLOURS = {128: 3, 2304: 4}  # types of the header that hold 8-bit colours, and their channels

_quiet = logging.getLogger("unpool.nifti")
_quiet.setLevel(logging.CRITICAL)


def open_nifti(path: Path, wanted: OpenOptions) -> TiledSource:
    """A NIfTI file to read in windows: axes are in the file's order, its slope and intercept are applied."""
    nibabel = _nibabel(str(path))
    with read_errors(str(path), "a NIfTI file"):
        is_packed = path.suffix.lower() == ".gz"
        opener: Any = gzip.open if is_packed else open
        with opener(path, "rb") as stream:
            header = read_header(stream, path.stat().st_size, str(path), is_packed=is_packed)
        stored: Shape = tuple(map(int, header.get_data_shape()))
        if header.get_data_dtype().kind not in "uif":
            kind = header.get_data_dtype()
            raise UnsupportedError(f"{path}: only integers and floats are read in parts, got {kind}. Run it whole.")
        warning, proxy = "", nibabel.arrayproxy.ArrayProxy(str(path), header, mmap=False)
        if is_packed:
            check_bytes(prod(stored) * SCALED_BYTES, f"{format_shape(stored)} voxels", str(path))
            warning, proxy = "it is compressed, so it was read whole; .nii is read in parts", np.asanyarray(proxy)
        kind, stored_kind = np.asanyarray(proxy[(slice(0, 1),) * len(stored)]).dtype, np.dtype(header.get_data_dtype())
        is_small = stored_kind.kind in "iu" and stored_kind.itemsize <= 2
        # nibabel gives float64 for integers with a slope
        kind = np.dtype(np.float32) if is_small and kind == np.float64 else kind.newbyteorder("=")
    spatial = spatial_axes(wanted.rank, wanted.layout)
    kinds = ((*spatial, channel_axis(wanted.rank, wanted.layout)), spatial)
    arrangement = axes_with_rank(kinds, stored, wanted.rank, str(path))

    def read(slices: Slices) -> Any:
        return np.asanyarray(proxy[slices]).astype(kind, copy=False)

    return TiledSource(
        path, stored, kind, arrangement, read, lambda: fingerprint_file(path), spatial_header=header, warning=warning
    )


def nifti_layout(path: Path, written: OutputSpec) -> RawLayout:
    """A .nii file to write in windows, at the position of the input volume; the first axis is the fastest."""
    nibabel = _nibabel(str(path))
    if written.shape[0] != 1:  # a batch has no place in the file
        raise UnsupportedError(f"NIfTI: expected a batch of one, got {written.shape[0]}. Write .npy.")
    axes = (*written.spatial_axes, *written.channel_axes)
    try:
        stored = tuple(written.shape[axis] for axis in axes)
        header = header_like(written.spatial_header, stored, written.dtype, str(path))
        del header.extensions[:]  # of the patient, or of values
        header.set_data_offset(header.single_vox_offset)
    except nibabel.spatialimages.HeaderDataError as error:
        raise UnsupportedError(f"{path}: .nii does not hold {written.dtype} ({error}). Write .npy.") from error
    file = BytesIO()
    header.write_to(file)
    content = file.getvalue().ljust(header.single_vox_offset, b"\0")
    voxels = RawArrayFile(path, stored[::-1], written.dtype.newbyteorder(header.endianness), len(content))

    def load(slices: Slices) -> Any:
        return voxels.read(slices).astype(written.dtype, copy=False)

    arrangement = AxisMapping(axes[::-1], len(written.shape))
    return RawLayout("NIfTI", {0: content}, voxels.end, arrangement, voxels.write, load)


def read_header(stream: BinaryIO, size: int, where: str, *, is_packed: bool) -> Any:
    """The header of a NIfTI file without its notes, checked before memory is taken for the voxels.

    `stream` is unpacked; the file has `size` bytes, and holds more if it is packed.
    """
    import nibabel

    raw = stream.read(max(SIZES))
    stated = {int.from_bytes(raw[:4], "little"), int.from_bytes(raw[:4], "big")}
    names = [name for length, name in SIZES.items() if length in stated and len(raw) >= length]
    if not names:
        raise FileError(f"{where}: expected the header of a NIfTI file, got other bytes. Convert it to NIfTI.")
    kind: Any = getattr(nibabel, names[0])
    header = kind(raw[: kind.template_dtype.itemsize], check=False)
    header.check_fix(logger=_quiet, error_level=40)
    if bytes(header["magic"])[:2] != b"n+":
        raise FileError(f"{where}: expected voxels in the same file, got a header alone. Save it as one .nii.")
    offset, shape = header.get_data_offset(), header.get_data_shape()
    if not 0 <= offset <= MAX_OFFSET:
        raise FileError(f"{where}: its voxels begin at byte {offset}, too far. {REPLACE}")
    if min(shape, default=1) < 1:
        raise FileError(f"{where}: expected one pixel or more on every axis, got {format_shape(shape)}. {REPLACE}")
    claimed = offset + prod(map(int, shape)) * header.get_data_dtype().itemsize
    if not is_packed and claimed > size:
        raise FileError(f"{where}: claims {claimed} bytes, the file has {size}. {REPLACE}")
    check_claim(claimed, size, where)
    return header


def header_like(spatial_header: Any, shape: tuple[int, ...], dtype: "np.dtype[Any]", where: str) -> Any:
    """The header of a result: up to three axes of space, then channels if there are several.

    Its position is that of the input's header, which has to have as many voxels; None puts voxels of size 1 anywhere.
    """
    if spatial_header is None:
        header = _nibabel(where).Nifti1Header()
    else:
        voxels = tuple(spatial_header.get_data_shape())
        if _spatial_shape(shape) != _spatial_shape(voxels):
            own, theirs = (format_shape(sizes[: min(len(voxels), 3)]) for sizes in (shape, voxels))
            text = f"{where}: .nii keeps the place of the input's {theirs} voxels, the output has {own}."
            raise ShapeError(f"{text} Write .npy.")
        header = spatial_header.copy()
        for name in DROPPED_FIELDS:
            header[name] = np.zeros_like(header[name])
    header.set_data_dtype(dtype)
    header.set_data_shape(shape)
    header.set_slope_inter(1, 0)
    header.set_data_offset(0)
    return header


def _spatial_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape, 1, 1, 1)[:3]


def read_nifti(stream: BinaryIO, size: int, where: str, spatial_rank: int) -> Picture:
    """The volume of a NIfTI file of `size` bytes, (D, H, W, C), or of rank 2 its single slice, (H, W, C)."""
    nibabel = _nibabel(where)
    with read_errors(where, "a NIfTI file"):
        plain, is_packed = _unpacked(stream)
        header = read_header(plain, size, where, is_packed=is_packed)
        shape, dtype = header.get_data_shape(), header.get_data_dtype()
        if dtype.kind not in "uif" and int(header["datatype"]) not in COLOURS:
            raise UnsupportedError(f"{where}: expected integers, floats or 8-bit colours, got {dtype}. Convert them.")
        is_scaled = header.get_slope_inter()[0] not in (None, 1)
        check_pixels(shape, 8 if is_scaled else dtype.itemsize, where)
        proxy = nibabel.arrayproxy.ArrayProxy(plain, header, mmap=False)
        voxels = np.asanyarray(proxy)
        if voxels.dtype.names:  # colours become one more axis
            voxels = np.stack([voxels[name] for name in voxels.dtype.names], axis=-1)
        voxels = voxels.astype(voxels.dtype.newbyteorder("="), copy=False)
        return Picture(_arranged(voxels, spatial_rank, where), None, spatial_header=header)


def decoding_bytes(stream: BinaryIO, where: str) -> DecodingBytes:
    """The sizes of a volume, and the memory that reading it takes."""
    size = stream.seek(0, 2)
    stream.seek(0)
    header = header_of(stream, size, where)
    shape, stored = header.get_data_shape(), header.get_data_dtype().itemsize
    is_scaled = header.get_slope_inter()[0] is not None
    count, spatial = prod(shape), (*shape[:3], *(1,) * (3 - len(shape)))
    channels = prod(size for size in shape[3:] if size > 1)
    peak = count * (stored + (SCALING_BYTES if is_scaled else stored))
    return DecodingBytes(spatial, channels, peak, count * (SCALED_BYTES if is_scaled else stored))


def header_of(stream: BinaryIO, size: int, where: str) -> Any:
    """The checked header of a NIfTI file of `size` bytes."""
    plain, is_packed = _unpacked(stream)
    with read_errors(where, "a NIfTI file"):
        return read_header(plain, size, where, is_packed=is_packed)


def _unpacked(stream: BinaryIO) -> tuple[Any, bool]:
    """The file without its compression, and whether it has one."""
    is_packed = stream.read(2) == GZIP
    stream.seek(0)
    return (gzip.GzipFile(fileobj=stream) if is_packed else stream), is_packed


def write_nifti(stream: BinaryIO, form: str, pixels: NDArray[Any], spatial_header: Any, where: str) -> None:
    """Write a volume (D, H, W, C), or a slice (H, W, C), as nii or nii.gz; a single channel gets no axis."""
    nibabel = _nibabel(f".{form}")
    values = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    wider: dict[str, type[Any]] = {"bool": np.uint8, "float16": np.float32}
    values = values.astype(wider.get(values.dtype.name, values.dtype), copy=False)
    if values.dtype.kind not in "uif":
        raise UnsupportedError(f"{where}: .nii holds integers and floats, got {values.dtype}. Write .npy.")
    header = header_like(spatial_header, values.shape, values.dtype, where)
    kind = nibabel.Nifti2Image if isinstance(header, nibabel.Nifti2Header) else nibabel.Nifti1Image
    image = kind(values, header.get_best_affine(), header)
    if form == "nii":
        image.to_stream(stream)
        return
    with gzip.GzipFile(fileobj=stream, mode="wb", mtime=0, filename="") as packed:
        image.to_stream(packed)


def _nibabel(where: str) -> Any:
    require(where, "formats", "nibabel")
    import nibabel

    return nibabel


def _arranged(voxels: NDArray[Any], spatial_rank: int, where: str) -> NDArray[Any]:
    """Spatial axes and channels, without axes of one element between them, such as time."""
    shape = (*_spatial_shape(voxels.shape), *(size for size in voxels.shape[3:] if size > 1))
    is_slice = spatial_rank == 2 and shape[2] == 1
    if len(shape) > 4 or not (is_slice or spatial_rank == 3):
        expected = "a volume with or without channels" if spatial_rank == 3 else "a single slice"
        raise ShapeError(
            f"{where}: expected {expected}, got {format_shape(voxels.shape)} voxels. Split it, or give a .npy."
        )
    return voxels.reshape(*shape[:spatial_rank], *(shape[3:] or (1,)))
