"""Outputs of one run -> the content of one file: arrays, an image, a class mask or an overlay."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from unpool.cli.errors import UsageError
from unpool.cli.outputs import ARRAY_FORMATS, VOLUME_FORMATS, safe_names, writable, write_arrays
from unpool.cli.run_config import RunConfig
from unpool.display import format_shape
from unpool.errors import ShapeError
from unpool.images.encode import Sheet, sheet_of, write_pages, write_planes, write_rows
from unpool.images.nifti import write_nifti
from unpool.images.overlay import (
    ClassView,
    Colour,
    Legend,
    Rows,
    legend_for,
    mask_rows,
    overlay_rows,
    planes_picture,
    rows_of,
)
from unpool.images.pixels import Backdrop, Picture, backdrop
from unpool.runtime.streams.output_transform import ScoreFormat, class_type, require_floats

LARGEST_CLASS = 65535
BEST = ScoreFormat(argmax=True)

_log = logging.getLogger("unpool.cli")


def class_map(scores: NDArray[Any], layout: str, where: str, how: ScoreFormat = BEST) -> tuple[NDArray[Any], int]:
    """Number of the class with the highest score at every position; the first one wins a tie.

    Args:
        scores: (N, C, D1..Dk), or (N, D1..Dk, C) when `layout` is nhwc. Integers (N, H, W), or with one
            channel, are class numbers already, unless there is a threshold.
        layout: nchw or nhwc.
        where: what the error message begins with.
        how: the best class, or a threshold for one channel of scores.

    Returns:
        (N, D1..Dk) class numbers, uint8 up to 256 classes, else uint16; and the number of classes.

    Raises:
        ShapeError: no channel axis, a single channel of scores without a threshold, several with one, or class numbers
            outside 0..65535.

    >>> class_map(np.array([[[0.1, 0.9], [0.2, 0.3]]]), "nchw", "y")[0].tolist()
    [[1, 0]]
    """
    axis = 1 if layout == "nchw" else scores.ndim - 1
    is_whole = scores.dtype.kind in "iub" and how.threshold is None
    if scores.ndim < 3:
        raise ShapeError(
            f"{where}: a class at each position needs a batch, channels and spatial axes, "
            f"got {format_shape(scores.shape)}. Write .npy as it is."
        )
    if is_whole and (scores.ndim == 3 or scores.shape[axis] == 1):
        return _given_classes(scores if scores.ndim == 3 else np.squeeze(scores, axis), where)
    count = how.class_count(scores.shape, axis, where)
    return how.apply(scores, axis), count


def view_of_array(scores: NDArray[Any], layout: str, where: str, how: ScoreFormat = BEST) -> ClassView:
    """The classes of scores that are held; arguments as those of `class_map`."""
    classes, count = class_map(scores, layout, where, how)
    return ClassView(classes.shape, classes.dtype, count, lambda slices: classes[slices])


def view_of_file(stored: Any, count: int, layout: str, where: str) -> ClassView:
    """The classes in a file.

    Args:
        stored: the file; windows of it are read.
        count: of the classes whose numbers it holds; 0 where it holds integers that are scores, or numbers as well.
        layout: nchw or nhwc.
        where: what the error message begins with.
    """
    if count:
        return ClassView(stored.shape, stored.dtype, count, stored.__getitem__)
    channel = None if len(stored.shape) == 3 else 1 if layout == "nchw" else len(stored.shape) - 1
    shape = tuple(size for axis, size in enumerate(stored.shape) if axis != channel)
    scores = 1 if channel is None else stored.shape[channel]

    def numbers(slices: tuple[slice, ...]) -> NDArray[Any]:
        if channel is None:
            window = stored[slices]
        else:
            window = stored[(*slices[:channel], slice(0, scores), *slices[channel:])]
            window = window.argmax(channel) if scores > 1 else np.squeeze(window, channel)
        found: NDArray[Any] = window
        return found

    if scores > 1:
        kind = class_type(scores)
        return ClassView(shape, kind, scores, lambda slices: numbers(slices).astype(kind))
    step = rows_of(shape)
    raw = ClassView(shape, stored.dtype, 0, numbers)
    largest = 0
    for start in range(0, shape[1], step):
        largest = max(largest, _given_classes(raw.rows(start, min(start + step, shape[1])), where)[1])
    kind = class_type(largest)
    return ClassView(shape, kind, largest, lambda slices: numbers(slices).astype(kind))


def _given_classes(numbers: NDArray[Any], where: str) -> tuple[NDArray[Any], int]:
    low, high = (int(numbers.min()), int(numbers.max())) if numbers.size else (0, 0)
    if low < 0 or high > LARGEST_CLASS:
        raise ShapeError(f"{where}: class numbers are 0 to {LARGEST_CLASS}, got {low} to {high}. Write a .npy.")
    return numbers.astype(class_type(high + 1)), high + 1


def names_for(count: int, given: Sequence[str] | None, stored: Sequence[str] | None) -> list[str] | None:
    """Names of `count` classes: those given on the command line, else those stored in the model, else None.

    >>> names_for(2, None, ["background", "coin"]), names_for(3, None, ["background", "coin"])
    (['background', 'coin'], None)
    """
    if given is not None:
        if len(given) < count:
            raise UsageError(
                f"--classes: expected {count} names, got {len(given)} ({', '.join(given)}). Name every class."
            )
        return list(given)
    if stored is not None and len(stored) < count:
        _log.info("the model names %d classes but tells %d apart: the names are not used", len(stored), count)
        return None
    return None if stored is None else list(stored)


def class_shares(counts: Sequence[int], names: Sequence[str]) -> dict[str, float]:
    """Share of the area, 0 to 1, of every class that occurs, from how many elements each has.

    >>> class_shares([3, 1], ["background", "coin"])
    {'background': 0.75, 'coin': 0.25}
    """
    total = sum(counts)
    return {names[number]: round(count / total, 6) for number, count in enumerate(counts) if count}


Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class ClassStyle:
    """Names of classes, from the options and from the model, and their colours."""

    names: Sequence[str] | None = None
    stored: Sequence[str] | None = None
    palette: Sequence[Colour] | None = None

    def legend(self, count: int) -> Legend:
        """Names and colours of `count` classes."""
        names = names_for(count, self.names, self.stored)
        return legend_for(count if names is None else len(names), names, self.palette or ())


@dataclass(frozen=True)
class ArraySpec:
    """Shape and type of an array in a file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def write_result(
    stream: BinaryIO, config: RunConfig, arrays: Arrays, picture: Picture | None, style: ClassStyle
) -> tuple[Mapping[str, ArraySpec], dict[str, float]]:
    """Write what the config asks for.

    Args:
        stream: an open file.
        config: the command line.
        arrays: the wanted outputs of the model by name.
        picture: the image that the model saw, needed by an overlay, and whose place in space .nii keeps.
        style: how classes are shown.

    Returns:
        what stands in the file, and the share of the area of every class (empty without classes).
    """
    if config.makes_classes:
        ((name, scores),) = arrays.items()
        classes = view_of_array(scores, config.rule.layout, name, config.scores)
        legend = style.legend(classes.count)
        if config.is_drawn:
            bases = [] if picture is None else [backdrop(one) for one in picture.pages]
            return write_drawn(stream, config, (name, classes), bases, style)
        if config.format in ARRAY_FORMATS:
            write_arrays(stream, config.format, {safe_names([name])[name]: classes.full})
        else:
            _write_pixels(stream, config.format, _images(classes.full, name, config.format)[..., None], picture, name)
        return {name: ArraySpec(classes.shape, classes.dtype)}, class_shares(
            classes.counts(rows_of(classes.shape)), legend.names
        )
    if config.softmax:
        arrays = {name: _probabilities(array, config.rule.layout, name) for name, array in arrays.items()}
    plain = {name: writable(name, array) for name, array in arrays.items()}
    if config.format in ARRAY_FORMATS:
        names = safe_names(plain)
        write_arrays(stream, config.format, {names[name]: array for name, array in plain.items()})
        return _held(plain), {}
    ((name, array),) = plain.items()
    _write_pixels(stream, config.format, _planes(array, config.rule.layout, name, config.format), picture, name)
    return _held(plain), {}


def _probabilities(scores: NDArray[Any], layout: str, name: str) -> NDArray[Any]:
    """The softmax of (N, C, D1..Dk), or (N, D1..Dk, C), over the channels."""
    channel = None if scores.ndim < 3 else 1 if layout == "nchw" else scores.ndim - 1
    how = ScoreFormat(softmax=True)
    how.class_count(scores.shape, channel, name)
    require_floats(scores.dtype, name)
    return scores if channel is None else how.apply(scores, channel)


def _held(arrays: Arrays) -> dict[str, ArraySpec]:
    return {name: ArraySpec(array.shape, array.dtype) for name, array in arrays.items()}


def write_drawn(
    stream: BinaryIO, config: RunConfig, named: tuple[str, ClassView], bases: Sequence[Backdrop], style: ClassStyle
) -> tuple[Mapping[str, ArraySpec], dict[str, float]]:
    """Write classes as a picture, row by row: a mask, or an overlay over `bases`; returns as `write_result`.

    A batch becomes the pages of a .tif, which share one legend.
    """
    name, classes = named
    legend, counts = style.legend(classes.count), classes.counts(rows_of(classes.shape))
    _require_room(name, classes.shape, config.format)
    present = [number for number, count in enumerate(counts) if count]
    if config.overlay and bases:
        _require_same((len(bases), *bases[0].sizes), classes.shape)
        pages = (_overlaid(config, *one, legend, present) for one in zip(bases, classes.pages, strict=True))
    else:
        if len(classes.shape) != 3:
            raise ShapeError(
                f"{name}: .png holds flat pictures, got {format_shape(classes.shape[1:])}. Write a .tif or .npy."
            )
        pages = (mask_rows(one, legend) for one in classes.pages)
    write_pages(stream, config.format, pages)
    return {name: ArraySpec(classes.shape, classes.dtype)}, class_shares(counts, legend.names)


def _overlaid(
    config: RunConfig, base: Backdrop, classes: ClassView, legend: Legend, present: Sequence[int]
) -> tuple[Sheet, Rows]:
    """One picture or volume with its classes over it."""
    if len(classes.shape) < 4:
        return overlay_rows(base, classes, legend, config.alpha, present)
    image = planes_picture(base.full, classes.full[0], legend, config.alpha)
    return Sheet(image.height, image.width, 3), iter([np.asarray(image)])


def write_stored_pixels(stream: BinaryIO, config: RunConfig, name: str, stored: Any) -> None:
    """Write an output that lies in a file as a flat picture, row by row.

    Args:
        stream: an open file.
        config: the command line.
        name: of the output.
        stored: the file, (N, C, H, W) or (N, H, W, C), of which windows are read.
    """
    is_first = config.rule.layout == "nchw"
    if len(stored.shape) != 4:
        raise ShapeError(f"{name}: .{config.format} needs (N, C, H, W), got {format_shape(stored.shape)}. Write .npy.")
    _require_room(name, stored.shape, config.format)
    channel = 1 if is_first else 3
    spatial = tuple(size for axis, size in enumerate(stored.shape) if axis not in (0, channel))
    sheet = sheet_of((*spatial, stored.shape[channel]), stored.dtype, config.format, name)

    def rows() -> Rows:
        step = rows_of((stored.shape[channel], *spatial))
        for start in range(0, spatial[0], step):
            within = [slice(start, min(start + step, spatial[0])), slice(0, spatial[1])]
            within.insert(0 if is_first else 2, slice(0, sheet.channels))
            band = stored[(slice(0, 1), *within)][0]
            band = np.moveaxis(band, 0, -1) if is_first else band
            yield band[..., 0] if sheet.channels == 1 else band

    write_rows(stream, config.format, sheet, rows())


def _write_pixels(stream: BinaryIO, form: str, pixels: NDArray[Any], picture: Picture | None, name: str) -> None:
    """Pixels with channels last, as a flat file or where a volume was."""
    if form in VOLUME_FORMATS:
        write_nifti(stream, form, pixels, None if picture is None else picture.spatial_header, name)
    else:
        write_planes(stream, form, pixels, name)


def _require_room(name: str, shape: tuple[int, ...], form: str) -> None:
    """Refuse a batch for a file of one image."""
    if shape[0] != 1 and form != "tif":
        raise ShapeError(f"{name}: a .{form} holds one image, got a batch of {shape[0]}. Write .tif or .npy.")


def _images(batch: NDArray[Any], name: str, form: str) -> NDArray[Any]:
    """The image of a batch of one, or all pictures of a larger one, which become the pages of a .tif."""
    _require_room(name, batch.shape, form)
    if batch.shape[0] != 1 and batch.ndim > 3:
        raise ShapeError(f"{name}: a .tif holds one volume, got a batch of {batch.shape[0]}. Write a .npy.")
    single: NDArray[Any] = batch[0]
    return batch if batch.shape[0] != 1 else single


def _planes(array: NDArray[Any], layout: str, name: str, form: str) -> NDArray[Any]:
    """(H, W, C) or (D, H, W, C) of a batch of one, or (N, H, W, C) of grey or colour for the pages of a .tif."""
    if array.ndim not in (4, 5):
        raise ShapeError(
            f"{name}: a picture needs (N, C, H, W) or (N, C, D, H, W), got {format_shape(array.shape)}. Write .npy."
        )
    _require_room(name, array.shape, form)
    last = np.moveaxis(array, 1, -1) if layout == "nchw" else array
    if array.shape[0] == 1:
        single: NDArray[Any] = last[0]
        return single
    is_colour = last.shape[-1] in (3, 4) and last.dtype in (np.uint8, np.uint16)
    if array.ndim != 4 or not (last.shape[-1] == 1 or is_colour):
        raise ShapeError(
            f"{name}: the pages of a .tif are pictures in grey or colour, got {format_shape(array.shape)}. "
            "Write a .npy, or add --argmax."
        )
    return last


def _require_same(images: tuple[int, ...], classes: tuple[int, ...]) -> None:
    """Refuse classes of other sizes, or of another number, than the images below them."""
    if images != classes:
        first, second = (format_shape(one[1:] if images[0] == classes[0] else one) for one in (images, classes))
        raise ShapeError(
            f"--overlay: the image is {first}, the classes are {second}: they need the same sizes. Use --argmax."
        )
