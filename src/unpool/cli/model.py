"""The session of a model, its inputs as slots to fill, and messages about image sizes that it cannot run."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from unpool.cli.options import Provider
from unpool.display import format_shape
from unpool.errors import MissingExtraError, ShapeError, UnpoolError, UnsupportedError
from unpool.graph.shapes import numpy_type
from unpool.images.axes import spatial_axes
from unpool.onnxruntime.errors import run_session
from unpool.onnxruntime.package import onnxruntime
from unpool.onnxruntime.session import InferenceSession
from unpool.runtime.tiles.tiler import Overview, Tiler, overview
from unpool.runtime.tiles.walk import Shape

CUDA = "CUDAExecutionProvider"
BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
AXES = {"nchw": {2: "N, C, H, W", 3: "N, C, D, H, W"}, "nhwc": {2: "N, H, W, C", 3: "N, D, H, W, C"}}
PIXELS = (1, 3, 4)  # channels of pictures
# sizes of which multiples are tried where the geometry of a model is not known, and the time for these trials
STEPS, SECONDS = (2, 4, 8, 16, 32, 64, 128, 256), 10.0


@dataclass(frozen=True)
class Slot:
    """One input of a model; a free size of its shape is None, and a shape of unknown rank too."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...] | None

    def check(self, array: NDArray[Any], where: str) -> None:
        """Raise ShapeError unless the array has this type and fits this shape."""
        if array.dtype != self.dtype:
            raise ShapeError(f"{where}: input {self.name!r} takes {self.dtype}, got {array.dtype}. Convert it first.")
        self.check_shape(array.shape, where)

    def check_shape(self, shape: Shape, where: str) -> None:
        """Raise ShapeError unless an array of this shape fits."""
        if self.shape is None or self.fits(shape):
            return
        fact = f"{format_shape(self.shape)}, got {format_shape(shape)}"
        advice = "Resize or cut it first: nothing is resized here."
        if self.batch and shape and self.fits((self.batch, *shape[1:])):
            fact = f"a batch of {self.batch}, got {shape[0]}"
            advice = "Split it, or export the model with an open batch."
        last, first = ((shape[0], *shape[2:], shape[1]), (shape[0], shape[-1], *shape[1:-1])) if shape[1:] else ((), ())
        transposed = next((other for other in (last, first) if other and self.fits(other)), None)
        if transposed is not None:
            advice = f"Transpose it to {format_shape(transposed)}."
        raise ShapeError(f"{where}: input {self.name!r} takes {fact}. {advice}")

    @property
    def batch(self) -> int | None:
        """The size of the first axis, or None where it is open."""
        return self.shape[0] if self.shape else None

    def with_open_sizes(self, layout: str) -> "Slot":
        """The input for images that are cut into patches of its size: of any size, and one after another."""
        if self.shape is None or len(self.shape) < 3:
            return self
        axes = spatial_axes(len(self.shape), layout.upper())
        sizes = (None if axis in axes or (axis, size) == (0, 1) else size for axis, size in enumerate(self.shape))
        return replace(self, shape=tuple(sizes))

    def fits(self, shape: Shape) -> bool:
        """True if the input takes this shape."""
        if self.shape is None:
            return True
        sizes_fit = (size is None or size == actual for size, actual in zip(self.shape, shape, strict=False))
        return len(self.shape) == len(shape) and all(sizes_fit)

    def spatial_rank(self, layout: str) -> int:
        """2 for pictures, 3 for volumes; ShapeError when no image fits this input."""
        if self.shape is None:
            return 2
        rank = len(self.shape) - 2
        if rank not in AXES[layout]:
            fact = f"images fill ({AXES[layout][2]}) or ({AXES[layout][3]}), this input is {format_shape(self.shape)}"
            raise ShapeError(f"input {self.name!r}: {fact}. Give a .npy file.")
        return rank

    def other_layout(self, layout: str) -> str | None:
        """The other layout, if this input looks like an image of it: it has 1, 3 or 4 channels there, and not here.

        >>> Slot("x", np.dtype(np.float32), (None, None, None, 3)).other_layout("nchw")
        'nhwc'
        """
        other = "nhwc" if layout == "nchw" else "nchw"
        is_image = self.shape is not None and len(self.shape) - 2 in AXES[layout]
        return other if is_image and self.channels(other) in PIXELS and self.channels(layout) not in PIXELS else None

    def channels(self, layout: str) -> int | None:
        """Number of channels, or None when the model leaves it open."""
        return None if self.shape is None else self.shape[1 if layout == "nchw" else -1]


@contextmanager
def naming_layout(images: Iterable[Slot], layout: str) -> Iterator[None]:
    """Adds --layout to errors about shapes where an input looks like an image of the other layout."""
    try:
        yield
    except ShapeError as error:
        found = next(((slot, other) for slot in images if (other := slot.other_layout(layout)) is not None), None)
        if found is None:
            raise
        slot, other = found
        axes = AXES[other][slot.spatial_rank(layout)]
        raise ShapeError(f"{error} Input {slot.name!r} looks like {axes}: add --layout {other}.") from error


def open_session(
    path: Path, *, provider: str = Provider.ONNXRUNTIME, is_lean: bool = False, **arguments: Any
) -> InferenceSession:
    """The session of a model file; if `is_lean`, without the memory pattern, which takes more when a shape repeats."""
    if provider == Provider.CUDA and CUDA not in onnxruntime.get_available_providers():
        advice = "Run: pip uninstall onnxruntime && pip install onnxruntime-gpu"
        raise MissingExtraError(f"--provider cuda: needs onnxruntime-gpu in the place of onnxruntime. {advice}")
    lean = onnxruntime.SessionOptions()
    lean.enable_mem_pattern = False
    names = [CUDA, "CPUExecutionProvider"] if provider == Provider.CUDA else None
    return InferenceSession(str(path), lean if is_lean else None, providers=names, **arguments)


def slots(session: InferenceSession) -> dict[str, Slot]:
    """The inputs of the model by name, in its order."""
    by_name = {}
    for value in session.get_inputs():
        dtype = numpy_type(value.type)
        if dtype is None:
            fact = f"expected a tensor of numbers, got {value.type}"
            raise UnsupportedError(f"input {value.name!r}: {fact}. Use unpool.InferenceSession.")
        shape = tuple(size if isinstance(size, int) else None for size in value.shape) if value.shape else None
        by_name[value.name] = Slot(value.name, dtype, shape)
    return by_name


def smallest_size_error(session: InferenceSession, shapes: Mapping[str, Shape], layout: str) -> str | None:
    """The message about an image that is smaller than the model runs on; None if it is not, or this is unknown."""
    try:
        if Tiler(session, layout=layout.upper()).accepts(shapes):
            return None
        geometry = overview(session, {}, layout.upper())
    except UnpoolError:
        return None
    if geometry.smallest is None or 0 in (image := _image_size(geometry, shapes, layout)):
        return None
    return _too_small(tuple(axis.least for axis in geometry.smallest), image)


def size_error(session: InferenceSession, arrays: Mapping[str, NDArray[Any]], layout: str) -> str | None:
    """The message about an image on which a run has failed, if another size is known, or found, to run."""
    geometry = overview(session, {}, layout.upper())
    if geometry.smallest is None:
        return _try_sizes(session, arrays, layout)
    image = _image_size(geometry, {name: array.shape for name, array in arrays.items()}, layout)
    least = tuple(axis.least for axis in geometry.smallest)
    if (message := _too_small(least, image)) is not None:
        return message
    steps = tuple(axis.step or 1 for axis in geometry.smallest)
    larger = tuple(size + (low - size) % step for size, low, step in zip(image, least, steps, strict=True))
    if larger == image:
        return None
    return (
        f"the model runs on {format_shape(least)} and in steps of {format_shape(steps)} above, "
        f"got {format_shape(image)}. Pad it to {format_shape(larger)} or cut it, nothing is resized here."
    )


def layout_error(session: InferenceSession, arrays: Mapping[str, NDArray[Any]], layout: str) -> str | None:
    """The message about images on which a run has failed, if they run in the other layout."""
    other, axes = ("nhwc", (1, -1)) if layout == "nchw" else ("nchw", (-1, 1))
    moved = {name: np.moveaxis(array, *axes) if array.ndim > 3 else array for name, array in arrays.items()}
    try:
        run_session(session, None, {name: np.ascontiguousarray(array) for name, array in moved.items()})
    except UnpoolError:
        return None
    return f"the model does not run on {layout.upper()} images, but on {other.upper()}. Add --layout {other}."


def _image_size(geometry: Overview, shapes: Mapping[str, Shape], layout: str) -> Shape:
    rank = len(geometry.smallest or ()) + 2
    image = next(shapes[name] for name, shape in geometry.shapes.items() if len(shape) == rank)
    return image[2:] if layout == "nchw" else image[1:-1]


def _too_small(least: Shape, image: Shape) -> str | None:
    if all(size >= low for size, low in zip(image, least, strict=True)):
        return None
    sizes = f"{format_shape(least)} on, got {format_shape(image)}"
    return f"the model runs from {sizes}. Enlarge it, nothing is resized here."


def _try_sizes(session: InferenceSession, arrays: Mapping[str, NDArray[Any]], layout: str) -> str | None:
    """The message about a larger size that runs, if the image does not even run as zeros."""
    axes = slice(2, None) if layout == "nchw" else slice(1, -1)
    image = next((array.shape[axes] for array in arrays.values() if array.ndim > 2), ())

    def runs(size: Shape) -> bool:
        feed = dict(arrays)
        for name, array in arrays.items():
            if array.ndim > 2 and array.shape[axes] == image:
                shape = list(array.shape)
                shape[axes] = size
                feed[name] = np.zeros(shape, array.dtype)
        try:
            run_session(session, None, feed)
        except UnpoolError:
            return False
        return True

    if not image or runs(image):
        return None
    end = time.monotonic() + SECONDS
    for larger in dict.fromkeys(tuple(size + -size % step for size in image) for step in STEPS):
        if time.monotonic() > end:
            return None
        if larger != image and runs(larger):
            sizes = f"{format_shape(larger)}, got {format_shape(image)}"
            return f"the model runs on {sizes}. Pad or enlarge it to that, nothing is resized here."
    return None
