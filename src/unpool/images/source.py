"""Sources of windows: a file as a tensor, and casts of it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from unpool.errors import UnpoolError
from unpool.images.axes import Array, AxisMapping, Shape, Slices, normalize_slices
from unpool.images.checks import read_errors
from unpool.images.fingerprint import fingerprint_array

BATCH = "batch"


class ArrayLike(Protocol):
    """Input of a tiled run: shape, type, windows and fingerprint."""

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
class TiledSource:
    """A file as a tensor; `source[slices]` reads a window.

    Attributes:
        path: of the file.
        stored_shape: in the file.
        dtype: of the elements that are read.
        arrangement: of the file's axes.
        read: a window of the file.
        fingerprint: of its content.
        white_level: the value that means white, where the file says so.
        spatial_header: the header that says where voxels are and in which units, where the file has one.
        warning: what a caller should know, such as that the file was read whole.
    """

    path: Path
    stored_shape: Shape
    dtype: np.dtype[Any]
    arrangement: AxisMapping
    read: Callable[[Slices], Array]
    fingerprint: Callable[[], str]
    white_level: float | None = None
    spatial_header: Any = None
    warning: str = ""

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
        window = normalize_slices(tuple(slices), self.shape)
        stored = self.arrangement.slices(window)
        text = ", ".join(f"{part.start}:{part.stop}" for part in stored)
        with read_errors(str(self.path), f"the window [{text}]"):
            return self.arrangement.tensor(self.read(stored))


@dataclass(frozen=True)
class OpenOptions:
    """Options of opening a file as a tensor.

    Attributes:
        rank: of the tensor: batch, channels and the spatial axes.
        layout: "NCHW" or "NHWC".
        level: of a pyramid; 0 is the full size.
        channels: of the tensor; None where any number will do.
        pages: BATCH where the pages of a TIFF file are those of a batch; None: depth, or channels where they fit.
    """

    rank: int = 4
    layout: str = "NCHW"
    level: int = 0
    channels: int | None = None
    pages: str | None = None


def pages_advice(pages: str | None) -> str:
    """Advice for a TIFF file whose pages do not fit the role `pages`."""
    if pages == BATCH:
        return "Split the pages, or give a .npy."
    return "Take the pages as a batch (--pages batch), split them, or give a .npy."


@dataclass(frozen=True)
class CastSource:
    """A source in another type; its windows are cast when they are read."""

    source: ArrayLike
    dtype: np.dtype[Any]

    @property
    def shape(self) -> Shape:
        """Of the whole tensor."""
        return self.source.shape

    @property
    def spatial_header(self) -> Any:
        """The header that says where voxels are, where the source has one."""
        return getattr(self.source, "spatial_header", None)

    def __getitem__(self, slices: Slices) -> Array:
        """A window."""
        return np.asarray(self.source[slices]).astype(self.dtype)

    def fingerprint(self) -> str:
        """Equal for two of the same content."""
        return self.source.fingerprint() if hasattr(self.source, "fingerprint") else fingerprint_array(self.source)


def cast_source(source: Any, dtype: np.dtype[Any] | None, name: str) -> Any:
    """The source in the type of an input; as it is where the input has no such type (None).

    Raises:
        UnpoolError: the input's type does not hold every value, such as float32 for float64.
    """
    stored = np.dtype(source.dtype)
    if dtype is None or dtype == stored:
        return source
    if dtype.kind in "biufc" and stored.kind in "biufc" and np.can_cast(stored, dtype, "safe"):
        return CastSource(source, dtype)
    raise UnpoolError(
        f"input {name!r}: expected {dtype}, or a type that fits into it, got {stored}. Convert the file first."
    )
