"""NumPy's .npy files: read in one piece or in windows, and written in windows."""

import zipfile
from io import BytesIO
from math import prod
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from unpool.display import format_shape
from unpool.errors import FileError, UnsupportedError
from unpool.images.axes import AxisMapping, Shape, axes_for_array
from unpool.images.checks import REPLACE, check_claim, read_errors
from unpool.images.sink import OutputSpec, RawArrayFile, RawLayout
from unpool.images.source import OpenOptions, TiledSource, fingerprint_file
from unpool.memory import check_bytes

READ_HEADER = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
    (3, 0): npy.read_array_header_2_0,  # differs in the encoding of field names
}
MAX_HEADER_BYTES = 10_000  # as in NumPy, which looks at it once it has read the header
MOST_AXES = 64
MOST_ELEMENTS = 2**60  # elements of an array, an axis of none counted as one: NumPy counts their bytes in 63 bits


class Header(NamedTuple):
    """The header of a .npy file; `offset` counts the bytes before the elements."""

    shape: Shape
    is_fortran: bool
    dtype: np.dtype[Any]
    offset: int


def read_header(stream: IO[bytes], size: int, where: str) -> Header:
    """The header of a .npy file of `size` bytes, checked before memory is taken for its array."""
    with read_errors(where, "an array of numbers"):
        version = npy.read_magic(stream)
        if version not in READ_HEADER:
            raise UnsupportedError(f"{where}: .npy of version {version}, only 1.0 to 3.0 are read. Use numpy.save.")
        length = stream.read(2 if version == (1, 0) else 4)
        if (count := int.from_bytes(length, "little")) > MAX_HEADER_BYTES:
            raise FileError(f"{where}: expected an array of numbers, its header claims {count} bytes. {REPLACE}")
        try:
            shape, is_fortran, dtype = READ_HEADER[version](BytesIO(length + stream.read(count)))
        except MemoryError as error:  # how Python's parser refuses brackets in brackets
            raise FileError(f"{where}: expected an array of numbers, its header is too deep. {REPLACE}") from error
        offset = stream.tell()
        if dtype.hasobject:
            raise UnsupportedError(f"{where}: expected numbers, got Python objects, which are not read. Convert them.")
        is_plain = len(shape) <= MOST_AXES and all(type(length) is int and length >= 0 for length in shape)
        claimed = prod(shape) * dtype.itemsize if is_plain else 0
        if claimed > size - offset:
            raise FileError(f"{where}: claims {claimed} bytes of numbers, the file has {size}. {REPLACE}")
        if not is_plain or prod(length or 1 for length in shape) >= MOST_ELEMENTS:
            raise FileError(f"{where}: expected an array of numbers, its shape is {str(shape)[:80]}. {REPLACE}")
        return Header(tuple(shape), bool(is_fortran), dtype, offset)


def read_npy(stream: BinaryIO, size: int, where: str) -> NDArray[Any]:
    """The array of an open .npy file of `size` bytes."""
    with read_errors(where, "an array of numbers"):
        _check_header(stream, size, where)
        stream.seek(0)
        return npy.read_array(stream, allow_pickle=False)


def read_member(archive: BinaryIO, member: str, where: str) -> NDArray[Any]:
    """One array of an open .npz file."""
    with read_errors(where, "an array of numbers"), zipfile.ZipFile(archive) as file:
        info = file.getinfo(f"{member}.npy")
        check_claim(info.file_size, info.compress_size, where)
        with file.open(info) as stream:
            _check_header(stream, info.file_size, where)
        with file.open(info) as stream:
            return npy.read_array(stream, allow_pickle=False)


def _check_header(stream: Any, size: int, where: str) -> None:
    header = read_header(stream, size, where)
    shape = format_shape(header.shape)
    check_bytes(prod(header.shape) * header.dtype.itemsize, f"an array of {shape} {header.dtype}", where)


def open_npy(path: Path, wanted: OpenOptions) -> TiledSource:
    """A .npy file to read in windows."""
    with read_errors(str(path), "an array of numbers"), path.open("rb") as stream:
        header = read_header(stream, path.stat().st_size, str(path))
    stored = header.shape[::-1] if header.is_fortran else header.shape
    raw = RawArrayFile(path, stored, header.dtype, header.offset)
    axes = axes_for_array(header.shape, wanted.rank, wanted.layout, str(path)).axes
    arrangement = AxisMapping(axes[::-1] if header.is_fortran else axes, wanted.rank)
    return TiledSource(path, stored, header.dtype, arrangement, raw.read, lambda: fingerprint_file(path))


def npy_layout(path: Path, written: OutputSpec) -> RawLayout:
    """A .npy file to write in windows."""
    words = {"descr": npy.dtype_to_descr(written.dtype), "fortran_order": False, "shape": written.shape}
    file = BytesIO()
    npy.write_array_header_1_0(file, words)
    header, rank = file.getvalue(), len(written.shape)
    array = RawArrayFile(path, written.shape, written.dtype, len(header))
    return RawLayout(".npy", {0: header}, array.end, AxisMapping(tuple(range(rank)), rank), array.write, array.read)
