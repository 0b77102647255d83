"""Classes over an image: colours and legend, masks, overlays of pictures row by row, and three planes of a volume."""

import colorsys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unpool.images.pixels import Backdrop, Picture, for_display
from unpool.images.raster import BAND, Sheet

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True)
class ClassView:
    """Class numbers of an output, (N, D1..Dk), uint8 up to 256 classes, else uint16; windows of them are read.

    `count` is the number of classes; with `is_lower_bound` that of the classes up to the largest number that occurs.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    count: int
    read: Callable[[tuple[slice, ...]], NDArray[Any]]
    is_lower_bound: bool = False

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Rows of all images of the batch, (N, rows, ...)."""
        return self.read((slice(0, self.shape[0]), slice(start, stop), *(slice(0, size) for size in self.shape[2:])))

    @property
    def pages(self) -> "list[ClassView]":
        """Each image of the batch as a batch of one."""

        def page(number: int) -> ClassView:
            shape, image = (1, *self.shape[1:]), slice(number, number + 1)
            return replace(self, shape=shape, read=lambda slices: self.read((image, *slices[1:])))

        return list(map(page, range(self.shape[0])))

    def counts(self, step: int) -> list[int]:
        """The number of elements of each class, counted in bands of `step` rows."""
        counts = np.zeros(self.count, np.int64)
        for start in range(0, self.shape[1], step):
            counts += np.bincount(self.rows(start, min(start + step, self.shape[1])).ravel(), minlength=self.count)
        return [int(count) for count in counts]


def rows_of(shape: tuple[int, ...]) -> int:
    """The number of rows of (N, rows, ...) that are in memory at a time, a multiple of 16."""
    return max(16, BAND // max(1, shape[0] * prod(shape[2:])) // 16 * 16)


OKABE_ITO = ((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178), (213, 94, 0), (204, 121, 167))
CLEAR = (0, 0, 0)
GOLDEN = 0.6180339887498949
FIRST_HUE = 0.42  # of those tried, keeps the first 20 colours furthest apart
PALE_DARK_STRONG = ((0.35, 1.0), (1.0, 0.5), (0.9, 0.8))  # saturation and value

Colour = tuple[int, int, int]
Rows = Iterator[NDArray[Any]]


@dataclass(frozen=True)
class Legend:
    """Names and colours of the classes 0, 1, ...; `clear_first`: class 0 lets the image show through."""

    names: tuple[str, ...]
    colours: tuple[Colour, ...]
    clear_first: bool


def legend_for(count: int, names: Sequence[str] | None, palette: Sequence[Colour] = ()) -> Legend:
    """Names and colours for `count` classes.

    The colours are those of the palette; after its end, those of Okabe and Ito (readable with any colour vision),
    then hues a golden section apart. Class 0 is clear when it has no name or is called background.

    Source: M. Okabe, K. Ito, "Color Universal Design", 2008.
    """
    clear_first = names is None or names[0].strip().lower() == "background"
    words = tuple(names) if names is not None else tuple(f"class {number}" for number in range(count))
    shift = 1 if clear_first else 0
    colours = tuple(CLEAR if number < shift else _colour(number - shift) for number in range(count))
    return Legend(words, (*palette[:count], *colours[len(palette) :]), clear_first)


def _colour(place: int) -> Colour:
    if place < len(OKABE_ITO):
        return OKABE_ITO[place]
    extra = place - len(OKABE_ITO)
    hue = (FIRST_HUE + extra * GOLDEN) % 1
    saturation, value = PALE_DARK_STRONG[extra % 3]
    red, green, blue = (round(255 * part) for part in colorsys.hsv_to_rgb(hue, saturation, value))
    return red, green, blue


def overlay_rows(
    base: Backdrop, classes: ClassView, legend: Legend, alpha: float, present: Sequence[int]
) -> tuple[Sheet, Rows]:
    """The image with the colours of classes (1, H, W) over it, row by row; below it the legend of `present` classes."""
    (height, width), step = classes.shape[1:], rows_of(classes.shape)
    strip = np.asarray(legend_strip(legend, present, width))
    margin, extent = ((0, 0), (0, strip.shape[1] - width), (0, 0)), base.extent(step)

    def rows() -> Rows:
        for start in range(0, height, step):
            stop = min(start + step, height)
            picture = base.read(start, stop)
            shown = for_display(picture.pixels, picture.white_level, extent)
            blended = blend(shown, classes.rows(start, stop)[0], legend, alpha)
            yield np.pad(blended, margin, constant_values=255) if strip.shape[1] > width else blended
        yield strip

    return Sheet(height + len(strip), strip.shape[1], 3), rows()


def mask_rows(classes: ClassView, legend: Legend) -> tuple[Sheet, Rows]:
    """A picture of class numbers (1, H, W) as pixel values, row by row: with a palette for uint8, else 16-bit grey."""
    (height, width), step = classes.shape[1:], rows_of(classes.shape)
    rows = (classes.rows(start, min(start + step, height))[0] for start in range(0, height, step))
    is_small = classes.dtype == np.uint8
    return Sheet(height, width, 1, 8 if is_small else 16, legend.colours if is_small else ()), rows


def blend(base: NDArray[np.uint8], classes: NDArray[Any], legend: Legend, alpha: float) -> NDArray[np.uint8]:
    """The image with the class colours over it, (H, W, 3) bytes; `alpha` 0 shows only the image, 1 only the colours."""
    colours = np.array(legend.colours, np.float64)[classes]
    blended: NDArray[np.uint8] = np.rint((1 - alpha) * base + alpha * colours).astype(np.uint8)
    if legend.clear_first:
        blended[classes == 0] = base[classes == 0]
    return blended


def legend_strip(legend: Legend, present: Sequence[int], width: int) -> "Image.Image":
    """A white strip with one swatch and name per class in `present`, at least `width` pixels wide."""
    from PIL import Image, ImageDraw, ImageFont

    size = min(28, max(12, width // 28))
    font = ImageFont.load_default(size)
    places, row, left, needed = [], 0, size // 2, 0
    for number in present:
        entry = size * 3 // 2 + int(font.getlength(legend.names[number])) + 1
        if left > size // 2 and left + entry > width:
            row, left = row + 1, size // 2
        places.append((number, left, row * 2 * size + size * 3 // 4))
        needed = max(needed, left + entry + size // 2)
        left += entry + size * 3 // 2
    strip = Image.new("RGB", (max(width, needed), (row + 1) * 2 * size + size // 2), "white")
    draw = ImageDraw.Draw(strip)
    for number, left, top in places:
        fill = None if legend.clear_first and number == 0 else legend.colours[number]
        draw.rectangle((left, top, left + size, top + size), fill=fill, outline=(60, 60, 60))
        anchor = (left + size * 3 // 2, top + size // 2)
        draw.text(anchor, legend.names[number], fill=(20, 20, 20), font=font, anchor="lm")
    return strip


GAP, FONT = 12, 14  # pixels between planes, and of letters
LEAST, MOST = 256, 4096
"""Pixels: up to the first the longest side is enlarged, and no side becomes longer than the second."""
SAMPLE = 10**6  # voxels that are looked at for the range of grey
DARKEST, BRIGHTEST = 0.5, 99.5  # percentiles of the voxels: values below are black, values above white
BODY = ("R  axial, {} = {}  L", "R  coronal, {} = {}  L", "A  sagittal, {} = {}  P")
"""Captions of the planes of a body: name, number in the file, and the sides."""


@dataclass(frozen=True)
class View:
    """Orientation in which a volume is shown; its axes go across axial planes, down and to the right of them."""

    order: tuple[int, ...] = (0, 1, 2)  # axes of the volume
    backwards: tuple[bool, ...] = (False, False, False)
    lengths: tuple[float, ...] = (1.0, 1.0, 1.0)  # of a voxel
    captions: tuple[str, ...] = ("{} = {}",) * 3  # with the name of an axis and the number of a plane across it
    names: str = "DHW"  # of the axes of the volume

    def turn(self, volume: NDArray[Any]) -> NDArray[Any]:
        """The volume, (D, H, W) or (D, H, W, C), in this view."""
        steps = tuple(slice(None, None, -1 if back else 1) for back in self.backwards)
        return volume.transpose(*self.order, *range(3, volume.ndim))[steps]


def view_of(spatial_header: Any) -> View:
    """The view of a NIfTI header: head, front and the patient's right come first; of None as it is stored.

    Source: NIfTI-1: x grows to the right of the patient, y to the front, z to the head.
    """
    if spatial_header is None:
        return View()
    from nibabel import affines, orientations

    affine = spatial_header.get_best_affine()
    if not np.isfinite(affine).all() or not np.linalg.det(affine[:3, :3]):
        return View()
    turns = orientations.io_orientation(affine)  # type: ignore[no-untyped-call]
    sizes = affines.voxel_sizes(affine)  # type: ignore[no-untyped-call]
    stored = {int(body): axis for axis, (body, _) in enumerate(turns)}
    order = (stored[2], stored[1], stored[0])
    backwards = tuple(bool(turns[axis, 1] > 0) for axis in order)
    return View(order, backwards, tuple(float(sizes[axis]) for axis in order), BODY, "XYZ")


def planes_picture(picture: Picture, classes: NDArray[Any], legend: Legend, alpha: float) -> "Image.Image":
    """Three planes of a volume (D, H, W, C) side by side, its classes (D, H, W) over them, and the legend below."""
    from PIL import Image

    view = view_of(picture.spatial_header)
    volume, numbers = view.turn(picture.pixels), view.turn(classes)
    low, high = (0.0, picture.white_level) if picture.white_level is not None else grey_range(picture.pixels)
    real = [size * length / min(view.lengths) for size, length in zip(numbers.shape, view.lengths, strict=True)]
    factor = max(1, LEAST // round(min(max(real), LEAST)))
    scale = [min(max(1, round(span * factor)), max(MOST, n)) for span, n in zip(real, numbers.shape, strict=True)]
    planes, present = [], set()
    for axis, place in enumerate(busiest(numbers, legend.clear_first)):
        plane_numbers = numbers.take(place, axis)
        levels = volume.take(place, axis).astype(np.float64)
        levels = np.clip((np.nan_to_num(levels, nan=low) - low) / ((high - low) or 1.0), 0, 1)
        plane = blend(for_display(levels, 1.0), plane_numbers, legend, alpha)
        rows, columns = (length for other, length in enumerate(scale) if other != axis)
        height, width = plane.shape[:2]  # pixels are repeated or skipped, not smoothed
        plane = plane[np.arange(rows) * height // rows][:, np.arange(columns) * width // columns]
        number = numbers.shape[axis] - 1 - place if view.backwards[axis] else place
        planes.append((plane, view.captions[axis].format(view.names[view.order[axis]], number)))
        present.update(np.unique(plane_numbers).tolist())
    sheet = _side_by_side(planes)
    strip = legend_strip(legend, sorted(present), sheet.width)
    picture_with_legend = Image.new("RGB", (max(sheet.width, strip.width), sheet.height + strip.height), "white")
    picture_with_legend.paste(sheet, (0, 0))
    picture_with_legend.paste(strip, (0, sheet.height))
    return picture_with_legend


def busiest(classes: NDArray[Any], clear_first: bool) -> list[int]:
    """On each axis the plane with most voxels of coloured classes; the middle one where all have equally many."""
    coloured = classes != 0 if clear_first else np.ones(classes.shape, np.bool_)
    places = []
    for axis, size in enumerate(classes.shape):
        counts = np.count_nonzero(coloured, axis=tuple(other for other in range(3) if other != axis))
        places.append(int(counts.argmax()) if counts.min() < counts.max() else size // 2)
    return places


def grey_range(pixels: NDArray[Any]) -> tuple[float, float]:
    """Values shown as black and as white where the file has no white: percentiles of its voxels."""
    step = max(1, pixels.size // SAMPLE)
    sample = pixels.reshape(-1)[::step].astype(np.float64)
    sample = sample[np.isfinite(sample)]
    if not sample.size:
        return 0.0, 1.0
    low, high = np.percentile(sample, (DARKEST, BRIGHTEST))
    return (float(low), float(high)) if high > low else (float(sample.min()), float(sample.max()))


def _side_by_side(planes: Sequence[tuple[NDArray[np.uint8], str]]) -> "Image.Image":
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(FONT)
    widths = [max(plane.shape[1], round(font.getlength(text))) for plane, text in planes]
    tallest = max(plane.shape[0] for plane, _ in planes)
    sheet = Image.new("RGB", (sum(widths) + GAP * (len(planes) - 1), tallest + 2 * FONT), "white")
    draw, left = ImageDraw.Draw(sheet), 0
    for (plane, text), width in zip(planes, widths, strict=True):
        sheet.paste(Image.fromarray(plane), (left + (width - plane.shape[1]) // 2, (tallest - plane.shape[0]) // 2))
        draw.text((left + width // 2, tallest + FONT), text, fill=(20, 20, 20), font=font, anchor="mm")
        left += width + GAP
    return sheet
