"""A file as a tensor of which windows are read."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from unpool.runtime.streams.arrangement import Arrangement, Array, Shape, Slices, bounded


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

    def identity(self) -> str:
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
        identity: of its content.
        white: the value that means white, where the file says so.
        space: the header that says where voxels are and in which units, where the file has one.
        note: what a caller should know, such as that the file was read whole.
    """

    path: Path
    stored_shape: Shape
    dtype: np.dtype[Any]
    arrangement: Arrangement
    read: Callable[[Slices], Array]
    identity: Callable[[], str]
    white: float | None = None
    space: Any = None
    note: str = ""

    @property
    def shape(self) -> Shape:
        """Of the whole tensor."""
        return self.arrangement.shape(self.stored_shape)

    def __getitem__(self, slices: Slices) -> Array:
        """A window of the tensor."""
        window = bounded(tuple(slices), self.shape)
        return self.arrangement.tensor(self.read(self.arrangement.slices(window)))
