"""NIfTI files, .nii and .nii.gz, which hold volumes and where they are in space.

    axes       as they are stored, X, Y, Z, which become the D, H, W of a model; a fourth one holds channels
    values     with the slope and intercept of the header, which give them their unit; there is no white
    results    keep the header's affines, units and kind
    claims     checked before memory is taken, also of what a .gz unpacks to

Source: the NIfTI-1 and NIfTI-2 headers, https://nifti.nimh.nih.gov.
"""

import gzip
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from unpool.cli.bounds import check_pixels
from unpool.cli.picture import Picture
from unpool.errors import ShapeError, UnsupportedError
from unpool.extras import require
from unpool.runtime.streams.nifti_header import header_like, read_header, spatial_shape
from unpool.runtime.streams.source import read_errors

GZIP = b"\x1f\x8b"
COLOURS = {128: 3, 2304: 4}
"""Types of the header that hold 8-bit colours, and their channels."""


def read_nifti(stream: BinaryIO, size: int, where: str, spatial_rank: int) -> Picture:
    """The volume of a NIfTI file, (D, H, W, C), or a single slice as a picture (H, W, C).

    Args:
        stream: the file, at its beginning.
        size: bytes of the file.
        where: what an error message begins with.
        spatial_rank: 3, or 2 for a file of one slice.

    Raises:
        MissingExtraError: nibabel is not installed.
        FileError: not a NIfTI file, or it is broken, or claims more than it can hold.
        ShapeError: its axes do not fit, or it is larger than the memory.
        UnsupportedError: numbers of a kind that models do not take.
    """
    nibabel = _nibabel(where)
    with read_errors(where, "a NIfTI file"):
        plain, is_packed = _unpacked(stream)
        header = read_header(plain, size, where, is_packed=is_packed)
        shape, dtype = header.get_data_shape(), header.get_data_dtype()
        if dtype.kind not in "uif" and int(header["datatype"]) not in COLOURS:
            raise UnsupportedError(f"{where}: expected integers, floats or 8-bit colours, got {dtype}. Convert it.")
        is_scaled = header.get_slope_inter()[0] not in (None, 1)
        check_pixels(shape, 8 if is_scaled else dtype.itemsize, where)
        proxy = nibabel.arrayproxy.ArrayProxy(plain, header, mmap=False)
        voxels = _plain_numbers(np.asanyarray(proxy))
        return Picture(_arranged(voxels, spatial_rank, where), None, space=header)


def header_of(stream: BinaryIO, size: int, where: str) -> Any:
    """The checked header of a NIfTI file, which says how much memory its voxels take."""
    plain, is_packed = _unpacked(stream)
    with read_errors(where, "a NIfTI file"):
        return read_header(plain, size, where, is_packed=is_packed)


def _unpacked(stream: BinaryIO) -> tuple[Any, bool]:
    """The file without its compression, and whether it has one."""
    is_packed = stream.read(2) == GZIP
    stream.seek(0)
    return (gzip.GzipFile(fileobj=stream) if is_packed else stream), is_packed


def write_nifti(stream: BinaryIO, form: str, pixels: NDArray[Any], space: Any, where: str) -> None:
    """Write a volume where the one that the model saw is.

    Args:
        stream: an open file.
        form: nii, or nii.gz.
        pixels: (D, H, W, C), or a slice (H, W, C); a single channel gets no axis.
        space: the header of the NIfTI file that the model saw; None puts voxels of size 1 anywhere.
        where: what an error message begins with.

    Raises:
        MissingExtraError: nibabel is not installed.
        ShapeError: another number of voxels than in the file that the model saw.
        UnsupportedError: a type that such files do not hold.
    """
    nibabel = _nibabel(f".{form}")
    values = _storable(pixels[..., 0] if pixels.shape[-1] == 1 else pixels, where)
    header = header_like(space, values.shape, values.dtype, where)
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


def _plain_numbers(voxels: NDArray[Any]) -> NDArray[Any]:
    """Colours as one more axis, and the byte order of this machine."""
    if voxels.dtype.names:
        voxels = np.stack([voxels[name] for name in voxels.dtype.names], axis=-1)
    return voxels.astype(voxels.dtype.newbyteorder("="), copy=False)


def _arranged(voxels: NDArray[Any], spatial_rank: int, where: str) -> NDArray[Any]:
    """Spatial axes and channels; axes of one element between them, such as time, are left out."""
    shape = (*spatial_shape(voxels.shape), *(size for size in voxels.shape[3:] if size > 1))
    is_slice = spatial_rank == 2 and shape[2] == 1
    if len(shape) > 4 or not (is_slice or spatial_rank == 3):
        expected = "a volume with or without channels" if spatial_rank == 3 else "a single slice"
        raise ShapeError(f"{where}: expected {expected}, got {_text(voxels.shape)} voxels. Split it, or give a .npy.")
    spatial = shape[:spatial_rank]
    return voxels.reshape(*spatial, *(shape[3:] or (1,)))


def _storable(pixels: NDArray[Any], where: str) -> NDArray[Any]:
    if pixels.dtype == np.bool_:
        return pixels.astype(np.uint8)
    if pixels.dtype == np.float16:
        return pixels.astype(np.float32)
    if pixels.dtype.kind not in "uif":
        raise UnsupportedError(f"{where}: .nii holds integers and floats, got {pixels.dtype}. Write .npy.")
    return pixels


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
