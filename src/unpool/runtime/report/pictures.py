"""Arrays of numbers as small pictures: PNG files inside of data URIs."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unpool.dtypes import AnyArray
from unpool.extras import require

COLOURS = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
"""From the smallest to the largest element: five colours of Matplotlib's viridis, blended in between."""

SHADES = 64
MARK = (255, 87, 34)
RIM = (255, 255, 255)
WIDEST = 160
"""Pixels along the longer side of a picture of a whole plane; a wider plane is averaged down."""

CELL = 14
"""Pixels along the side of an element in a close-up."""


@dataclass(frozen=True)
class Area:
    """A part of a plane, rows first: where it begins, and how many elements it has along each axis."""

    begin: tuple[int, int]
    size: tuple[int, int]

    @property
    def cut(self) -> tuple[slice, slice]:
        """What takes it out of a plane."""
        row, column = (slice(start, start + count) for start, count in zip(self.begin, self.size, strict=True))
        return row, column


def whole(plane: AnyArray, area: Area) -> str:
    """A plane as a data URI, a few pixels for an element, or one for several of a large plane; `area` is framed."""
    from PIL import Image, ImageDraw

    scale = WIDEST / max(plane.shape)
    height, width = (max(1, round(length * scale)) for length in plane.shape)
    way = Image.Resampling.BOX if scale < 1 else Image.Resampling.NEAREST
    picture = _image(_shades(plane)).convert("RGB").resize((width, height), way)
    if area.size != plane.shape:
        (top, left), (rows, columns) = area.begin, area.size
        frame = [left * scale, top * scale, (left + columns) * scale, (top + rows) * scale]
        ImageDraw.Draw(picture).rectangle(frame, outline=MARK)
    return _uri(picture.quantize(2 * SHADES))


def close_up(plane: AnyArray, area: Area, marks: NDArray[np.bool_] | None = None) -> str:
    """A part of a plane as a data URI, every element a square; those in `marks`, a plane too, get a dot."""
    from PIL import ImageDraw

    shades = _shades(plane)[area.cut]
    picture = _image(np.repeat(np.repeat(shades, CELL, axis=0), CELL, axis=1))
    draw = ImageDraw.Draw(picture)
    chosen = np.argwhere(marks[area.cut]) if marks is not None else ()
    for row, column in chosen:
        left, top = int(column) * CELL + CELL // 4, int(row) * CELL + CELL // 4
        draw.ellipse([left, top, left + CELL // 2, top + CELL // 2], fill=SHADES, outline=SHADES + 1)
    return _uri(picture)


def _shades(plane: AnyArray) -> NDArray[np.uint8]:
    """The number of a colour for every element, from the smallest finite one to the largest."""
    values = plane.astype(np.float64)
    finite = values[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    span = high - low or 1.0
    share = np.nan_to_num((values - low) / span, nan=0.0, posinf=1.0, neginf=0.0)
    return np.rint(np.clip(share, 0, 1) * (SHADES - 1)).astype(np.uint8)


def _image(shades: NDArray[np.uint8]) -> Any:
    require("the feature maps of a report", "run", "PIL")
    from PIL import Image

    picture = Image.fromarray(np.ascontiguousarray(shades), mode="P")
    picture.putpalette([int(part) for colour in (*_palette(), MARK, RIM) for part in colour])
    return picture


def _palette() -> NDArray[np.float64]:
    places = np.linspace(0, len(COLOURS) - 1, SHADES)
    parts: Sequence[AnyArray] = [np.interp(places, range(len(COLOURS)), part) for part in np.array(COLOURS).T]
    colours: NDArray[np.float64] = np.rint(np.stack(parts, axis=1))
    return colours


def _uri(picture: Any) -> str:
    stream = BytesIO()
    picture.save(stream, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
