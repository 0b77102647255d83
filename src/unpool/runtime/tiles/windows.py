"""Overlapping windows of images: their starts, their input, and the weights of their results.

The arguments are those of MONAI's `sliding_window_inference`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from unpool.errors import ShapeError, UnpoolError
from unpool.runtime.tiles.walk import Shape, image_inputs

Array: TypeAlias = np.ndarray[Any, Any]
Slices: TypeAlias = tuple[slice, ...]

MODES = ("constant", "gaussian")
PADDING_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
"""Padding modes of MONAI, and those of NumPy."""

MIN_WEIGHT = 1e-3


@dataclass(frozen=True)
class BlendOptions:
    """The arguments of `blend` that say how windows overlap and how their results are averaged.

    Raises:
        UnpoolError: one is out of its range.
    """

    roi_size: Sequence[int] | int
    sw_batch_size: int = 1
    overlap: float | Sequence[float] = 0.25
    mode: str = "constant"
    sigma_scale: float | Sequence[float] = 0.125
    padding_mode: str = "constant"
    cval: float = 0.0

    def __post_init__(self) -> None:
        require(self.mode in MODES, "mode", f"one of {', '.join(MODES)}", self.mode)
        known = ", ".join(PADDING_MODES)
        require(self.padding_mode in PADDING_MODES, "padding_mode", f"one of {known}", self.padding_mode)
        require(self.sw_batch_size > 0, "sw_batch_size", "1 or more", self.sw_batch_size)

    def per_axis(self, value: float | Sequence[float], count: int) -> list[float]:
        """A share by spatial axis."""
        return [float(share) for share in value] if isinstance(value, Sequence) else [float(value)] * count

    def roi(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Elements of a window by spatial axis of an image of these sizes."""
        lengths = [self.roi_size] * len(sizes) if isinstance(self.roi_size, int) else list(self.roi_size)
        require(len(lengths) == len(sizes), "roi_size", f"{len(sizes)} sizes, one per spatial axis", self.roi_size)
        return tuple(length if length > 0 else size for length, size in zip(lengths, sizes, strict=True))


@dataclass(frozen=True)
class WindowBatch:
    """Windows of one band that the session runs together.

    Attributes:
        band: its number.
        starts: of the windows.
        completes_band: whether it is the last one of a requested band.
    """

    band: int
    starts: tuple[Shape, ...]
    completes_band: bool


@dataclass(frozen=True)
class Windows:
    """All windows of a batch of images. Those of an image with the same start along its first axis form a band.

    Attributes:
        names: of the inputs that are cut.
        axes: the spatial axes.
        images: number of images in the batch.
        sizes: of an image.
        blending: the overlap and the weights.
    """

    names: tuple[str, ...]
    axes: tuple[int, ...]
    images: int
    sizes: Shape
    blending: BlendOptions

    @cached_property
    def roi(self) -> Shape:
        """Elements of a window by spatial axis."""
        return self.blending.roi(self.sizes)

    @cached_property
    def starts(self) -> tuple[tuple[int, ...], ...]:
        """The starts of windows, by spatial axis."""
        overlap = self.blending.per_axis(self.blending.overlap, len(self.roi))
        return tuple(tuple(window_starts(*axis)) for axis in zip(self.padded_sizes, self.roi, overlap, strict=True))

    def __len__(self) -> int:
        """Number of bands."""
        return self.images * len(self.starts[0])

    @property
    def padded_sizes(self) -> Shape:
        """The sizes of an image, padded where it is smaller than a window."""
        return tuple(max(pair) for pair in zip(self.sizes, self.roi, strict=True))

    @cached_property
    def weights(self) -> Array:
        """Of the results of a window, float32."""
        shares = self.blending.per_axis(self.blending.sigma_scale, len(self.roi))
        return window_weights(self.roi, self.blending.mode, shares)

    def begin(self, band: int) -> int:
        """The start of a band along the first axis."""
        return self.starts[0][band % len(self.starts[0])]

    def end(self, band: int) -> int:
        """The start of the next band along the first axis: rows before it are in no later window."""
        following = band % len(self.starts[0]) + 1
        return self.starts[0][following] if following < len(self.starts[0]) else self.padded_sizes[0]

    def batches(self, bands: Collection[int]) -> Iterator[WindowBatch]:
        """The windows that reach into some bands, in the order of the bands, the last axis fastest.

        Args:
            bands: whose results are requested.
        """
        size = self.blending.sw_batch_size
        for band in range(len(self)):
            if not any(self._reaches(band, other) for other in bands):
                continue
            starts = list(product((self.begin(band),), *self.starts[1:]))
            for first in range(0, len(starts), size):
                is_last = first + size >= len(starts)
                yield WindowBatch(band, tuple(starts[first : first + size]), is_last and band in bands)

    def read(self, feed: Mapping[str, Any], batch: WindowBatch) -> dict[str, Array]:
        """The arrays for the inputs that are cut."""
        return {name: np.concatenate([self._part(feed[name], batch.band, start) for start in batch.starts])
                for name in self.names}  # fmt: skip

    def _reaches(self, band: int, other: int) -> bool:
        """True if windows of a band contribute to the rows of another band."""
        count = len(self.starts[0])
        is_same_image = band // count == other // count
        return is_same_image and band <= other and self.begin(band) + self.roi[0] > self.begin(other)

    def _part(self, source: Any, band: int, start: Shape) -> Array:
        """A window of an image, as a batch of one."""
        rank, image = len(source.shape), band // len(self.starts[0])
        window, widths = [slice(image, image + 1)] + [slice(None)] * (rank - 1), [(0, 0)] * rank
        for axis, first, length, size in zip(self.axes, start, self.roi, self.sizes, strict=True):
            missing = max(0, length - size)
            window[axis], widths[axis] = slice(first, first + length - missing), (missing // 2, missing - missing // 2)
        return self._padded(np.asarray(source[tuple(window)]), widths)

    def _padded(self, part: Array, widths: Sequence[tuple[int, int]]) -> Array:
        """An image padded to the size of the window, half of it before."""
        if not any(after for _, after in widths):
            return part
        mode = PADDING_MODES[self.blending.padding_mode]
        if mode == "constant":
            return np.pad(part, widths, constant_values=part.dtype.type(self.blending.cval))
        padded: Array = np.pad(part, widths, mode=mode)  # type: ignore[call-overload]
        return padded


def find_windows(shapes: Mapping[str, Shape], blending: BlendOptions, layout: str) -> Windows:
    """The windows of inputs of these shapes; those of the highest rank are cut.

    Raises:
        ShapeError: their sizes differ.
        UnpoolError: none of them is an image, or the windows do not fit it.
    """
    tiled = image_inputs(shapes, layout, None)
    axes = tuple(axis for axis, spatial in enumerate(next(iter(tiled.values()))) if spatial is not None)
    sizes = {tuple(shapes[name][axis] for axis in axes) for name in tiled}
    if len(sizes) > 1:
        raise ShapeError(f"tiles: expected inputs of one size, got {sorted(sizes)}. Blend them one by one.")
    images = {shapes[name][0] for name in tiled}
    if len(images) > 1:
        raise ShapeError(f"tiles: expected batches of one size, got {sorted(images)}. Blend them one by one.")
    windows = Windows(tuple(tiled), axes, images.pop(), sizes.pop(), blending)
    require(len(windows) > 0, "tiles", "images that have elements", [windows.images, *windows.sizes])
    return windows


def window_starts(size: int, length: int, overlap: float) -> Iterator[int]:
    """The starts of windows along one axis: a step apart, and the last window ends with the image.

    >>> list(window_starts(10, 4, 0.25))
    [0, 3, 6]
    """
    require(0 <= overlap < 1, "overlap", "0 or more and below 1", overlap)
    step = length if length == size else max(1, int(length * (1 - overlap)))
    count = -(-(size - length) // step) + 1
    return (min(number * step, size - length) for number in range(count))


def window_weights(roi: Sequence[int], mode: str, sigma_scale: Sequence[float]) -> Array:
    """The weights of the results of a window, float32.

    "gaussian": exp(-(x - (n - 1) / 2)² / (2 (sigma_scale n)²)) along each axis of n elements, and at least 0.001.

    >>> window_weights([3], "gaussian", [0.5]).round(3).tolist()
    [0.8009999990463257, 1.0, 0.8009999990463257]
    """
    weights = np.ones(tuple(roi), np.float32)
    if mode == "gaussian":
        for axis, (length, share) in enumerate(zip(roi, sigma_scale, strict=True)):
            position = np.arange(length, dtype=np.float32) - np.float32((length - 1) / 2)
            along = np.exp(position**2 / np.float32(-2 * (share * length) ** 2))
            weights *= along.reshape([-1 if other == axis else 1 for other in range(len(roi))])
        weights = np.maximum(weights, np.float32(MIN_WEIGHT))
    return weights


def require(holds: bool, name: str, expected: str, got: Any) -> None:
    """Refuse an argument that is out of its range."""
    if not holds:
        raise UnpoolError(f"{name}: expected {expected}; got {got!r}. Pass a value in that range.")
