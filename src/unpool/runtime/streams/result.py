"""What is written of an output: all of it, probabilities, or numbers of classes."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unpool.errors import ShapeError, UnpoolError, UnsupportedError
from unpool.images.axes import Array, Shape, Slices
from unpool.images.sink import OutputSpec
from unpool.runtime.graph.type_names import numpy_type

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession


MOST_CLASSES = 65536
TWO_CLASSES = 2


@dataclass(frozen=True)
class Scores:
    """How the scores of classes are written; by default as they are.

    Attributes:
        argmax: as the number of the channel with the largest value, the first one of equals.
        softmax: as probabilities, by the softmax over the channels.
        threshold: of one channel: 1 where it is above this number, else 0, also for NaN.

    Raises:
        UnpoolError: more than one of these, or a threshold that is not finite.
    """

    argmax: bool = False
    softmax: bool = False
    threshold: float | None = None

    def __post_init__(self) -> None:
        given = [name for name, value in vars(self).items() if value is not None and value is not False]
        if len(given) > 1:
            raise UnpoolError(f"scores: expected one of argmax, softmax, threshold; got {', '.join(given)}. Drop one.")
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise UnpoolError(f"threshold: expected a finite number, got {self.threshold}. Pass one such as 0.5.")

    @property
    def makes_classes(self) -> bool:
        """Whether numbers of classes are written."""
        return self.argmax or self.threshold is not None

    def count(self, shape: Shape, channel: int | None, where: str) -> int:
        """How many classes are told apart in scores of this shape.

        Raises:
            ShapeError: there are too few channels, or too many.
        """
        found, text = 0 if channel is None else shape[channel], "x".join(map(str, shape))
        if self.threshold is not None:
            if found != 1:
                raise ShapeError(
                    f"{where}: a threshold is for one channel of scores, got {text}. For several, take the best class "
                    "with argmax."
                )
            return TWO_CLASSES
        if not 2 <= found <= MOST_CLASSES or 0 in shape:
            what = "softmax" if self.softmax else "the best class"
            way = "For a mask of one channel, set a threshold: 0.5 for probabilities, 0 for logits."
            way = way if found == 1 else "Write them as they are."
            raise ShapeError(f"{where}: {what} needs scores of 2 to {MOST_CLASSES} channels, got {text}. {way}")
        return found

    def of(self, scores: Array, channel: int) -> Array:
        """What is written of scores: without the axis of the channels where it is numbers of classes."""
        found: Array = scores
        if self.threshold is not None:
            found = (scores.take(0, channel) > np.float64(self.threshold)).astype(np.uint8)
        elif self.argmax:
            found = scores.argmax(channel).astype(class_type(scores.shape[channel]))
        elif self.softmax:
            found = softmax(scores, channel)
        return found


SOFTMAX = 3
"""Arrays like the scores that a softmax holds beside them, of which one is wider for float16."""


def class_type(count: int) -> np.dtype[Any]:
    """The type of class numbers, by how many classes there are."""
    return np.dtype(np.uint8 if count <= 256 else np.uint16)


def softmax(scores: Array, channel: int) -> Array:
    """Probabilities of classes, in the type of the scores, which is one of floats.

        p[c] = exp(s[c] - max s) / sum exp(s - max s)

    Channels are added in their order, so that a part of an image gives the bits of the whole.

    >>> softmax(np.float32([[0.0, np.log(3.0)]]), 1).tolist()
    [[0.25, 0.75]]
    """
    powers = np.array(np.moveaxis(scores, channel, 0), np.promote_types(scores.dtype, np.float32), order="C")
    with np.errstate(invalid="ignore"):  # of infinities, whose probabilities are NaN
        powers -= powers.max(axis=0)
        np.exp(powers, out=powers)
        total = np.zeros(powers.shape[1:], powers.dtype)
        for one in powers:
            total += one
        powers /= total
    found: Array = np.ascontiguousarray(np.moveaxis(powers, 0, channel), scores.dtype)
    return found


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
        scores: how they are written.
        channel: the axis of classes; None where values are written as they are.
    """

    name: str
    written: OutputSpec
    scores: Scores = Scores()
    channel: int | None = None

    def of(self, array: Array) -> Array:
        """What is written of a part of the output."""
        return array if self.channel is None else self.scores.of(array, self.channel)

    def window(self, slices: Slices) -> Slices:
        """Where a part of the output goes."""
        found: Slices = _without(slices, self.channel) if self.scores.makes_classes else slices
        return found


def result_of(
    session: "InferenceSession", output: Whole, scores: Scores = Scores(), spatial_header: Any = None
) -> Result:
    """What is written of an output.

    Args:
        session: of the model.
        output: of the whole image.
        scores: how scores of classes are written; class numbers are uint8 up to 256 classes, else uint16.
        spatial_header: the header of the volume that the model sees.

    Raises:
        ShapeError: the channels are too few, or too many, for that.
        UnsupportedError: files have no such type, or it has no softmax.
    """
    channel, where = output.channel, f"output {output.name!r}"
    if not scores.makes_classes:
        kind = _dtype(session, output.name)
        if scores.softmax:
            scores.count(output.shape, channel, where)
            require_floats(kind, where)
        written = OutputSpec(output.shape, kind, channel, output.piece, spatial_header)
        return Result(output.name, written, scores, channel if scores.softmax else None)
    count = scores.count(output.shape, channel, where)
    shape, piece = _without(output.shape, channel), _without(output.piece, channel)
    return Result(
        output.name, OutputSpec(shape, class_type(count), None, piece, spatial_header, count), scores, channel
    )


def require_floats(kind: np.dtype[Any], where: str) -> None:
    """Refuse a softmax of other numbers than floats."""
    if kind.kind != "f":
        raise UnsupportedError(f"{where}: expected floats for softmax, got {kind}. Leave softmax out.")


def _without(values: Any, place: int | None) -> Any:
    return values if place is None else (*values[:place], *values[place + 1 :])


def _dtype(session: "InferenceSession", name: str) -> np.dtype[Any]:
    """NumPy's type of an output."""
    type_name = next(value.type for value in session.get_outputs() if value.name == name)
    found = numpy_type(type_name)
    if found is None or found.kind not in "biuf" or found.type.__module__ != "numpy":
        raise UnsupportedError(
            f"output {name!r}: expected a type that files hold in windows, got {type_name}. Run it whole."
        )
    return found
