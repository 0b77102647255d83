"""What is written of an output: all of it, or the number of the channel with the largest value."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unpool.errors import ShapeError, UnsupportedError
from unpool.runtime.streams.arrangement import Array, Shape, Slices
from unpool.runtime.streams.casting import numpy_type
from unpool.runtime.streams.sink import Written

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession


@dataclass(frozen=True)
class Whole:
    """An output of the whole image.

    Attributes:
        name: of the output.
        shape: of the tensor.
        piece: the shape of what a part of the run gives, at most along each axis.
        spatial: its axes that are axes of the image.
    """

    name: str
    shape: Shape
    piece: Shape
    spatial: tuple[int, ...]

    @property
    def channel(self) -> int | None:
        """The axis of channels: the only one beside the batch and those of the image."""
        others = [axis for axis in range(1, len(self.shape)) if axis not in self.spatial]
        return others[0] if len(others) == 1 else None


@dataclass(frozen=True)
class Result:
    """What is written of an output, part by part.

    Attributes:
        name: of the output.
        written: the shape and the type in the file.
        best: the axis along which the place of the largest value is taken, the first one of equals; None: all values.
    """

    name: str
    written: Written
    best: int | None

    def of(self, array: Array) -> Array:
        """What is written of a part of the output."""
        return array if self.best is None else array.argmax(self.best).astype(self.written.dtype)

    def window(self, slices: Slices) -> Slices:
        """Where a part of the output goes."""
        found: Slices = _without(slices, self.best)
        return found


def result_of(session: "InferenceSession", output: Whole, *, argmax: bool, space: Any = None) -> Result:
    """What is written of an output.

    Args:
        session: of the model.
        output: of the whole image.
        argmax: whether the number of the largest channel is written, as uint8 up to 256 channels, else as uint16.
        space: the header of the volume that the model sees.

    Raises:
        ShapeError: `argmax`, and it has not 2 to 65536 channels.
        UnsupportedError: files have no such type.
    """
    channel = output.channel
    if not argmax:
        kind = _dtype(session, output.name)
        return Result(output.name, Written(output.shape, kind, channel, output.piece, space), None)
    count = 0 if channel is None else output.shape[channel]
    if channel is None or not 2 <= count <= 65536:
        raise ShapeError(
            f"output {output.name!r}: expected 2 to 65536 channels, of which one is best, got {list(output.shape)}."
        )
    kind = np.dtype(np.uint8 if count <= 256 else np.uint16)
    shape, piece = _without(output.shape, channel), _without(output.piece, channel)
    return Result(output.name, Written(shape, kind, None, piece, space, count), channel)


def _without(values: Any, place: int | None) -> Any:
    return values if place is None else (*values[:place], *values[place + 1 :])


def _dtype(session: "InferenceSession", name: str) -> np.dtype[Any]:
    """NumPy's type of an output."""
    said = next(value.type for value in session.get_outputs() if value.name == name)
    found = numpy_type(said)
    if found is None or found.kind not in "biuf" or found.type.__module__ != "numpy":
        raise UnsupportedError(
            f"output {name!r}: expected a type that files hold in windows, got {said}. Run it whole."
        )
    return found
