"""The bytes of a model in pieces, most of which may still be in a file, and a file in memory with all of them."""

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from io import FileIO
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.graph.data_file import DataRange, DataReader
from unpool.onnxruntime.package import onnxruntime
from unpool.operators.conv import flip_window

Create: TypeAlias = Callable[[str | bytes, onnxruntime.SessionOptions, Callable[[], object]], None]
"""Creates a session of onnxruntime from a path or bytes, and calls a function when these are parsed, if it can."""

SMALLEST, LARGEST = 2**22, 2**31 - 2**20
"""Bytes of models that get a file: the limit of protobuf, without names of weights."""


class FlippedRange(NamedTuple):
    """The weight of a Conv in a file, of which a ConvTranspose has every window flipped."""

    data: DataRange
    shape: tuple[int, ...]  # in the file
    dtype: str
    groups: int

    def read(self, reader: DataReader) -> AnyArray:
        """The flipped weight; a FileError as by `DataReader`."""
        array: AnyArray = np.empty(self.shape, self.dtype)
        reader.read_into(self.data, array.reshape(-1).view(np.uint8).data)
        return flip_window(array, self.groups)


Piece: TypeAlias = bytes | DataRange | FlippedRange


def size_of(pieces: Iterable[Piece]) -> int:
    """The number of all bytes."""
    return sum(map(_size, pieces))


def _size(piece: Piece) -> int:
    if isinstance(piece, bytes):
        return len(piece)
    return piece.size if isinstance(piece, DataRange) else piece.data.size


def join_pieces(pieces: Iterable[Piece]) -> bytes:
    """All bytes.

    Raises:
        FileError: the file with some of them was replaced.
    """
    with DataReader() as reader:
        return b"".join(chain.from_iterable(_chunks(piece, reader) for piece in pieces))


def _chunks(piece: Piece, reader: DataReader) -> Iterator[bytes | memoryview]:
    if isinstance(piece, DataRange):
        yield from reader.chunks(piece)
    else:
        yield piece if isinstance(piece, bytes) else _flipped(piece, reader)


def _flipped(piece: FlippedRange, reader: DataReader) -> memoryview:
    return piece.read(reader).reshape(-1).view(np.uint8).data


def in_memory(pieces: Iterable[Piece], size: int) -> FileIO | None:
    """An open file in memory of about so many bytes; None if they are few, and where there is no such file.

    onnxruntime parses it without a copy of its bytes. Then `truncate(0)` frees it. Errors are those of `join_pieces`.
    """
    if not hasattr(os, "memfd_create") or not SMALLEST <= size <= LARGEST:
        return None
    try:
        file = os.fdopen(os.memfd_create("unpool"), "w+b", buffering=0)
    except OSError:
        return None
    try:
        if os.path.exists(path_of(file)):
            with DataReader() as reader:
                for piece in pieces:
                    if isinstance(piece, DataRange):
                        reader.copy_to(piece, file.fileno())
                    else:
                        _write(file, piece if isinstance(piece, bytes) else _flipped(piece, reader))
            return file
    except UnpoolError:  # the file of the model is wrong; it is an OSError, too
        file.close()
        raise
    except OSError:  # there is no memory for it
        pass
    except BaseException:
        file.close()
        raise
    file.close()
    return None


def _write(file: FileIO, content: bytes | memoryview) -> None:
    """Write all of the content, where a write may end early for want of memory."""
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def path_of(file: FileIO) -> str:
    """The path of an open file in memory."""
    return f"/proc/self/fd/{file.fileno()}"


def create_from(source: str | bytes | FileIO, options: onnxruntime.SessionOptions, create: Create) -> None:
    """Create a session from a path, bytes or a file in memory, which is freed when it is parsed, and closed."""
    if isinstance(source, str | bytes):
        create(source, options, lambda: None)
        return
    with source:
        create(path_of(source), options, partial(source.truncate, 0))
