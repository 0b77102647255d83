"""A file as a tensor of which windows are read; and the one place where errors of other readers become ours."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from unpool.errors import FileError, ShapeError, UnpoolError
from unpool.runtime.streams.arrangement import Array, AxisMapping, Shape, Slices, bounded

LONGEST_REASON = 200
"""Letters of another library's message that are kept."""


@contextmanager
def read_errors(where: str, expected: str) -> Iterator[None]:
    """Turn every exception of a library that reads a file into one error of ours; the exception is its cause.

    Args:
        where: the file.
        expected: what is read, such as "a TIFF image".

    Raises:
        FileError: instead of any exception.
        ShapeError: instead of MemoryError.

    >>> with read_errors("x.npy", "an array of numbers"):
    ...     raise EOFError
    Traceback (most recent call last):
        ...
    unpool.errors.FileError: x.npy: expected an array of numbers, could not read it (EOFError). Copy or save it again.
    """
    try:
        yield
    except UnpoolError:
        raise
    except MemoryError as error:
        raise ShapeError(
            f"{where}: memory ran out while {expected} was read ({_reason(error)}). Free memory, or check the file."
        ) from error
    except Exception as error:
        raise FileError(
            f"{where}: expected {expected}, could not read it ({_reason(error)}). Copy or save it again."
        ) from error


def _reason(error: Exception) -> str:
    """The message on one line, or the name of the exception where it has none."""
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return text if len(text) <= LONGEST_REASON else f"{text[: LONGEST_REASON - 3]}..."


class Readable(Protocol):
    """What a run reads: anything with a shape and a type that gives windows, and says which it is."""

    @property
    def shape(self) -> Shape:
        """Of the whole tensor."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of its elements."""

    def __getitem__(self, slices: Slices) -> Array:
        """A window."""

    def fingerprint(self) -> str:
        """Equal for two of the same content, as far as that can be told."""


@dataclass(frozen=True)
class Source:
    """A file as a tensor; `source[slices]` reads a window.

    Attributes:
        path: of the file.
        stored_shape: in the file.
        dtype: of the elements that are read.
        arrangement: of the file's axes.
        read: a window of the file.
        fingerprint: of its content.
        white: the value that means white, where the file says so.
        space: the header that says where voxels are and in which units, where the file has one.
        note: what a caller should know, such as that the file was read whole.
    """

    path: Path
    stored_shape: Shape
    dtype: np.dtype[Any]
    arrangement: AxisMapping
    read: Callable[[Slices], Array]
    fingerprint: Callable[[], str]
    white: float | None = None
    space: Any = None
    note: str = ""

    @property
    def shape(self) -> Shape:
        """Of the whole tensor."""
        return self.arrangement.shape(self.stored_shape)

    def __getitem__(self, slices: Slices) -> Array:
        """A window of the tensor.

        Raises:
            FileError: the file does not hold what its header says.
            ShapeError: there is no memory for the window.
        """
        window = bounded(tuple(slices), self.shape)
        stored = self.arrangement.slices(window)
        text = ", ".join(f"{part.start}:{part.stop}" for part in stored)
        with read_errors(str(self.path), f"the window [{text}]"):
            return self.arrangement.tensor(self.read(stored))
