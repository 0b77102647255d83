"""A volume to look at: three planes through it, side by side, with the classes over them.

    which planes    on each axis the one with most of all coloured classes; the middle where there is none
    which way up    of a NIfTI file as on a screen of radiology software, front or head up, the patient's left to the
                    right; of other volumes as they are stored
    how large       voxels in the proportions that a NIfTI file states, and small volumes enlarged

Nothing is smoothed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unpool.cli.overlay import Legend, blend, with_legend
from unpool.cli.picture import Picture, for_display

if TYPE_CHECKING:
    from PIL import Image

GAP, FONT = 12, 14
"""Pixels between planes, and of letters."""
LEAST, MOST = 256, 4096
"""Pixels: up to the first the longest side is enlarged, and no side becomes longer than the second."""
SAMPLE = 10**6
"""Voxels that are looked at for the range of grey."""
DARKEST, BRIGHTEST = 0.5, 99.5
"""Percent of the voxels: what lies outside is black, or white."""
BODY = ("R  axial, {} = {}  L", "R  coronal, {} = {}  L", "A  sagittal, {} = {}  P")
"""What stands below a plane of a body: its name, its number in the file, and which side is which."""


@dataclass(frozen=True)
class View:
    """How a volume is turned for looking.

    Attributes:
        order: axes of the volume across axial planes, down and to the right of them.
        backwards: by axis of the view, whether it runs against that of the volume.
        lengths: of a voxel along the axes of the view.
        captions: of the planes across each axis of the view, for the name of the axis and the number of the plane.
        names: of the axes of the volume.
    """

    order: tuple[int, ...] = (0, 1, 2)
    backwards: tuple[bool, ...] = (False, False, False)
    lengths: tuple[float, ...] = (1.0, 1.0, 1.0)
    captions: tuple[str, ...] = ("{} = {}",) * 3
    names: str = "DHW"

    def turned(self, volume: NDArray[Any]) -> NDArray[Any]:
        """The volume, (D, H, W) or (D, H, W, C), in this view."""
        steps = tuple(slice(None, None, -1 if back else 1) for back in self.backwards)
        return volume.transpose(*self.order, *range(3, volume.ndim))[steps]

    def caption(self, axis: int, place: int, size: int) -> str:
        """What stands below the plane at `place` of an axis of the view, which has `size` planes."""
        number = size - 1 - place if self.backwards[axis] else place
        return self.captions[axis].format(self.names[self.order[axis]], number)


def view_of(space: Any) -> View:
    """The view of a NIfTI header: head, front and the patient's right come first; of None as it is stored.

    Source: NIfTI-1: x grows to the right of the patient, y to the front, z to the head.
    """
    if space is None:
        return View()
    from nibabel import affines, orientations

    affine = space.get_best_affine()
    if not np.isfinite(affine).all() or not np.linalg.det(affine[:3, :3]):
        return View()
    turns = orientations.io_orientation(affine)  # type: ignore[no-untyped-call]
    sizes = affines.voxel_sizes(affine)  # type: ignore[no-untyped-call]
    stored = {int(body): axis for axis, (body, _) in enumerate(turns)}
    order = (stored[2], stored[1], stored[0])
    backwards = tuple(bool(turns[axis, 1] > 0) for axis in order)
    return View(order, backwards, tuple(float(sizes[axis]) for axis in order), BODY, "XYZ")


def planes_picture(picture: Picture, classes: NDArray[Any], legend: Legend, alpha: float) -> "Image.Image":
    """Three planes side by side, with the classes over them, and the legend below.

    Args:
        picture: a volume, pixels (D, H, W, C).
        classes: (D, H, W) class numbers.
        legend: names and colours.
        alpha: strength of the colours.
    """
    view = view_of(picture.space)
    volume, found = view.turned(picture.pixels), view.turned(classes)
    low, high = (0.0, picture.white) if picture.white is not None else grey_range(picture.pixels)
    places = busiest(found, legend.clear_first)
    scale = _scale(found.shape, view.lengths)
    shown = []
    for axis, place in enumerate(places):
        base = for_display(_levels(volume.take(place, axis), low, high), 1.0)
        plane = blend(base, found.take(place, axis), legend, alpha)
        rows, columns = (length for other, length in enumerate(scale) if other != axis)
        shown.append((_resized(plane, rows, columns), view.caption(axis, place, found.shape[axis])))
    present = np.concatenate([found.take(place, axis).ravel() for axis, place in enumerate(places)])
    return with_legend(_side_by_side(shown), legend, present)


def busiest(classes: NDArray[Any], clear_first: bool) -> tuple[int, int, int]:
    """On each axis the plane with most voxels of classes that have a colour, the middle one where there is none.

    >>> volume = np.zeros((3, 4, 5), np.uint8)
    >>> volume[2, 1, 3:] = 1
    >>> busiest(volume, clear_first=True), busiest(0 * volume, clear_first=True)
    ((2, 1, 3), (1, 2, 2))
    """
    coloured = classes != 0 if clear_first else np.ones(classes.shape, np.bool_)
    places = []
    for axis, size in enumerate(classes.shape):
        counts = np.count_nonzero(coloured, axis=tuple(other for other in range(3) if other != axis))
        places.append(int(counts.argmax()) if counts.min() < counts.max() else size // 2)
    return places[0], places[1], places[2]


def grey_range(pixels: NDArray[Any]) -> tuple[float, float]:
    """What is shown black and white where a file does not say: nearly all of its numbers lie between."""
    step = max(1, pixels.size // SAMPLE)
    sample = pixels.reshape(-1)[::step].astype(np.float64)
    sample = sample[np.isfinite(sample)]
    if not sample.size:
        return 0.0, 1.0
    low, high = np.percentile(sample, (DARKEST, BRIGHTEST))
    return (float(low), float(high)) if high > low else (float(sample.min()), float(sample.max()))


def _levels(plane: NDArray[Any], low: float, high: float) -> NDArray[np.float64]:
    values = plane.astype(np.float64)
    return np.clip((np.nan_to_num(values, nan=low) - low) / ((high - low) or 1.0), 0, 1)


def _scale(shape: tuple[int, ...], lengths: tuple[float, ...]) -> tuple[int, ...]:
    """Pixels along each axis."""
    shortest = min(lengths)
    real = [size * length / shortest for size, length in zip(shape, lengths, strict=True)]
    times = max(1, LEAST // round(min(max(real), LEAST)))
    return tuple(min(max(1, round(one * times)), max(MOST, size)) for one, size in zip(real, shape, strict=True))


def _resized(plane: NDArray[np.uint8], rows: int, columns: int) -> NDArray[np.uint8]:
    """Each pixel repeated or left out, none smoothed."""
    at = [np.arange(made) * size // made for made, size in zip((rows, columns), plane.shape, strict=False)]
    resized: NDArray[np.uint8] = plane[at[0]][:, at[1]]
    return resized


def _side_by_side(planes: Sequence[tuple[NDArray[np.uint8], str]]) -> NDArray[np.uint8]:
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
    return np.asarray(sheet)
