"""A file as a tensor of which windows are written, and read back."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from unpool.runtime.streams.arrangement import Array, AxisMapping, Shape, Slices, bounded


@dataclass(frozen=True)
class OutputSpec:
    """What is to be written.

    Attributes:
        shape: of the tensor.
        dtype: of its elements.
        channel: the axis of its channels; None where it has none.
        piece: the shape of what a tile gives at most; a format with chunks aligns them with it.
        space: the header of the volume that the model saw, which says where its voxels are and in which units.
        classes: of how many channels the numbers are those of the best; 0 where they are values.
    """

    shape: Shape
    dtype: np.dtype[Any]
    channel: int | None
    piece: Shape
    space: Any = None
    classes: int = 0


@dataclass(frozen=True)
class Sink:
    """A file as a tensor.

    Attributes:
        shape: of the tensor.
        arrangement: of the file's axes.
        store: writes a window of the file.
        load: reads a window of the file.
        sync: returns when all that was stored in a window is on the disk.
        repair: makes the file whole again after an interruption; the content of windows of it is kept.
    """

    shape: Shape
    arrangement: AxisMapping
    store: Callable[[Slices, Array], None]
    load: Callable[[Slices], Array]
    sync: Callable[[Slices], None]
    repair: Callable[[Iterable[Slices]], None]

    def write(self, slices: Slices, tensor: Array) -> None:
        """Write a window of the tensor; it is on the disk when this returns."""
        window = self.arrangement.slices(bounded(slices, self.shape))
        self.store(window, np.ascontiguousarray(self.arrangement.stored(tensor)))
        self.sync(window)

    def read(self, slices: Slices) -> Array:
        """A window of the tensor.

        Raises:
            OSError: it cannot be read.
        """
        return self.arrangement.tensor(self.load(self.arrangement.slices(bounded(slices, self.shape))))

    def keep(self, windows: Iterable[Slices]) -> None:
        """Prepare the file of an interrupted run: these windows keep their content, all others may be written."""
        self.repair(self.arrangement.slices(bounded(window, self.shape)) for window in windows)
