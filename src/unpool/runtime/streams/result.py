"""What is written of an output: all of it, or the number of the channel with the largest value."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unpool.errors import ShapeError, UnpoolError, UnsupportedError
from unpool.runtime.streams.arrangement import Array, Shape, Slices
from unpool.runtime.streams.casting import numpy_type
from unpool.runtime.streams.sink import Written
from unpool.runtime.tiles.tiling import Tile, Tiling

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession


@dataclass(frozen=True)
class Result:
    """What is written of an output, tile by tile.

    Attributes:
        name: of the output.
        written: the shape and the type in the file.
        best: the axis along which the place of the largest value is taken, the first one of equals; None: all values.
    """

    name: str
    written: Written
    best: int | None

    def of(self, array: Array) -> Array:
        """What is written of a tile's output."""
        return array if self.best is None else array.argmax(self.best).astype(self.written.dtype)

    def window(self, tile: Tile) -> Slices:
        """Where it goes."""
        found: Slices = _without(tile.filled[self.name], self.best)
        return found


def result_of(session: "InferenceSession", tiling: Tiling, name: str, *, argmax: bool, affine: Array | None) -> Result:
    """What is written of an output.

    Args:
        session: of the model.
        tiling: of the image.
        name: of the output.
        argmax: whether the number of the largest channel is written, as uint8 up to 256 channels, else as uint16.
        affine: from voxels of the input to millimetres.

    Raises:
        UnpoolError: the output is the same for every tile.
        ShapeError: `argmax`, and it has not 2 to 65536 channels.
        UnsupportedError: files have no such type.
    """
    if name not in tiling.outputs:
        raise UnpoolError(
            f"output {name!r}: expected one that is cut into tiles, got one that no tile changes. Run it whole."
        )
    field = tiling.trace.fields[name]
    others = [axis for axis, spatial in enumerate(field.axes) if spatial is None and axis]
    channel = others[0] if len(others) == 1 else None
    is_same_size = field.sizes() == tiling.trace.fields[tiling.inputs[0]].sizes()
    all_values = Written(
        field.shape, _dtype(session, name), channel, _piece(tiling, name), affine if is_same_size else None
    )
    if not argmax:
        return Result(name, all_values, None)
    count = 0 if channel is None else field.shape[channel]
    if channel is None or not 2 <= count <= 65536:
        raise ShapeError(
            f"output {name!r}: expected 2 to 65536 channels, of which one is best, got {list(field.shape)}."
        )
    kept = {"shape": _without(field.shape, channel), "piece": _without(all_values.piece, channel)}
    kind = np.dtype(np.uint8 if count <= 256 else np.uint16)
    return Result(name, replace(all_values, dtype=kind, channel=None, **kept), channel)


def _piece(tiling: Tiling, name: str) -> Shape:
    """The shape of what a tile gives, at most along each axis."""
    field = tiling.trace.fields[name]
    longest = [max((one.kept[name].stop - one.kept[name].first for one in along if name in one.kept), default=1)
               for along in tiling.parts]  # fmt: skip
    return tuple(size if axis is None else longest[axis] for size, axis in zip(field.shape, field.axes, strict=True))


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
