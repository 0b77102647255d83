"""Class numbers -> colours: palette, masks as palette pictures, and the overlay with its legend."""

import colorsys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unpool.cli.classes import ClassView, rows_of
from unpool.cli.picture import Backdrop, for_display
from unpool.cli.png import Sheet

if TYPE_CHECKING:
    from PIL import Image, ImageFont

OKABE_ITO = (
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (240, 228, 66),
    (0, 114, 178),
    (213, 94, 0),
    (204, 121, 167),
)
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

    The colours are those of the palette; behind its end, those of Okabe and Ito (readable with any colour vision),
    then hues a golden section apart. Class 0 is clear when it has no name or is called background.

    Source: M. Okabe, K. Ito, "Color Universal Design", 2008.

    >>> legend_for(2, ["background", "coin"]).colours
    ((0, 0, 0), (230, 159, 0))
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


def mask_picture(classes: NDArray[Any], legend: Legend) -> "Image.Image":
    """A picture whose pixel values are the class numbers (H, W): a palette for uint8, else 16-bit grey."""
    from PIL import Image

    if classes.dtype != np.uint8:
        return Image.fromarray(classes.astype(np.uint16))
    picture = Image.fromarray(classes).convert("L")
    picture.putpalette([part for colour in legend.colours for part in colour])
    return picture


def overlay_picture(base: NDArray[np.uint8], classes: NDArray[Any], legend: Legend, alpha: float) -> "Image.Image":
    """The image with the class colours over it, and the legend in a strip below.

    Args:
        base: (H, W, 3) bytes.
        classes: (H, W) class numbers.
        legend: names and colours, at least one more than the largest class number.
        alpha: 0 shows only the image, 1 only the colours.

    Returns:
        an RGB picture; its top left H x W pixels are the blend.
    """
    return with_legend(blend(base, classes, legend, alpha), legend, classes)


def overlay_rows(
    base: Backdrop, classes: ClassView, legend: Legend, alpha: float, present: Sequence[int]
) -> tuple[Sheet, Rows]:
    """The picture of `overlay_picture` row by row.

    Args:
        base: the image.
        classes: (1, H, W) class numbers.
        legend: names and colours.
        alpha: 0 shows only the image, 1 only the colours.
        present: the classes in the legend.

    Returns:
        its size, and its rows.
    """
    step = rows_of(classes.shape)
    strip = np.asarray(legend_strip(legend, present, classes.shape[2]))
    extent = base.extent(step)
    return Sheet(classes.shape[1] + len(strip), strip.shape[1], 3), _rows_over(
        base, classes, legend, (alpha, extent, strip)
    )


def _rows_over(base: Backdrop, classes: ClassView, legend: Legend, how: tuple[float, Any, NDArray[np.uint8]]) -> Rows:
    (alpha, extent, strip), step = how, rows_of(classes.shape)
    missing = strip.shape[1] - classes.shape[2]
    for start in range(0, classes.shape[1], step):
        stop = min(start + step, classes.shape[1])
        picture = base.read(start, stop)
        shown = blend(for_display(picture.pixels, picture.white, extent), classes.rows(start, stop)[0], legend, alpha)
        yield np.pad(shown, ((0, 0), (0, missing), (0, 0)), constant_values=255) if missing else shown
    yield strip


def mask_rows(classes: ClassView, legend: Legend) -> tuple[Sheet, Rows]:
    """The picture of `mask_picture` row by row: its size, and its rows."""
    height, width = classes.shape[1:]
    step = rows_of(classes.shape)
    rows = (classes.rows(start, min(start + step, height))[0] for start in range(0, height, step))
    is_small = classes.dtype == np.uint8
    return Sheet(height, width, 1, 8 if is_small else 16, legend.colours if is_small else ()), rows


def blend(base: NDArray[np.uint8], classes: NDArray[Any], legend: Legend, alpha: float) -> NDArray[np.uint8]:
    """The image with the class colours over it, (H, W, 3) bytes; arguments as in `overlay_picture`."""
    colours = np.array(legend.colours, np.float64)[classes]
    blended: NDArray[np.uint8] = np.rint((1 - alpha) * base + alpha * colours).astype(np.uint8)
    if legend.clear_first:
        blended[classes == 0] = base[classes == 0]
    return blended


def with_legend(pixels: NDArray[np.uint8], legend: Legend, classes: NDArray[Any]) -> "Image.Image":
    """A picture of (H, W, 3) bytes, and below it the legend of the classes that occur."""
    from PIL import Image

    present = [int(number) for number in np.unique(classes)]
    height, width = pixels.shape[:2]
    strip = legend_strip(legend, present, width)
    picture = Image.new("RGB", (max(width, strip.width), height + strip.height), "white")
    picture.paste(Image.fromarray(pixels), (0, 0))
    picture.paste(strip, (0, height))
    return picture


def legend_strip(legend: Legend, present: Sequence[int], width: int) -> "Image.Image":
    """A white strip with one swatch and name per class in `present`, at least `width` pixels wide."""
    from PIL import Image, ImageDraw, ImageFont

    size = min(28, max(12, width // 28))
    font = ImageFont.load_default(size)
    rows, needed = _rows(legend, present, font, size, width)
    line = 2 * size
    strip = Image.new("RGB", (max(width, needed), len(rows) * line + size // 2), "white")
    draw = ImageDraw.Draw(strip)
    for row, entries in enumerate(rows):
        top = row * line + size * 3 // 4
        for left, number in entries:
            is_clear = legend.clear_first and number == 0
            fill = None if is_clear else legend.colours[number]
            draw.rectangle((left, top, left + size, top + size), fill=fill, outline=(60, 60, 60))
            anchor = (left + size * 3 // 2, top + size // 2)
            draw.text(anchor, legend.names[number], fill=(20, 20, 20), font=font, anchor="lm")
    return strip


def _rows(
    legend: Legend,
    present: Sequence[int],
    font: "ImageFont.FreeTypeFont | ImageFont.ImageFont",
    size: int,
    width: int,
) -> tuple[list[list[tuple[int, int]]], int]:
    """Rows of (left edge, class number) that fit into `width` pixels, and the width they really need."""
    rows: list[list[tuple[int, int]]] = [[]]
    left, needed = size // 2, 0
    for number in present:
        entry = size * 3 // 2 + int(font.getlength(legend.names[number])) + 1
        if rows[-1] and left + entry > width:
            rows.append([])
            left = size // 2
        rows[-1].append((left, number))
        needed = max(needed, left + entry + size // 2)
        left += entry + size * 3 // 2
    return rows, needed
