"""Overlapping windows whose results are averaged, for models that cannot be tiled exactly.

    result at a position = sum over windows of (weight * result) / sum over windows of (weight)

The words and their meaning are those of MONAI's `sliding_window_inference`. Results near the ends of windows were made
without what is behind the end, so they depend on where windows begin; `tiles.run` has no such error.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from unpool.errors import ShapeError, UnpoolError
from unpool.runtime.tiles.images import image_inputs

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession

Array: TypeAlias = np.ndarray[Any, Any]
Window: TypeAlias = tuple[slice, ...]
Place: TypeAlias = tuple[int, tuple[int, ...]]
"""Which image of the batch, and where a window of it begins."""

MODES = ("constant", "gaussian")
PADDING_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
"""MONAI's words for what is around an image that is smaller than a window, and NumPy's."""

LEAST_WEIGHT = 1e-3


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
        sw_batch_size: windows in one run.
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
    tiled = image_inputs({name: array.shape for name, array in arrays.items()}, layout, None)
    axes = [axis for axis, spatial in enumerate(next(iter(tiled.values()))) if spatial is not None]
    sizes = _sizes(arrays, tiled, axes)
    roi = _roi(roi_size, sizes)
    _require(mode in MODES, "mode", f"one of {', '.join(MODES)}", mode)
    _require(padding_mode in PADDING_MODES, "padding_mode", f"one of {', '.join(PADDING_MODES)}", padding_mode)
    _require(sw_batch_size > 0, "sw_batch_size", "1 or more", sw_batch_size)
    padded = {name: _padded(arrays[name], axes, roi, padding_mode, cval) for name in tiled}
    around = [max(pair) for pair in zip(sizes, roi, strict=True)]
    starts = list(window_starts(around, roi, _each(overlap, len(roi))))
    images = range(next(iter(padded.values())).shape[0])
    places = list(product(images, starts))
    runs = [places[first : first + sw_batch_size] for first in range(0, len(places), sw_batch_size)]
    sums = _Sums(axes, around, importance(roi, mode, _each(sigma_scale, len(roi))), len(images))
    for run in steps(runs):
        read = {name: np.concatenate([_part(padded[name], axes, place, roi) for place in run]) for name in tiled}
        made = session.run(names, {**arrays, **read})
        for name, array in zip(names, made, strict=True):
            sums.add(name, run, array)
    return {name: sums.mean(name, sizes) for name in names}


def window_starts(sizes: Sequence[int], roi: Sequence[int], overlap: Sequence[float]) -> Iterator[tuple[int, ...]]:
    """Where windows begin, the last axis fastest: a step apart, the last one at the end of the image.

    >>> list(window_starts([10], [4], [0.25]))
    [(0,), (3,), (6,)]
    """
    return product(*(_starts(*axis) for axis in zip(sizes, roi, overlap, strict=True)))


def _starts(size: int, length: int, overlap: float) -> list[int]:
    _require(0 <= overlap < 1, "overlap", "0 or more and below 1", overlap)
    step = length if length == size else max(1, int(length * (1 - overlap)))
    count = -(-(size - length) // step) + 1
    return [min(place * step, size - length) for place in range(count)]


def importance(roi: Sequence[int], mode: str, sigma_scale: Sequence[float]) -> Array:
    """The weights of the results of a window, float32.

    "gaussian": exp(-(x - (n - 1) / 2)² / (2 (sigma_scale n)²)) along each axis of n elements, and at least 0.001.

    >>> importance([3], "gaussian", [0.5]).round(3).tolist()
    [0.8009999990463257, 1.0, 0.8009999990463257]
    """
    made = np.ones(tuple(roi), np.float32)
    if mode == "gaussian":
        for axis, (length, share) in enumerate(zip(roi, sigma_scale, strict=True)):
            place = np.arange(length, dtype=np.float32) - np.float32((length - 1) / 2)
            along = np.exp(place**2 / np.float32(-2 * (share * length) ** 2))
            made *= along.reshape([-1 if other == axis else 1 for other in range(len(roi))])
        made = np.maximum(made, np.float32(LEAST_WEIGHT))
    return made


class _Sums:
    """Weighted sums of the results of windows, and the sums of the weights.

    Args:
        axes: the spatial axes.
        sizes: of the image, with what was put around it.
        weights: of the results of a window, for outputs of its size.
        count: of images.
    """

    def __init__(self, axes: Sequence[int], sizes: Sequence[int], weights: Array, count: int) -> None:
        self._axes, self._sizes, self._weights, self._count = axes, sizes, weights, count
        self._sums: dict[str, Array] = {}
        self._totals: dict[str, Array] = {}

    def add(self, name: str, run: Sequence[Place], made: Array) -> None:
        """Add the results of windows."""
        if made.ndim <= max(self._axes) or len(made) != len(run) or made.dtype.kind != "f":
            raise ShapeError(
                f"output {name!r}: expected floats for every position of {len(run)} windows, got {made.dtype} of shape "
                f"{list(made.shape)}. Choose other outputs."
            )
        sizes = [made.shape[axis] for axis in self._axes]
        weights = _resized(self._weights, sizes).astype(made.dtype)
        if name not in self._sums:
            whole = [int(size * rate) for size, rate in zip(self._sizes, self._rates(sizes), strict=True)]
            shape = list(made.shape)
            for axis, size in zip(self._axes, whole, strict=True):
                shape[axis] = size
            self._sums[name] = np.zeros((self._count, *shape[1:]), made.dtype)
            self._totals[name] = np.zeros(whole, made.dtype)
        spread = weights.reshape([made.shape[axis] if axis in self._axes else 1 for axis in range(1, made.ndim)])
        for (image, start), part in zip(run, made, strict=True):
            begins = [int(first * rate) for first, rate in zip(start, self._rates(sizes), strict=True)]
            window = tuple(slice(first, first + size) for first, size in zip(begins, sizes, strict=True))
            self._sums[name][image][_at(self._axes, window, made.ndim)[1:]] += part * spread
            if image == 0:
                self._totals[name][window] += weights

    def mean(self, name: str, sizes: Sequence[int]) -> Array:
        """The averages for the image of these sizes, without what was put around it."""
        found, total = self._sums[name], self._totals[name]
        found /= total.reshape([found.shape[axis] if axis in self._axes else 1 for axis in range(found.ndim)])
        kept = []
        for size, whole, made in zip(sizes, self._sizes, total.shape, strict=True):
            begin = (whole - size) // 2
            kept.append(slice(round(begin * made / whole), round((begin + size) * made / whole)))
        return found[_at(self._axes, kept, found.ndim)]

    def _rates(self, sizes: Sequence[int]) -> list[float]:
        """Elements of the output per element of the image."""
        return [size / length for size, length in zip(sizes, self._weights.shape, strict=True)]


def _sizes(arrays: Mapping[str, Array], tiled: Iterable[str], axes: Sequence[int]) -> list[int]:
    """The sizes that all inputs have which are cut."""
    found = {tuple(arrays[name].shape[axis] for axis in axes) for name in tiled}
    if len(found) > 1:
        raise ShapeError(f"tiles: expected inputs of one size, got {sorted(found)}. Blend them one by one.")
    return list(found.pop())


def _each(value: float | Sequence[float], count: int) -> list[float]:
    return [float(one) for one in value] if isinstance(value, Sequence) else [float(value)] * count


def _roi(size: Sequence[int] | int, sizes: Sequence[int]) -> list[int]:
    given = [size] * len(sizes) if isinstance(size, int) else list(size)
    _require(len(given) == len(sizes), "roi_size", f"{len(sizes)} sizes, one per spatial axis", size)
    return [length if length > 0 else whole for length, whole in zip(given, sizes, strict=True)]


def _padded(array: Array, axes: Sequence[int], roi: Sequence[int], mode: str, cval: float) -> Array:
    """The image, made as large as a window, half of it before."""
    widths = [(0, 0)] * array.ndim
    for axis, length in zip(axes, roi, strict=True):
        missing = max(0, length - array.shape[axis])
        widths[axis] = (missing // 2, missing - missing // 2)
    if not any(after for _, after in widths):
        return array
    if mode == "constant":
        return np.pad(array, widths, constant_values=array.dtype.type(cval))
    made: Array = np.pad(array, widths, mode=PADDING_MODES[mode])  # type: ignore[call-overload]
    return made


def _part(array: Array, axes: Sequence[int], place: Place, roi: Sequence[int]) -> Array:
    """A window of an image, as a batch of one."""
    image, start = place
    window = [slice(first, first + length) for first, length in zip(start, roi, strict=True)]
    return array[image : image + 1][_at(axes, window, array.ndim)]


def _at(axes: Sequence[int], window: Sequence[slice], rank: int) -> Window:
    spans = dict(zip(axes, window, strict=True))
    return tuple(spans.get(axis, slice(None)) for axis in range(rank))


def _resized(weights: Array, sizes: Sequence[int]) -> Array:
    """The weights for outputs of another size than the window: each that of the nearest element."""
    places = [
        np.minimum(((np.arange(size) + 0.5) * length / size).astype(int), length - 1)
        for size, length in zip(sizes, weights.shape, strict=True)
    ]
    return weights if tuple(sizes) == weights.shape else weights[np.ix_(*places)]


def _require(holds: bool, name: str, expected: str, got: Any) -> None:
    if not holds:
        raise UnpoolError(f"{name}: expected {expected}; got {got!r}. Correct it.")
