"""Outputs of one run -> the content of one file: arrays, an image, a class mask or an overlay."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from unpool.cli.classes import class_map, names_for, shares
from unpool.cli.model import sizes
from unpool.cli.nifti import write_nifti
from unpool.cli.outputs import (
    ARRAY_FORMATS,
    VOLUME_FORMATS,
    writable,
    write_arrays,
    write_picture,
    write_planes,
)
from unpool.cli.overlay import Colour, Legend, legend_for, mask_picture, overlay_picture
from unpool.cli.picture import Picture, for_display
from unpool.cli.planes import planes_picture
from unpool.cli.run_options import Request
from unpool.cli.safe_names import safe_names
from unpool.errors import ShapeError

if TYPE_CHECKING:
    from PIL import Image

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


def write_result(
    stream: BinaryIO, request: Request, arrays: Arrays, picture: Picture | None, drawn: Drawn
) -> tuple[Arrays, dict[str, float]]:
    """Write what the request asks for.

    Args:
        stream: an open file.
        request: the command line.
        arrays: the wanted outputs of the model by name.
        picture: the image that the model saw, needed by an overlay, and whose place in space .nii keeps.
        drawn: how classes are shown.

    Returns:
        the arrays that stand in the file, and the share of the area of every class (empty without classes).
    """
    if request.makes_classes:
        ((name, scores),) = arrays.items()
        return _write_classes(stream, request, (name, scores), picture, drawn)
    plain = {name: writable(name, array) for name, array in arrays.items()}
    if request.format in ARRAY_FORMATS:
        names = safe_names(plain)
        write_arrays(stream, request.format, {names[name]: array for name, array in plain.items()})
        return plain, {}
    ((name, array),) = plain.items()
    _write_pixels(stream, request.format, _planes(array, request.rule.layout, name), picture, name)
    return plain, {}


def _write_classes(
    stream: BinaryIO, request: Request, scores: tuple[str, NDArray[Any]], picture: Picture | None, drawn: Drawn
) -> tuple[Arrays, dict[str, float]]:
    name = scores[0]
    classes, count = class_map(scores[1], request.rule.layout, name)
    legend = drawn.legend(count)
    if request.format in ARRAY_FORMATS:
        write_arrays(stream, request.format, {safe_names([name])[name]: classes})
    elif request.overlay and picture is not None:
        write_picture(stream, request.format, _overlay(_single(classes, name), picture, legend, request.alpha))
    elif request.format == "png":
        write_picture(stream, "png", mask_picture(_flat(_single(classes, name), name), legend))
    else:
        _write_pixels(stream, request.format, _single(classes, name)[..., None], picture, name)
    return {name: classes}, shares(classes, legend.names)


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


def _flat(classes: NDArray[Any], name: str) -> NDArray[Any]:
    if classes.ndim != 2:
        raise ShapeError(f"{name}: .png holds flat pictures, got {sizes(classes.shape)}. Write a .tif or .npy.")
    return classes


def _planes(array: NDArray[Any], layout: str, name: str) -> NDArray[Any]:
    """(H, W, C) or (D, H, W, C) of a batch of one."""
    if array.ndim not in (4, 5):
        raise ShapeError(
            f"{name}: a picture needs (N, C, H, W) or (N, C, D, H, W), got {sizes(array.shape)}. Write .npy."
        )
    single = _single(array, name)
    return np.moveaxis(single, 0, -1) if layout == "nchw" else single


def _overlay(classes: NDArray[Any], picture: Picture, legend: Legend, alpha: float) -> "Image.Image":
    pixels = picture.pixels
    if pixels.shape[:-1] != classes.shape:
        raise ShapeError(
            f"--overlay: the image is {sizes(pixels.shape[:-1])}, the classes are {sizes(classes.shape)}: "
            "they need the same sizes. Use --argmax."
        )
    if classes.ndim == 3:
        return planes_picture(picture, classes, legend, alpha)
    return overlay_picture(for_display(pixels, picture.white), classes, legend, alpha)
