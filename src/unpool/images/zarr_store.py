"""The one place where Zarr arrays are opened: metadata that were checked, and a store that looks at every file.

zarr takes a folder, or a part of a file that is cut off, for a chunk that is missing, and gives the fill value; here
both are errors. A chunk that claims to unpack to more than it holds is refused before it is unpacked.

Source: RFC 8878 (Zstandard); the headers of Blosc 1, https://github.com/Blosc/c-blosc, and of numcodecs' LZ4.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore, StorePath

from unpool.display import format_shape
from unpool.errors import FileError
from unpool.images.axes import Array, Shape
from unpool.images.checks import read_errors
from unpool.images.zarr_metadata import ChunkSpec, read_metadata

WIDEST = 8
"""Bytes that a filter may make of one."""

BESIDES = 1 << 20
"""Bytes of headers, digests and the like."""

ZSTD = b"\x28\xb5\x2f\xfd"
ZSTD_BLOCK = 1 << 17
"""Bytes that a block of Zstandard unpacks to, at most."""

ANYTHING = ChunkSpec(1 << 60, None)


def open_zarr_array(path: Path, level: int = 0, *, is_writable: bool = False) -> Any:
    """The zarr.Array in a folder; every reader of unpool opens it here, on workers of a cluster too.

    Args:
        path: the folder of an array, or of a group of levels.
        level: which array of a group.
        is_writable: whether windows are written too.

    Raises:
        FileError, UnsupportedError, ShapeError: as `read_metadata`; and later, when a chunk is read that is damaged.
    """
    found = read_metadata(path, level)
    with read_errors(str(path), "a Zarr array"):
        store = ChunkStore(found.folder.absolute(), read_only=not is_writable, chunk_spec=found.chunk_spec)
        return zarr.Array.from_dict(StorePath(store), dict(found.document))


@dataclass(frozen=True)
class ZarrReader:
    """A Zarr array to read, which can be pickled, so that workers of a cluster read it by themselves.

    Attributes:
        path: of the array, or of the group that it is a level of.
        array: of zarr.
    """

    path: Path
    array: Any

    @property
    def shape(self) -> Shape:
        """Of the whole array."""
        return tuple(self.array.shape)

    @property
    def dtype(self) -> "np.dtype[Any]":
        """Of its elements."""
        dtype: np.dtype[Any] = np.dtype(self.array.dtype)
        return dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __getitem__(self, slices: Any) -> Array:
        """A window.

        Raises:
            FileError: a chunk is damaged.
            ShapeError: there is no memory for the window.
        """
        with read_errors(str(self.path), f"chunks of {format_shape(self.shape)} elements"):
            return np.asarray(self.array[slices])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """All of it."""
        return np.asarray(self[...], dtype)


class ChunkStore(LocalStore):
    """The files of one array. What is no file, too short or claims too much is an error, not a missing chunk."""

    def __init__(self, root: Path | str, *, read_only: bool = False, chunk_spec: ChunkSpec = ANYTHING) -> None:
        super().__init__(root, read_only=read_only)
        self.chunk_spec = chunk_spec

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """The bytes of a file, or of a part of it; None where there is no file.

        Raises:
            FileError: a folder is there, or the file is shorter than the part, or claims more than it can hold.
        """
        place = self.root / key
        if not _is_file(place, byte_range, self.chunk_spec):
            return None
        found = await super().get(key, prototype, byte_range)
        if found is not None and not self._is_index(byte_range):
            _check_chunk(found, self.chunk_spec, place)
        return found

    def _is_index(self, byte_range: ByteRequest | None) -> bool:
        """True if a request may be for the index of a shard, or for a shard with it."""
        if not self.chunk_spec.is_in_shard or not isinstance(byte_range, RangeByteRequest):
            return self.chunk_spec.is_in_shard
        return byte_range.start == 0 and byte_range.end - self.chunk_spec.index < BESIDES


def _is_file(place: Path, byte_range: ByteRequest | None, chunk_spec: ChunkSpec) -> bool:
    try:
        status = os.stat(place)
    except FileNotFoundError:
        if os.path.lexists(place):
            raise FileError(f"{place}: the link leads to no file. Copy the array with its files.") from None
        return False
    except OSError as error:
        raise FileError(f"{place}: expected a chunk, got an error: {error.strerror}. Copy the array again.") from error
    if not stat.S_ISREG(status.st_mode):
        raise FileError(f"{place}: expected a file with a chunk, got a folder or a device. Copy the array again.")
    size, needed = status.st_size, 0
    if isinstance(byte_range, RangeByteRequest):
        needed = byte_range.end if 0 <= byte_range.start <= byte_range.end else size + 1
    elif isinstance(byte_range, SuffixByteRequest):
        needed = byte_range.suffix
    elif isinstance(byte_range, OffsetByteRequest):
        needed = byte_range.offset
    if needed > size:
        raise FileError(f"{place}: a part of the shard ends at byte {needed}, the file has {size}. Copy it again.")
    if byte_range is None and not chunk_spec.is_in_shard and size > 2 * WIDEST * chunk_spec.bytes + BESIDES:
        raise FileError(f"{place}: has {size} bytes, for a chunk of {chunk_spec.bytes}. Save the array again.")
    return True


def _check_chunk(found: Buffer, chunk_spec: ChunkSpec, place: Path) -> None:
    """Refuse a chunk that says that it unpacks to far more than its elements take."""
    measure = CLAIMS.get(chunk_spec.codec or "")
    array: Any = found.as_numpy_array()
    claimed = measure(memoryview(array).cast("B")) if measure is not None and len(array) else 0
    if claimed > WIDEST * chunk_spec.bytes + (64 * BESIDES if chunk_spec.codec == "zstd" else BESIDES):
        raise FileError(f"{place}: claims {claimed} bytes, for a chunk of {chunk_spec.bytes}. Save the array again.")


def blosc_bytes(data: memoryview) -> int:
    """Bytes that a chunk of Blosc says it unpacks to."""
    return int.from_bytes(data[4:8], "little")


def lz4_bytes(data: memoryview) -> int:
    """Bytes that a chunk of numcodecs' LZ4 says it unpacks to."""
    return int.from_bytes(data[:4], "little")


def zstd_bytes(data: memoryview) -> int:
    """Bytes that a chunk of Zstandard says it unpacks to; the most that its blocks can give where it does not say it.

    >>> zstd_bytes(memoryview(bytes.fromhex("28b52ffd 20 05 290000 68656c6c6f")))
    5
    """
    at, most = 0, 0
    while bytes(data[at : at + 4]) == ZSTD and at + 5 < len(data):
        descriptor = data[at + 4]
        is_single = descriptor >> 5 & 1
        at += 5 + (not is_single) + (0, 1, 2, 4)[descriptor & 3]
        width = (is_single, 2, 4, 8)[descriptor >> 6]
        if width:
            return most + int.from_bytes(data[at : at + width], "little") + 256 * (width == 2)
        is_last = False
        while not is_last and at + 3 <= len(data):
            header = int.from_bytes(data[at : at + 3], "little")
            is_last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
            most += ZSTD_BLOCK if kind == 2 else size
            at += 3 + (1 if kind == 1 else size)
        at += 4 * (descriptor >> 2 & 1)
    return most


CLAIMS = {"blosc": blosc_bytes, "lz4": lz4_bytes, "zstd": zstd_bytes}
