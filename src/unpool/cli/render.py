"""Outputs of one run -> the content of one file: arrays, an image, a class mask or an overlay."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from unpool.cli.errors import UsageError
from unpool.cli.outputs import ARRAY_FORMATS, safe_names, writable, write_arrays
from unpool.cli.run_config import RunConfig
from unpool.display import format_shape
from unpool.errors import ShapeError
from unpool.images import overlay
from unpool.images.formats import BY_NAME, Content
from unpool.images.nifti import write_nifti
from unpool.images.overlay import ClassView, Colour, Legend, Rows, rows_of
from unpool.images.pixels import Backdrop, Picture, backdrop
from unpool.images.raster import Sheet, sheet_of, write_pages, write_planes, write_rows
from unpool.runtime.streams.output_transform import ScoreFormat, class_type, require_floats
from unpool.runtime.streams.runner import OutputFile

LARGEST_CLASS = 65535
BEST = ScoreFormat(argmax=True)

ArraySpecs: TypeAlias = Mapping[str, tuple[tuple[int, ...], str]]  # shape and type of each array in a file
Areas: TypeAlias = Mapping[str, float]  # share of the area, 0 to 1, of every class that occurs
_log = logging.getLogger("unpool.cli")


def specs_of(arrays: Mapping[str, Any]) -> ArraySpecs:
    """Shape and type of each array."""
    return {name: (array.shape, str(array.dtype)) for name, array in arrays.items()}


def class_map(
    scores: NDArray[Any], layout: str, where: str, score_format: ScoreFormat = BEST
) -> tuple[NDArray[Any], int]:
    """Number of the best class at every position, the first one of equals, (N, D1..Dk); and the number of classes.

    `scores` are (N, C, D1..Dk), or (N, D1..Dk, C) when `layout` is nhwc. Integers (N, H, W), or with one channel, are
    class numbers already, unless there is a threshold. Error messages begin with `where`.

    >>> class_map(np.array([[[0.1, 0.9], [0.2, 0.3]]]), "nchw", "y")[0].tolist()
    [[1, 0]]
    """
    axis = 1 if layout == "nchw" else scores.ndim - 1
    if scores.ndim < 3:
        fact = "a class at each position needs a batch, channels and spatial axes"
        raise ShapeError(f"{where}: {fact}, got {format_shape(scores.shape)}. Write .npy as it is.")
    if _holds_classes(scores, axis, score_format):
        return _stored_classes(scores if scores.ndim == 3 else np.squeeze(scores, axis), where)
    count = score_format.class_count(scores.shape, axis, where)
    return score_format.apply(scores, axis), count


def _holds_classes(scores: NDArray[Any], axis: int, score_format: ScoreFormat) -> bool:
    is_whole = scores.dtype.kind in "iub" and score_format.threshold is None
    return is_whole and (scores.ndim == 3 or scores.shape[axis] == 1)


def view_of_file(stored: Any, count: int, layout: str, where: str) -> ClassView:
    """The classes in a file that is read in windows; `count` is 0 if it holds integers: scores, or class numbers."""
    if count:
        return ClassView(stored.shape, stored.dtype, count, stored.__getitem__)
    channel = None if len(stored.shape) == 3 else 1 if layout == "nchw" else len(stored.shape) - 1
    shape = tuple(size for axis, size in enumerate(stored.shape) if axis != channel)
    scores = 1 if channel is None else stored.shape[channel]

    def numbers(slices: tuple[slice, ...]) -> NDArray[Any]:
        window: NDArray[Any]
        if channel is None:
            window = stored[slices]
        else:
            window = stored[(*slices[:channel], slice(0, scores), *slices[channel:])]
            window = window.argmax(channel) if scores > 1 else np.squeeze(window, channel)
        return window

    classes = scores
    if scores == 1:
        step, raw = rows_of(shape), ClassView(shape, stored.dtype, 0, numbers)
        bands = (raw.rows(start, min(start + step, shape[1])) for start in range(0, shape[1], step))
        classes = max((_stored_classes(band, where)[1] for band in bands), default=0)
    kind = class_type(classes)
    return ClassView(shape, kind, classes, lambda slices: numbers(slices).astype(kind), is_lower_bound=scores == 1)


def _stored_classes(numbers: NDArray[Any], where: str) -> tuple[NDArray[Any], int]:
    low, high = (int(numbers.min()), int(numbers.max())) if numbers.size else (0, 0)
    if low < 0 or high > LARGEST_CLASS:
        raise ShapeError(f"{where}: class numbers are 0 to {LARGEST_CLASS}, got {low} to {high}. Write a .npy.")
    return numbers.astype(class_type(high + 1)), high + 1


def class_shares(counts: Sequence[int], names: Sequence[str]) -> Areas:
    """Share of the area, 0 to 1, of every class that occurs, from how many elements each has."""
    total = sum(counts)
    return {names[number]: round(count / total, 6) for number, count in enumerate(counts) if count}


@dataclass(frozen=True)
class ClassStyle:
    """Names of classes, from the options and from the model, and their colours."""

    names: Sequence[str] | None = None
    model_names: Sequence[str] | None = None
    palette: Sequence[Colour] | None = None

    def legend(self, count: int, *, is_lower_bound: bool = False) -> Legend:
        """Names and colours of `count` classes, or more; names of the model are used if there are enough."""
        names = self.model_names if self.names is None else self.names
        if names is self.names and names is not None and len(names) != count and not (is_lower_bound and names[count:]):
            fact = f"expected {count} names{' or more' * is_lower_bound}, got {len(names)} ({', '.join(names)})"
            raise UsageError(f"--classes: {fact}. Name every class once.")
        if names is not None and len(names) < count:
            _log.info("the model names %d classes but tells %d apart: the names are not used", len(names), count)
            names = None
        return overlay.legend_for(count if names is None else len(names), names, self.palette or ())

    def shares(self, file: OutputFile) -> Areas:
        """Share of the area of every class in a file; empty where it holds other values, or they are not counted."""
        return class_shares(file.counts, self.legend(file.classes).names) if file.counts else {}


def write_result(
    stream: BinaryIO, config: RunConfig, arrays: Mapping[str, NDArray[Any]], picture: Picture | None, style: ClassStyle
) -> tuple[ArraySpecs, Areas]:
    """Write the wanted outputs; the arrays in the file, and the share of the area of every class, if any.

    `picture` is the image that the model saw, for an overlay, and for the place in space that .nii keeps.
    """
    form = config.format
    if config.makes_classes:
        ((name, scores),) = arrays.items()
        numbers, count = class_map(scores, config.layout, name, config.scores)
        axis = 1 if config.layout == "nchw" else scores.ndim - 1
        is_lower_bound = _holds_classes(scores, axis, config.scores)
        classes = ClassView(numbers.shape, numbers.dtype, count, numbers.__getitem__, is_lower_bound)
        legend = style.legend(count, is_lower_bound=is_lower_bound)
        if config.is_drawn:
            bases = [] if picture is None else [backdrop(page) for page in picture.pages]
            return write_drawn(stream, config, (name, classes), bases, style)
        if form in ARRAY_FORMATS:
            write_arrays(stream, form, {safe_names([name])[name]: numbers})
        else:
            _write_pixels(stream, form, _images(numbers, name, form)[..., None], picture, name)
        return specs_of({name: classes}), class_shares(classes.counts(rows_of(classes.shape)), legend.names)
    if config.softmax:
        arrays = {name: _probabilities(array, config.layout, name) for name, array in arrays.items()}
    plain = {name: writable(name, array) for name, array in arrays.items()}
    if form in ARRAY_FORMATS:
        names = safe_names(plain)
        write_arrays(stream, form, {names[name]: array for name, array in plain.items()})
    else:
        ((name, array),) = plain.items()
        _write_pixels(stream, form, _planes(array, config.layout, name, form), picture, name)
    return specs_of(plain), {}


def _probabilities(scores: NDArray[Any], layout: str, name: str) -> NDArray[Any]:
    channel = None if scores.ndim < 3 else 1 if layout == "nchw" else scores.ndim - 1
    softmax = ScoreFormat(softmax=True)
    softmax.class_count(scores.shape, channel, name)
    require_floats(scores.dtype, name)
    return scores if channel is None else softmax.apply(scores, channel)


def write_drawn(
    stream: BinaryIO, config: RunConfig, named: tuple[str, ClassView], bases: Sequence[Backdrop], style: ClassStyle
) -> tuple[ArraySpecs, Areas]:
    """As `write_result`, classes as pictures with one legend, row by row: masks, or overlays over `bases`."""
    name, classes = named
    legend = style.legend(classes.count, is_lower_bound=classes.is_lower_bound)
    counts = classes.counts(rows_of(classes.shape))
    _require_room(name, classes.shape, config.format)
    present = [number for number, count in enumerate(counts) if count]
    if config.overlay and bases:
        shape = (len(bases), *bases[0].sizes)
        if shape != classes.shape:
            start = 1 if shape[0] == classes.shape[0] else 0
            image, drawn = (format_shape(sizes[start:]) for sizes in (shape, classes.shape))
            fact = f"the image is {image}, the classes are {drawn}: they need the same sizes"
            raise ShapeError(f"--overlay: {fact}. Use --argmax.")
        pages = (_overlaid(config, *page, legend, present) for page in zip(bases, classes.pages, strict=True))
    else:
        if len(classes.shape) != 3:
            fact = f".png holds flat pictures, got {format_shape(classes.shape[1:])}"
            raise ShapeError(f"{name}: {fact}. Write a .tif or .npy.")
        pages = (overlay.mask_rows(page, legend) for page in classes.pages)
    write_pages(stream, config.format, pages)
    return specs_of({name: classes}), class_shares(counts, legend.names)


def _overlaid(
    config: RunConfig, base: Backdrop, classes: ClassView, legend: Legend, present: Sequence[int]
) -> tuple[Sheet, Rows]:
    if len(classes.shape) < 4:
        return overlay.overlay_rows(base, classes, legend, config.alpha, present)
    volume, numbers = base.read(0, base.sizes[0]), classes.rows(0, classes.shape[1])[0]
    image = overlay.planes_picture(volume, numbers, legend, config.alpha)
    return Sheet(image.height, image.width, 3), iter([np.asarray(image)])


def write_stored_pixels(stream: BinaryIO, config: RunConfig, name: str, stored: Any) -> None:
    """Write an output that lies in a file as a flat picture, row by row; windows of (N, C, H, W) or (N, H, W, C)."""
    if len(stored.shape) != 4:
        raise ShapeError(f"{name}: .{config.format} needs (N, C, H, W), got {format_shape(stored.shape)}. Write .npy.")
    _require_room(name, stored.shape, config.format)
    channel, row = (1, 2) if config.layout == "nchw" else (3, 1)
    height, width = stored.shape[row : row + 2]
    sheet = sheet_of((height, width, stored.shape[channel]), stored.dtype, config.format, name)

    def rows() -> Rows:
        step, window = rows_of((stored.shape[channel], height, width)), [slice(0, size) for size in stored.shape]
        for start in range(0, height, step):
            window[row] = slice(start, min(start + step, height))
            band = np.moveaxis(stored[tuple(window)], channel, -1)[0]
            yield band[..., 0] if sheet.channels == 1 else band

    write_rows(stream, config.format, sheet, rows())


def _write_pixels(stream: BinaryIO, form: str, pixels: NDArray[Any], picture: Picture | None, name: str) -> None:
    if BY_NAME[form].content is Content.VOLUME:
        write_nifti(stream, form, pixels, None if picture is None else picture.spatial_header, name)
    else:
        write_planes(stream, form, pixels, name)


def _require_room(name: str, shape: tuple[int, ...], form: str) -> None:
    if shape[0] != 1 and form != "tif":
        raise ShapeError(f"{name}: a .{form} holds one image, got a batch of {shape[0]}. Write .tif or .npy.")


def _images(batch: NDArray[Any], name: str, form: str) -> NDArray[Any]:
    """The image of a batch of one, or all pictures of a larger one, which become the pages of a .tif."""
    _require_room(name, batch.shape, form)
    if batch.shape[0] != 1 and batch.ndim > 3:
        raise ShapeError(f"{name}: a .tif holds one volume, got a batch of {batch.shape[0]}. Write a .npy.")
    return batch if batch.shape[0] != 1 else np.squeeze(batch, 0)


def _planes(array: NDArray[Any], layout: str, name: str, form: str) -> NDArray[Any]:
    """(H, W, C) or (D, H, W, C) of a batch of one, or (N, H, W, C) of grey or colour for the pages of a .tif."""
    if array.ndim not in (4, 5):
        fact = f"a picture needs (N, C, H, W) or (N, C, D, H, W), got {format_shape(array.shape)}"
        raise ShapeError(f"{name}: {fact}. Write .npy.")
    _require_room(name, array.shape, form)
    last = np.moveaxis(array, 1, -1) if layout == "nchw" else array
    if array.shape[0] == 1:
        return np.squeeze(last, 0)
    is_colour = last.shape[-1] in (3, 4) and last.dtype in (np.uint8, np.uint16)
    if array.ndim != 4 or not (last.shape[-1] == 1 or is_colour):
        fact = f"the pages of a .tif are pictures in grey or colour, got {format_shape(array.shape)}"
        raise ShapeError(f"{name}: {fact}. Write a .npy, or add --argmax.")
    return last
