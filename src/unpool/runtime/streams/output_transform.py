"""The contents of an output file: the values of the model, probabilities, or class numbers."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unpool.display import format_shape
from unpool.errors import ShapeError, UnpoolError, UnsupportedError
from unpool.graph.shapes import numpy_type
from unpool.images.axes import Array, Shape, Slices
from unpool.images.sink import OutputSpec

if TYPE_CHECKING:
    from unpool.onnxruntime.session import InferenceSession


MAX_CLASSES = 65536


@dataclass(frozen=True)
class ScoreFormat:
    """The format in which scores of classes are written, one of these; by default they stay unchanged.

    argmax      the number of the channel with the largest value, the first of equals
    softmax     probabilities, the softmax over the channels
    threshold   for one channel: 1 where it is above this finite number, 0 elsewhere and for NaN
    """

    argmax: bool = False
    softmax: bool = False
    threshold: float | None = None

    def __post_init__(self) -> None:
        names = [name for name, value in vars(self).items() if value is not None and value is not False]
        if len(names) > 1:
            raise UnpoolError(f"scores: expected one of argmax, softmax, threshold; got {', '.join(names)}. Drop one.")
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise UnpoolError(f"threshold: expected a finite number, got {self.threshold}. Pass one such as 0.5.")

    @property
    def writes_classes(self) -> bool:
        """True if class numbers are written."""
        return self.argmax or self.threshold is not None

    def class_count(self, shape: Shape, channel: int | None, where: str) -> int:
        """Number of classes in scores of this shape, whose channels have to fit the format."""
        channels, text = 0 if channel is None else shape[channel], format_shape(shape)
        if self.threshold is not None:
            if channels != 1:
                advice = "For several, take the best class with argmax."
                raise ShapeError(f"{where}: a threshold is for one channel of scores, got {text}. {advice}")
            return 2
        if not 2 <= channels <= MAX_CLASSES or 0 in shape:
            result = "softmax" if self.softmax else "the best class"
            advice = "For a mask of one channel, set a threshold: 0.5 for probabilities, 0 for logits."
            advice = advice if channels == 1 else "Write them as they are."
            raise ShapeError(f"{where}: {result} needs scores of 2 to {MAX_CLASSES} channels, got {text}. {advice}")
        return channels

    def apply(self, scores: Array, channel: int) -> Array:
        """The values for the file; class numbers have no axis of channels."""
        values: Array = scores
        if self.threshold is not None:
            values = (scores.take(0, channel) > np.float64(self.threshold)).astype(np.uint8)
        elif self.argmax:
            values = scores.argmax(channel).astype(class_type(scores.shape[channel]))
        elif self.softmax:
            values = softmax(scores, channel)
        return values

    def temporary_bytes(self, tensor: OutputSpec) -> int:
        """Bytes that `apply` allocates for the largest part of an output of the model, without its result."""
        elements, channels = math.prod(tensor.piece), 1 if tensor.channel is None else tensor.piece[tensor.channel]
        if self.threshold is not None:
            return elements // channels * (tensor.dtype.itemsize + 1)
        if self.argmax:
            return elements // channels * np.dtype(np.intp).itemsize
        return SOFTMAX_COPIES * elements * tensor.dtype.itemsize if self.softmax else 0


SOFTMAX_COPIES = 3  # arrays of the size of the scores that a softmax allocates; for float16 one of them is wider


def class_type(count: int) -> np.dtype[Any]:
    """The type of class numbers: uint8 up to 256 classes, else uint16."""
    return np.dtype(np.uint8 if count <= 256 else np.uint16)


def softmax(scores: Array, channel: int) -> Array:
    """Probabilities of classes, in the type of the scores, a floating-point type.

        p[c] = exp(s[c] - max s) / sum exp(s - max s)

    Channels are added in order, so that a part of an image gives the same bits as the whole image.
    """
    powers = np.array(np.moveaxis(scores, channel, 0), np.promote_types(scores.dtype, np.float32), order="C")
    with np.errstate(invalid="ignore"):  # of infinities, whose probabilities are NaN
        powers -= powers.max(axis=0)
        np.exp(powers, out=powers)
        total = np.zeros(powers.shape[1:], powers.dtype)
        for channel_powers in powers:
            total += channel_powers
        powers /= total
    probabilities: Array = np.ascontiguousarray(np.moveaxis(powers, 0, channel), scores.dtype)
    return probabilities


@dataclass(frozen=True)
class OutputTransform:
    """The step from an output of the model to its file, part by part; no `channel` where values stay unchanged."""

    name: str
    spec: OutputSpec
    scores: ScoreFormat = ScoreFormat()
    channel: int | None = None

    def apply(self, array: Array) -> Array:
        """A part of the file, from the same part of the output."""
        return array if self.channel is None else self.scores.apply(array, self.channel)

    def window(self, slices: Slices) -> Slices:
        """The window of the file, from the window of the output."""
        window: Slices = _drop(slices, self.channel) if self.scores.writes_classes else slices
        return window


def tensor_spec(
    session: "InferenceSession",
    name: str,
    shape: Shape,
    piece: Shape,
    spatial: Collection[int],
    spatial_header: Any = None,
) -> OutputSpec:
    """The spec of an output as the model gives it for the full image, with the maximum shape of a part of the run.

    `spatial` are its axes that are axes of the image; a single other one after the batch is that of the channels.
    """
    others = [axis for axis in range(1, len(shape)) if axis not in spatial]
    dtype = numpy_type(next(value.type for value in session.get_outputs() if value.name == name))
    channel = others[0] if len(others) == 1 else None
    return OutputSpec(shape, np.dtype(object) if dtype is None else dtype, channel, piece, spatial_header)


def output_transform(name: str, tensor: OutputSpec, scores: ScoreFormat = ScoreFormat()) -> OutputTransform:
    """The step to its file from an output with the spec of the model; scores have to fit the format."""
    channel, where = tensor.channel, f"output {name!r}"
    if scores.writes_classes:
        count = scores.class_count(tensor.shape, channel, where)
        shape, piece = _drop(tensor.shape, channel), _drop(tensor.piece, channel)
        return OutputTransform(
            name, OutputSpec(shape, class_type(count), None, piece, tensor.spatial_header, count), scores, channel
        )
    if tensor.dtype.kind not in "biuf" or tensor.dtype.type.__module__ != "numpy":
        raise UnsupportedError(f"{where}: {tensor.dtype} cannot be written tile by tile. Run it without tiles.")
    if scores.softmax:
        scores.class_count(tensor.shape, channel, where)
        require_floats(tensor.dtype, where)
    return OutputTransform(name, tensor, scores, channel if scores.softmax else None)


def require_floats(dtype: np.dtype[Any], where: str) -> None:
    """Refuse a softmax of integers."""
    if dtype.kind != "f":
        raise UnsupportedError(f"{where}: expected floats for softmax, got {dtype}. Leave softmax out.")


def _drop(values: Any, axis: int | None) -> Any:
    return values if axis is None else (*values[:axis], *values[axis + 1 :])
