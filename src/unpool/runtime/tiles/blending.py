"""Overlapping windows whose results are averaged, for models that cannot be tiled exactly.

The words and their meaning are those of MONAI's `sliding_window_inference`. Results near the ends of windows were made
without what is behind the end, so they depend on where windows begin; `tiles.run` has no such error.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from unpool.errors import ShapeError
from unpool.runtime.tiles.walk import Shape
from unpool.runtime.tiles.windows import Array, Blending, Run, Slices, Windows, windows_of

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession


class Bands:
    """Where the results of bands go in one output.

    Args:
        windows: of the images.
        name: of the output, for errors.
        made: what a run of some windows gave of it.

    Raises:
        ShapeError: it is no image of floats.
    """

    def __init__(self, windows: Windows, name: str, made: Array) -> None:
        if made.ndim <= max(windows.axes) or made.dtype.kind != "f":
            raise _no_image(name, made)
        self.windows, self.name, self.part, self.dtype = windows, name, made.shape[1:], made.dtype
        self.sizes = tuple(made.shape[axis] for axis in windows.axes)
        self.whole = tuple(int(size * rate) for size, rate in zip(windows.around, self._rates(), strict=True))
        self.kept = tuple(map(self._kept_span, range(len(self.sizes))))

    @property
    def shape(self) -> Shape:
        """Of the output for the whole batch, without what was put around images."""
        return self._spatial([span.stop - span.start for span in self.kept], self.windows.images)

    @property
    def held(self) -> Shape:
        """Of the sums of a band: as high as a window, as wide as the image with what is around it."""
        return self._spatial([self.sizes[0], *self.whole[1:]])

    @property
    def piece(self) -> Shape:
        """Of what a band gives, cut to the width of a window; at most along each axis."""
        lengths = [min(size, span.stop - span.start) for size, span in zip(self.sizes, self.kept, strict=True)]
        rows = self.final(0)
        return self._spatial([max(1, rows.stop - rows.start), *lengths[1:]])

    @property
    def bytes(self) -> int:
        """Of memory: the sums of a band, and their averages."""
        return 2 * prod(self.held) * int(self.dtype.itemsize)

    def begins(self, start: Shape) -> tuple[int, ...]:
        """Where the results of a window begin in the output, with what is around the image."""
        return tuple(int(first * rate) for first, rate in zip(start, self._rates(), strict=True))

    def row(self, place: int) -> int:
        """The row of the output at a place along the first axis of the image."""
        return int(place * self._rates()[0])

    def final(self, band: int) -> slice:
        """The rows that are final behind a band, as the output counts them with what is around the image."""
        rows = (self.row(self.windows.begin(band)), self.row(self.windows.end(band)))
        first, stop = (min(max(row, self.kept[0].start), self.kept[0].stop) for row in rows)
        return slice(first, stop)

    def window(self, band: int) -> Slices:
        """Where the final rows of a band go."""
        image = band // len(self.windows.starts[0])
        found = [slice(image, image + 1), *(slice(0, size) for size in self.part)]
        spans = [self.final(band), *self.kept[1:]]
        for axis, span, own in zip(self.windows.axes, spans, self.kept, strict=True):
            found[axis] = slice(span.start - own.start, span.stop - own.start)
        return tuple(found)

    def _spatial(self, sizes: Sequence[int], images: int = 1) -> Shape:
        """A shape of the output with these sizes along the axes of the image."""
        along = dict(zip(self.windows.axes, sizes, strict=True))
        return (images, *(along.get(axis, size) for axis, size in enumerate(self.part, 1)))

    def _rates(self) -> list[float]:
        """Elements of the output per element of the image."""
        return [size / length for size, length in zip(self.sizes, self.windows.roi, strict=True)]

    def _kept_span(self, place: int) -> slice:
        """What belongs to the image of the output along an axis, without what was put around the image."""
        size, around, made = self.windows.sizes[place], self.windows.around[place], self.whole[place]
        begin = (around - size) // 2
        return slice(round(begin * made / around), round((begin + size) * made / around))


class Averages:
    """The averages of one output, of which those of one band are held."""

    def __init__(self, bands: Bands) -> None:
        self._bands, self._axes = bands, bands.windows.axes
        self._sums = np.zeros(bands.held, bands.dtype)
        self._totals = np.zeros([bands.held[axis] for axis in self._axes], bands.dtype)
        self._weights = _resized(bands.windows.weights, bands.sizes).astype(bands.dtype)
        self._band: int | None = None

    def add(self, run: Run, made: Array) -> None:
        """Add the results of a run.

        Raises:
            ShapeError: they have another shape than those of the runs before.
        """
        if made.shape != (len(run.starts), *self._bands.part):
            raise _no_image(self._bands.name, made)
        self._begin(run.band)
        spread = self._weights.reshape(self._along(made.shape)[1:])
        for start, part in zip(run.starts, made, strict=True):
            begins = [0, *self._bands.begins(start)[1:]]
            window = tuple(slice(first, first + size) for first, size in zip(begins, self._bands.sizes, strict=True))
            self._sums[0][_at(self._axes, window, made.ndim)[1:]] += part * spread
            self._totals[window] += self._weights

    def final(self) -> Array:
        """The averages of the rows that no later window reaches, behind the last run of a band."""
        band = self._band or 0
        rows, first = self._bands.final(band), self._bands.row(self._bands.windows.begin(band))
        spans = (slice(rows.start - first, rows.stop - first), *self._bands.kept[1:])
        sums, totals = self._sums[_at(self._axes, spans, self._sums.ndim)], self._totals[spans]
        averages: Array = sums / totals.reshape(self._along(sums.shape))
        return averages

    def _begin(self, band: int) -> None:
        """Forget what is final, and make room for a band."""
        if self._band == band:
            return
        windows = self._bands.windows
        is_next = self._band == band - 1 and band % len(windows.starts[0]) > 0
        rows = self._bands.sizes[0]
        done = self._bands.row(windows.begin(band)) - self._bands.row(windows.begin(band - 1)) if is_next else rows
        left = max(0, rows - done)
        for held, axis in ((self._sums, self._axes[0]), (self._totals, 0)):
            along = np.moveaxis(held, axis, 0)
            along[:left] = along[rows - left :].copy()
            along[left:] = 0
        self._band = band

    def _along(self, shape: Sequence[int]) -> Shape:
        """A shape in which the axes that are none of the image have one element."""
        return tuple(size if axis in self._axes else 1 for axis, size in enumerate(shape))


class Blended:
    """The averages of several outputs; what a run of windows gives is added to all of them."""

    def __init__(self, windows: Windows, names: Sequence[str]) -> None:
        self._windows, self._names = windows, names
        self.bands: dict[str, Bands] = {}
        self._averages: dict[str, Averages] = {}

    def add(self, run: Run, made: Sequence[Array]) -> Mapping[str, Array] | None:
        """The averages of the final rows of every output, where a run makes them final; else None.

        Raises:
            ShapeError: an output is no image of floats.
        """
        for name, array in zip(self._names, made, strict=True):
            if name not in self.bands:
                self.bands[name] = Bands(self._windows, name, array)
                self._averages[name] = Averages(self.bands[name])
            self._averages[name].add(run, array)
        return {name: self._averages[name].final() for name in self._names} if run.makes_final else None


def _at(axes: Sequence[int], window: Sequence[slice], rank: int) -> Slices:
    spans = dict(zip(axes, window, strict=True))
    return tuple(spans.get(axis, slice(None)) for axis in range(rank))


def _resized(weights: Array, sizes: Sequence[int]) -> Array:
    """The weights for outputs of another size than the window: each that of the nearest element."""
    places = [
        np.minimum(((np.arange(size) + 0.5) * length / size).astype(int), length - 1)
        for size, length in zip(sizes, weights.shape, strict=True)
    ]
    return weights if tuple(sizes) == weights.shape else weights[np.ix_(*places)]


def _no_image(name: str, made: Array) -> ShapeError:
    return ShapeError(
        f"output {name!r}: expected floats for every position of the windows, got {made.dtype} of shape "
        f"{list(made.shape)}. Choose other outputs."
    )


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
    steps: Callable[[Sequence[Any]], Iterable[Any]] = iter,
) -> dict[str, Array]:
    """The outputs of a model, averaged over overlapping windows: for models of which no exact tiles can be had.

    Args:
        session: that runs the windows; it has to take batches of `sw_batch_size`, and images of `roi_size`.
        feed: every input by name; those of the highest rank are cut, at the same places, and have the same sizes.
        roi_size: elements of a window by spatial axis, or one number for all; 0 or less takes all of the image.
        sw_batch_size: windows in one run, at most.
        overlap: of windows that lie side by side, as a share of the window, from 0 to below 1.
        mode: "constant" gives equal weight to all results of a window, "gaussian" less to those near its ends.
        sigma_scale: standard deviation of the Gaussian weights, as a share of the window.
        padding_mode: what is around an image smaller than a window: "constant", "reflect", "replicate" or "circular".
        cval: the value around it for "constant".
        outputs: names of the outputs that are wanted; by default all.
        layout: "NCHW" where inputs have channels before the spatial axes, or "NHWC".
        steps: goes through the runs, and may show how far it is.

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
    blending = Blending(roi_size, sw_batch_size, overlap, mode, sigma_scale, padding_mode, cval)
    windows = windows_of({name: array.shape for name, array in arrays.items()}, blending, layout)
    blended, outputs = Blended(windows, names), dict[str, Array]()
    for run in steps(list(windows.runs(range(len(windows))))):
        made = session.run(names, {**arrays, **windows.read(arrays, run)})
        for name, part in (blended.add(run, made) or {}).items():
            bands = blended.bands[name]
            if name not in outputs:
                outputs[name] = np.empty(bands.shape, part.dtype)
            outputs[name][bands.window(run.band)] = part
    return outputs
