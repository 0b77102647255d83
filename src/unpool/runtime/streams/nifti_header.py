"""Headers of NIfTI files: those that are read, and those of results, which say where the volume is that the model saw.

    kept       the affines, both their codes, the sizes of voxels, the units, the kind of header
    left out   what describes the patient, and the values of the input

Source: the NIfTI-1 and NIfTI-2 headers, https://nifti.nimh.nih.gov.
"""

import logging
from math import prod
from typing import Any, BinaryIO

import numpy as np

from unpool.errors import FileError, ShapeError
from unpool.runtime.streams.opened import check_claim

SIZES = {348: "Nifti1Header", 540: "Nifti2Header"}
FURTHEST = 2**24
"""Bytes before the first voxel at most; between it and the header are notes, which are not read."""

OF_VALUES = ("intent_code", "intent_p1", "intent_p2", "intent_p3", "intent_name", "cal_max", "cal_min")
TOLD = ("descrip", "aux_file")

_quiet = logging.getLogger("unpool.nifti")
_quiet.setLevel(logging.CRITICAL)


def read_header(stream: BinaryIO, size: int, where: str, *, is_packed: bool) -> Any:
    """The header of a NIfTI file without its notes, checked before memory is taken for the voxels.

    Args:
        stream: what the file holds, unpacked where it is packed, at its beginning.
        size: bytes of the file.
        where: what an error message begins with.
        is_packed: whether the file is shorter than what it holds.

    Raises:
        FileError: no such header, or it claims more than the file can hold.
    """
    import nibabel

    raw = stream.read(max(SIZES))
    names = [name for length, name in SIZES.items() if length in _first_integer(raw) and len(raw) >= length]
    if not names:
        raise FileError(f"{where}: expected the header of a NIfTI file, got other bytes. Convert it.")
    kind: Any = getattr(nibabel, names[0])
    header = kind(raw[: kind.template_dtype.itemsize], check=False)
    header.check_fix(logger=_quiet, error_level=40)
    if bytes(header["magic"])[:2] != b"n+":
        raise FileError(f"{where}: expected voxels in the same file, got a header alone. Save it as one .nii.")
    offset, shape = header.get_data_offset(), header.get_data_shape()
    if not 0 <= offset <= FURTHEST:
        raise FileError(f"{where}: its voxels begin at byte {offset}, too far. Save it again.")
    if min(shape, default=1) < 1:
        raise FileError(f"{where}: expected one pixel or more on every axis, got {_text(shape)}. Save it again.")
    claimed = offset + prod(map(int, shape)) * header.get_data_dtype().itemsize
    if not is_packed and claimed > size:
        raise FileError(f"{where}: claims {claimed} bytes, the file has {size}. Copy it again.")
    check_claim(claimed, size, where)
    return header


def _first_integer(raw: bytes) -> tuple[int, int]:
    """In both orders of bytes."""
    return int.from_bytes(raw[:4], "little"), int.from_bytes(raw[:4], "big")


def header_like(space: Any, shape: tuple[int, ...], dtype: "np.dtype[Any]", where: str) -> Any:
    """The header of a result.

    Args:
        space: the header of the volume that the model saw; None puts voxels of size 1 anywhere.
        shape: of the result: up to three axes of space, then channels if there are several.
        dtype: of the result.
        where: what an error message begins with.

    Raises:
        ShapeError: another number of voxels than the volume has that the model saw.
    """
    if space is None:
        import nibabel

        kind: Any = nibabel.Nifti1Header
        header = kind()
    else:
        _require_same_place(space, shape, where)
        header = space.copy()
        for name in (*OF_VALUES, *TOLD):
            header[name] = np.zeros_like(header[name])
    header.set_data_dtype(dtype)
    header.set_data_shape(shape)
    header.set_slope_inter(1, 0)
    header.set_data_offset(0)
    return header


def spatial_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The first three sizes; those that are missing are 1.

    >>> spatial_shape((5, 6))
    (5, 6, 1)
    """
    return (*shape, 1, 1, 1)[:3]


def _require_same_place(space: Any, shape: tuple[int, ...], where: str) -> None:
    voxels = tuple(space.get_data_shape())
    if spatial_shape(shape) != spatial_shape(voxels):
        rank = min(len(voxels), 3)
        raise ShapeError(
            f"{where}: .nii keeps the place of the input's {_text(voxels[:rank])} voxels, "
            f"the output has {_text(shape[:rank])}. Write .npy."
        )


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
