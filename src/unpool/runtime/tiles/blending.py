"""Weighted averages of overlapping windows, for models that cannot be tiled exactly.

    result at a position = sum over windows of (weight * result) / sum over windows of (weight)

The arguments are those of MONAI's `sliding_window_inference`. Results near the ends of a window lack the context beyond
the end, so they depend on where windows start; `tiles.run` has no such error. Windows come band by band: after the last
window of a band, all rows before the next band are final, and memory holds only the rows that later windows reach.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from unpool.errors import ShapeError, UnpoolError
from unpool.onnxruntime.errors import run_session
from unpool.runtime.tiles.tiling import Slices, per_axis
from unpool.runtime.tiles.walk import Shape, image_inputs

if TYPE_CHECKING:
    from unpool.onnxruntime.session import InferenceSession

Array: TypeAlias = np.ndarray[Any, Any]

MODES = ("constant", "gaussian")
PADDING_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
"""Padding modes of MONAI, and those of NumPy."""

MIN_WEIGHT = 1e-3  # of a result in a window


def blend(  # noqa: PLR0913  the words of MONAI, by keyword only
    session: "InferenceSession",
    feed: Mapping[str, Any],
    roi_size: Sequence[int] | int,
    *,
    sw_batch_size: int = 1,
    overlap: float | Sequence[float] = 0.25,
    mode: str = "constant",
    sigma_scale: float | Sequence[float] = 0.125,
    padding_mode: str = "constant",
    cval: float = 0.0,
    outputs: Iterable[str] | None = None,
    layout: str = "NCHW",
    progress: Callable[[Sequence[Any]], Iterable[Any]] = iter,
) -> dict[str, Array]:
    """The outputs of a model, averaged over overlapping windows, for models that cannot be tiled exactly.

    Args:
        session: that runs the windows; it has to take batches of `sw_batch_size`, and images of `roi_size`.
        feed: every input by name; those of the highest rank are cut, at the same places, and have the same sizes.
        roi_size: elements of a window by spatial axis, or one number for all; 0 or less takes all of the image.
        sw_batch_size: maximum number of windows in one run.
        overlap: of neighbouring windows, as a share of the window, from 0 to below 1.
        mode: "constant" gives equal weight to all results of a window, "gaussian" less to those near its ends.
        sigma_scale: standard deviation of the Gaussian weights, as a share of the window.
        padding_mode: of an image smaller than a window: "constant", "reflect", "replicate" or "circular".
        cval: the value of "constant" padding.
        outputs: names of the outputs; by default all.
        layout: "NCHW" where inputs have channels before the spatial axes, or "NHWC".
        progress: wraps the list of runs, such as `tqdm.tqdm`.

    Returns:
        the outputs by name; where the model scales an image, they are scaled alike.

    Raises:
        ShapeError: an output is no image, or its size is not a whole share or multiple of the window's at its places.
        UnpoolError: an argument is out of its range.

    Source: MONAI, monai.inferers.sliding_window_inference.

    >>> from onnx import parser
    >>> from unpool import InferenceSession
    >>> session = InferenceSession(parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["" : 17]>
    ...     centred (float[1, 1, 4] x) => (float[1, 1, 4] y) {
    ...         m = ReduceMean <axes = [2]> (x)
    ...         y = Sub (x, m)
    ...     }'''))
    >>> blend(session, {"x": np.float32([[[0, 2, 4, 6, 8, 10]]])}, 4, overlap=0.5)["y"].tolist()
    [[[-3.0, -1.0, -1.0, 1.0, 1.0, 3.0]]]
    """
    names = [value.name for value in session.get_outputs()] if outputs is None else list(outputs)
    arrays = {name: np.asarray(array) for name, array in feed.items()}
    options = BlendOptions(roi_size, sw_batch_size, overlap, mode, sigma_scale, padding_mode, cval)
    windows = find_windows({name: array.shape for name, array in arrays.items()}, options, layout)
    accumulator, results = BlendAccumulator(windows, names), dict[str, Array]()
    for batch in progress(list(windows.batches(range(len(windows))))):
        rows = accumulator.add(batch, run_session(session, names, {**arrays, **windows.read(arrays, batch)}))
        for name, array in (rows or {}).items():
            bands = accumulator.averages[name].bands
            if name not in results:
                results[name] = np.empty(bands.shape, array.dtype)
            results[name][bands.window(batch.band)] = array
    return results


@dataclass(frozen=True)
class BlendOptions:
    """The arguments of `blend` that say how windows overlap and how their results are averaged."""

    roi_size: Sequence[int] | int
    sw_batch_size: int = 1
    overlap: float | Sequence[float] = 0.25
    mode: str = "constant"
    sigma_scale: float | Sequence[float] = 0.125
    padding_mode: str = "constant"
    cval: float = 0.0

    def __post_init__(self) -> None:
        for name, value, known in (("mode", self.mode, MODES), ("padding_mode", self.padding_mode, PADDING_MODES)):
            require(value in known, name, f"one of {', '.join(known)}", value)
        require(self.sw_batch_size > 0, "sw_batch_size", "1 or more", self.sw_batch_size)

    def per_axis(self, value: float | Sequence[float], count: int) -> list[float]:
        """A share by spatial axis."""
        return [float(share) for share in value] if isinstance(value, Sequence) else [float(value)] * count


@dataclass(frozen=True)
class WindowBatch:
    """Starts of windows of one band that the session runs together; the last batch of a requested band completes it."""

    band: int
    starts: tuple[Shape, ...]
    completes_band: bool


@dataclass(frozen=True)
class Windows:
    """All windows of a batch of images. Those of an image with the same start along its first axis form a band.

    `names` are the inputs that are cut, `axes` their spatial axes, and `sizes` those of one of the `images`.
    """

    names: tuple[str, ...]
    axes: tuple[int, ...]
    images: int
    sizes: Shape
    blending: BlendOptions

    @cached_property
    def roi(self) -> Shape:
        """Elements of a window by spatial axis."""
        count, roi_size = len(self.sizes), self.blending.roi_size
        lengths = per_axis(roi_size, count)
        require(len(lengths) == count, "roi_size", f"{count} sizes, one per spatial axis", roi_size)
        return tuple(length if length > 0 else size for length, size in zip(lengths, self.sizes, strict=True))

    @cached_property
    def starts(self) -> tuple[tuple[int, ...], ...]:
        """The starts of windows, by spatial axis: a step apart, and the last window ends with the image."""
        starts, overlaps = [], self.blending.per_axis(self.blending.overlap, len(self.roi))
        for size, length, overlap in zip(self.padded_sizes, self.roi, overlaps, strict=True):
            require(0 <= overlap < 1, "overlap", "0 or more and below 1", overlap)
            step = length if length == size else max(1, int(length * (1 - overlap)))
            starts.append((*range(0, size - length, step), size - length))
        return tuple(starts)

    def __len__(self) -> int:
        """Number of bands."""
        return self.images * len(self.starts[0])

    @property
    def padded_sizes(self) -> Shape:
        """The sizes of an image, padded where it is smaller than a window."""
        return tuple(max(pair) for pair in zip(self.sizes, self.roi, strict=True))

    def begin(self, band: int) -> int:
        """The start of a band along the first axis."""
        return self.starts[0][band % len(self.starts[0])]

    def end(self, band: int) -> int:
        """The start of the next band along the first axis: rows before it are in no later window."""
        following = band % len(self.starts[0]) + 1
        return self.starts[0][following] if following < len(self.starts[0]) else self.padded_sizes[0]

    def batches(self, bands: Collection[int]) -> Iterator[WindowBatch]:
        """The windows that reach into some requested bands, in the order of the bands, the last axis fastest."""
        count, size = len(self.starts[0]), self.blending.sw_batch_size
        for band in range(len(self)):
            begin, image = self.begin(band), band // count
            later = [other for other in bands if other >= band and other // count == image]
            if not any(self.begin(other) < begin + self.roi[0] for other in later):
                continue
            starts = list(product((begin,), *self.starts[1:]))
            for first in range(0, len(starts), size):
                is_last = first + size >= len(starts)
                yield WindowBatch(band, tuple(starts[first : first + size]), is_last and band in bands)

    def read(self, feed: Mapping[str, Any], batch: WindowBatch) -> dict[str, Array]:
        """The arrays for the inputs that are cut."""
        windows = {name: [self._window(feed[name], batch.band, start) for start in batch.starts] for name in self.names}
        return {name: np.concatenate(parts) for name, parts in windows.items()}

    def _window(self, source: Any, band: int, start: Shape) -> Array:
        """A window of an image, as a batch of one; half of its padding is before the image."""
        rank, image = len(source.shape), band // len(self.starts[0])
        window, widths = [slice(image, image + 1)] + [slice(None)] * (rank - 1), [(0, 0)] * rank
        for axis, first, length, size in zip(self.axes, start, self.roi, self.sizes, strict=True):
            missing = max(0, length - size)
            window[axis], widths[axis] = slice(first, first + length - missing), (missing // 2, missing - missing // 2)
        part: Array = np.asarray(source[tuple(window)])
        if not any(after for _, after in widths):
            return part
        mode: Any = PADDING_MODES[self.blending.padding_mode]
        options = {"constant_values": part.dtype.type(self.blending.cval)} if mode == "constant" else {}
        return np.pad(part, widths, mode, **options)


def find_windows(shapes: Mapping[str, Shape], blending: BlendOptions, layout: str) -> Windows:
    """The windows of inputs of these shapes; those of the highest rank are cut, and must have the same sizes."""
    tiled = image_inputs(shapes, layout, None)
    axes = tuple(axis for axis, spatial in enumerate(next(iter(tiled.values()))) if spatial is not None)
    sizes, images = {tuple(shapes[name][axis] for axis in axes) for name in tiled}, {shapes[name][0] for name in tiled}
    for title, values in (("inputs", sizes), ("batches", images)):
        if len(values) > 1:
            raise ShapeError(f"tiles: expected {title} of one size, got {sorted(values)}. Blend them one by one.")
    windows = Windows(tuple(tiled), axes, images.pop(), sizes.pop(), blending)
    require(len(windows) > 0, "tiles", "images that have elements", [windows.images, *windows.sizes])
    return windows


def window_weights(roi: Sequence[int], mode: str, sigma_scale: Sequence[float]) -> Array:
    """The weights of the results of a window, float32.

    "gaussian": exp(-(x - (n - 1) / 2)² / (2 (sigma_scale n)²)) along each axis of n elements, and at least 0.001.
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
        raise UnpoolError(f"{name}: expected {expected}; got {got!r}.")


class Bands:
    """The places of bands in one output, from its `result` for some windows, which must be an image of floats."""

    def __init__(self, windows: Windows, name: str, result: Array) -> None:
        if result.ndim <= max(windows.axes) or result.dtype.kind != "f":
            raise _no_image(name, result)
        self.windows, self.name, self.sample_shape, self.dtype = windows, name, result.shape[1:], result.dtype
        self.sizes = tuple(result.shape[axis] for axis in windows.axes)
        self.rates = [size / length for size, length in zip(self.sizes, windows.roi, strict=True)]
        self.padded_sizes = tuple(int(size * rate) for size, rate in zip(windows.padded_sizes, self.rates, strict=True))
        self.image_spans = []  # the parts of the padded output that belong to the image
        for size, padded, length in zip(windows.sizes, windows.padded_sizes, self.padded_sizes, strict=True):
            begin = (padded - size) // 2
            self.image_spans.append(slice(round(begin * length / padded), round((begin + size) * length / padded)))

    @property
    def shape(self) -> Shape:
        """Of the output for the whole batch, without padding."""
        return self._with_sizes([span.stop - span.start for span in self.image_spans], self.windows.images)

    @property
    def buffer_shape(self) -> Shape:
        """Of the sums of a band: the height of a window, and the padded width of the image."""
        return self._with_sizes([self.sizes[0], *self.padded_sizes[1:]])

    @property
    def piece(self) -> Shape:
        """Of the final rows of a band, cut to the width of a window; the maximum along each axis."""
        spans, rows = zip(self.sizes, self.image_spans, strict=True), self.final_rows(0)
        _, *lengths = (min(size, span.stop - span.start) for size, span in spans)
        return self._with_sizes([max(1, rows.stop - rows.start), *lengths])

    @property
    def bytes(self) -> int:
        """Of memory: the sums of a band, and their averages."""
        return 2 * prod(self.buffer_shape) * int(self.dtype.itemsize)

    def row(self, position: int) -> int:
        """The row of the padded output at a position along the first axis of the image."""
        return int(position * self.rates[0])

    def final_rows(self, band: int) -> slice:
        """The rows of the padded output that are final after a band."""
        rows = (self.row(self.windows.begin(band)), self.row(self.windows.end(band)))
        first, stop = (min(max(row, self.image_spans[0].start), self.image_spans[0].stop) for row in rows)
        return slice(first, stop)

    def window(self, band: int) -> Slices:
        """The window of the output that the final rows of a band fill."""
        image = band // len(self.windows.starts[0])
        slices = [slice(image, image + 1), *(slice(0, size) for size in self.sample_shape)]
        spans = [self.final_rows(band), *self.image_spans[1:]]
        for axis, span, image_span in zip(self.windows.axes, spans, self.image_spans, strict=True):
            slices[axis] = slice(span.start - image_span.start, span.stop - image_span.start)
        return tuple(slices)

    def _with_sizes(self, sizes: Sequence[int], images: int = 1) -> Shape:
        along = dict(zip(self.windows.axes, sizes, strict=True))
        return (images, *(along.get(axis, size) for axis, size in enumerate(self.sample_shape, 1)))


class BandAverage:
    """The averages of one output; only those of one band are in memory."""

    def __init__(self, bands: Bands) -> None:
        axes, options, roi = bands.windows.axes, bands.windows.blending, bands.windows.roi
        self.bands, self._before = bands, (slice(None),) * (axes[0] - 1)  # axes between the batch and the image's
        self._sums = np.zeros(bands.buffer_shape, bands.dtype)
        ones = (1,) * (self._sums.ndim - axes[-1] - 1)  # for axes after the image's
        self._totals = np.zeros([*(bands.buffer_shape[axis] for axis in axes), *ones], bands.dtype)
        weights = window_weights(roi, options.mode, options.per_axis(options.sigma_scale, len(roi)))
        if bands.sizes != weights.shape:  # the weights of the nearest elements of the window
            pairs = zip(bands.sizes, roi, strict=True)
            places = [
                ((np.arange(size) + 0.5) * length / size).astype(int).clip(max=length - 1) for size, length in pairs
            ]
            weights = weights[np.ix_(*places)]
        self._weights, self._band = weights.astype(bands.dtype).reshape(*weights.shape, *ones), -1

    def add(self, batch: WindowBatch, results: Array) -> None:
        """Add the results of some windows, which must have the shape of earlier ones."""
        bands = self.bands
        if results.shape != (len(batch.starts), *bands.sample_shape):
            raise _no_image(bands.name, results)
        self._begin(batch.band)
        for start, result in zip(batch.starts, results, strict=True):
            begins = (0, *(int(first * rate) for first, rate in zip(start[1:], bands.rates[1:], strict=True)))
            window = tuple(slice(first, first + size) for first, size in zip(begins, bands.sizes, strict=True))
            self._sums[0][(*self._before, *window)] += result * self._weights
            self._totals[window] += self._weights

    def final(self) -> Array:
        """The averages of the rows that no later window reaches, after the last windows of a band."""
        bands = self.bands
        rows, first = bands.final_rows(self._band), bands.row(bands.windows.begin(self._band))
        spans = (slice(rows.start - first, rows.stop - first), *bands.image_spans[1:])
        averages: Array = self._sums[(slice(None), *self._before, *spans)] / self._totals[spans]
        return averages

    def _begin(self, band: int) -> None:
        """Drop final rows, and make room for a band."""
        if self._band == band:
            return
        bands, remaining = self.bands, 0
        rows, windows = bands.sizes[0], bands.windows
        if self._band == band - 1 and band % len(windows.starts[0]) > 0:
            remaining = max(0, rows - bands.row(windows.begin(band)) + bands.row(windows.begin(band - 1)))
        for buffer, axis in ((self._sums, bands.windows.axes[0]), (self._totals, 0)):
            along = np.moveaxis(buffer, axis, 0)
            along[:remaining] = along[rows - remaining :].copy()
            along[remaining:] = 0
        self._band = band


class BlendAccumulator:
    """The averages of several outputs, to which the results of windows are added."""

    def __init__(self, windows: Windows, names: Sequence[str]) -> None:
        self._windows, self._names = windows, names
        self.averages: dict[str, BandAverage] = {}

    def add(self, batch: WindowBatch, results: Sequence[Array]) -> Mapping[str, Array] | None:
        """The averages of the final rows of every output, where a batch completes a band; else None."""
        for name, array in zip(self._names, results, strict=True):
            if name not in self.averages:
                self.averages[name] = BandAverage(Bands(self._windows, name, array))
            self.averages[name].add(batch, array)
        return {name: self.averages[name].final() for name in self._names} if batch.completes_band else None


def _no_image(name: str, result: Array) -> ShapeError:
    return ShapeError(
        f"output {name!r}: expected floats for every position of the windows, got {result.dtype} of shape "
        f"{list(result.shape)}. Choose other outputs."
    )
