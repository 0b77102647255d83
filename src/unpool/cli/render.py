"""Outputs of one run -> the content of one file: arrays, an image, a class mask or an overlay."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from unpool.cli.classes import ClassView, names_for, rows_of, shares, view_of_array
from unpool.cli.model import sizes
from unpool.cli.nifti import write_nifti
from unpool.cli.outputs import (
    ARRAY_FORMATS,
    VOLUME_FORMATS,
    sheet_of,
    writable,
    write_arrays,
    write_planes,
    write_rows,
)
from unpool.cli.overlay import Colour, Legend, Rows, legend_for, mask_rows, overlay_rows
from unpool.cli.picture import Backdrop, Picture, backdrop
from unpool.cli.planes import planes_picture
from unpool.cli.png import Sheet
from unpool.cli.run_options import Request
from unpool.cli.safe_names import safe_names
from unpool.errors import ShapeError

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Drawn:
    """How classes are shown: names that were given, names that the model has, and its colours."""

    names: Sequence[str] | None = None
    stored: Sequence[str] | None = None
    palette: Sequence[Colour] | None = None

    def legend(self, count: int) -> Legend:
        """Names and colours of `count` classes."""
        names = names_for(count, self.names, self.stored)
        return legend_for(count if names is None else len(names), names, self.palette or ())


@dataclass(frozen=True)
class Held:
    """What a result stands for: the shape and type of an array in a file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def write_result(
    stream: BinaryIO, request: Request, arrays: Arrays, picture: Picture | None, drawn: Drawn
) -> tuple[Mapping[str, Held], dict[str, float]]:
    """Write what the request asks for.

    Args:
        stream: an open file.
        request: the command line.
        arrays: the wanted outputs of the model by name.
        picture: the image that the model saw, needed by an overlay, and whose place in space .nii keeps.
        drawn: how classes are shown.

    Returns:
        what stands in the file, and the share of the area of every class (empty without classes).
    """
    if request.makes_classes:
        ((name, scores),) = arrays.items()
        classes = view_of_array(scores, request.rule.layout, name)
        legend = drawn.legend(classes.count)
        if request.is_drawn:
            base = None if picture is None else backdrop(picture)
            return write_drawn(stream, request, (name, classes), base, drawn)
        if request.format in ARRAY_FORMATS:
            write_arrays(stream, request.format, {safe_names([name])[name]: classes.whole})
        else:
            _write_pixels(stream, request.format, _single(classes.whole, name)[..., None], picture, name)
        return {name: Held(classes.shape, classes.dtype)}, shares(classes.counts(rows_of(classes.shape)), legend.names)
    plain = {name: writable(name, array) for name, array in arrays.items()}
    if request.format in ARRAY_FORMATS:
        names = safe_names(plain)
        write_arrays(stream, request.format, {names[name]: array for name, array in plain.items()})
        return _held(plain), {}
    ((name, array),) = plain.items()
    _write_pixels(stream, request.format, _planes(array, request.rule.layout, name), picture, name)
    return _held(plain), {}


def _held(arrays: Arrays) -> dict[str, Held]:
    return {name: Held(array.shape, array.dtype) for name, array in arrays.items()}


def write_drawn(
    stream: BinaryIO, request: Request, named: tuple[str, ClassView], base: Backdrop | None, drawn: Drawn
) -> tuple[Mapping[str, Held], dict[str, float]]:
    """Write classes as a picture, row by row: a mask, or an overlay over `base`; returns as `write_result`."""
    name, classes = named
    legend = drawn.legend(classes.count)
    if classes.shape[0] != 1:
        raise ShapeError(f"{name}: a picture holds one image, got a batch of {classes.shape[0]}. Write a .npy.")
    if request.overlay and base is not None:
        _require_same(base.sizes, classes.shape[1:])
        if len(classes.shape) == 4:
            image = planes_picture(base.whole, classes.whole[0], legend, request.alpha)
            sheet, rows = Sheet(image.height, image.width, 3), iter([np.asarray(image)])
        else:
            sheet, rows = overlay_rows(base, classes, legend, request.alpha)
    else:
        if len(classes.shape) != 3:
            raise ShapeError(f"{name}: .png holds flat pictures, got {sizes(classes.shape[1:])}. Write a .tif or .npy.")
        sheet, rows = mask_rows(classes, legend)
    write_rows(stream, request.format, sheet, rows)
    return {name: Held(classes.shape, classes.dtype)}, shares(classes.counts(rows_of(classes.shape)), legend.names)


def write_stored_pixels(stream: BinaryIO, request: Request, name: str, stored: Any) -> None:
    """Write an output that lies in a file as a flat picture, row by row.

    Args:
        stream: an open file.
        request: the command line.
        name: of the output.
        stored: the file, (N, C, H, W) or (N, H, W, C), of which windows are read.
    """
    is_first = request.rule.layout == "nchw"
    if len(stored.shape) != 4:
        raise ShapeError(f"{name}: .{request.format} needs (N, C, H, W), got {sizes(stored.shape)}. Write .npy.")
    if stored.shape[0] != 1:
        raise ShapeError(f"{name}: a picture holds one image, got a batch of {stored.shape[0]}. Write a .npy.")
    channel = 1 if is_first else 3
    spatial = tuple(size for axis, size in enumerate(stored.shape) if axis not in (0, channel))
    sheet = sheet_of((*spatial, stored.shape[channel]), stored.dtype, request.format, name)

    def rows() -> Rows:
        step = rows_of((stored.shape[channel], *spatial))
        for start in range(0, spatial[0], step):
            within = [slice(start, min(start + step, spatial[0])), slice(0, spatial[1])]
            within.insert(0 if is_first else 2, slice(0, sheet.channels))
            band = stored[(slice(0, 1), *within)][0]
            band = np.moveaxis(band, 0, -1) if is_first else band
            yield band[..., 0] if sheet.channels == 1 else band

    write_rows(stream, request.format, sheet, rows())


def _write_pixels(stream: BinaryIO, form: str, pixels: NDArray[Any], picture: Picture | None, name: str) -> None:
    """Pixels with channels last, as a flat file or where a volume was."""
    if form in VOLUME_FORMATS:
        write_nifti(stream, form, pixels, None if picture is None else picture.space, name)
    else:
        write_planes(stream, form, pixels, name)


def _single(batch: NDArray[Any], name: str) -> NDArray[Any]:
    if batch.shape[0] != 1:
        raise ShapeError(f"{name}: a picture holds one image, got a batch of {batch.shape[0]}. Write a .npy.")
    single: NDArray[Any] = batch[0]
    return single


def _planes(array: NDArray[Any], layout: str, name: str) -> NDArray[Any]:
    """(H, W, C) or (D, H, W, C) of a batch of one."""
    if array.ndim not in (4, 5):
        raise ShapeError(
            f"{name}: a picture needs (N, C, H, W) or (N, C, D, H, W), got {sizes(array.shape)}. Write .npy."
        )
    single = _single(array, name)
    return np.moveaxis(single, 0, -1) if layout == "nchw" else single


def _require_same(image: tuple[int, ...], classes: tuple[int, ...]) -> None:
    if image != classes:
        raise ShapeError(
            f"--overlay: the image is {sizes(image)}, the classes are {sizes(classes)}: "
            "they need the same sizes. Use --argmax."
        )
