"""NumPy's .npy files, window by window."""

from io import BytesIO
from math import prod
from pathlib import Path

import numpy as np

from unpool.errors import FileError
from unpool.runtime.streams.arrangement import Arrangement, of_array
from unpool.runtime.streams.identity import file_identity
from unpool.runtime.streams.opened import Wanted
from unpool.runtime.streams.raw import Raw, require_header, reserve
from unpool.runtime.streams.sink import Sink, Written
from unpool.runtime.streams.source import Source


def open_npy(path: Path, wanted: Wanted) -> Source:
    """A .npy file to read.

    Raises:
        FileError: not such a file, or one of objects.
    """
    try:
        mapped = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, OSError, EOFError) as error:
        raise FileError(f"{path}: expected an array of numbers, could not read it ({error}).") from error
    is_backward = mapped.flags.f_contiguous and not mapped.flags.c_contiguous
    stored = mapped.shape[::-1] if is_backward else mapped.shape
    raw = Raw(path, stored, mapped.dtype, mapped.offset)
    axes = of_array(mapped.shape, wanted.rank, wanted.layout, str(path)).axes
    arrangement = Arrangement(axes[::-1] if is_backward else axes, wanted.rank)
    return Source(path, stored, mapped.dtype, arrangement, raw.read, lambda: file_identity(path))


def create_npy(path: Path, written: Written) -> None:
    """A .npy file of zeros."""
    path.write_bytes(_header(written))
    reserve(path, _size(written))


def open_npy_sink(path: Path, written: Written) -> Sink:
    """A .npy file to write.

    Raises:
        FileError: its header is not the one that `create_npy` writes.
    """
    header = _header(written)
    require_header(path, {0: header}, ".npy")
    raw = Raw(path, written.shape, written.dtype, len(header))
    arrangement = Arrangement(tuple(range(len(written.shape))), len(written.shape))
    return Sink(written.shape, arrangement, raw.write, raw.read, raw.sync, lambda _: reserve(path, _size(written)))


def _header(written: Written) -> bytes:
    """All bytes before the elements."""
    words = {"descr": np.lib.format.dtype_to_descr(written.dtype), "fortran_order": False, "shape": written.shape}
    file = BytesIO()
    np.lib.format.write_array_header_1_0(file, words)
    return file.getvalue()


def _size(written: Written) -> int:
    """Bytes of the file."""
    return len(_header(written)) + prod(written.shape) * written.dtype.itemsize
