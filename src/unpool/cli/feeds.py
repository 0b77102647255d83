"""Item -> feed: the files of one run read, scaled and cast to what the model's inputs take."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unpool.cli.exits import UsageError
from unpool.cli.images import read_image
from unpool.cli.inputs import Item, Source, collect
from unpool.cli.model import BFLOAT16, Slot
from unpool.cli.picture import WHITE, Picture, scaled
from unpool.errors import FileError, UnpoolError


@dataclass(frozen=True)
class PixelRule:
    """How pixels become numbers: (pixel * 255 / white * scale - mean) / std, per channel; layout is nchw or nhwc.

    `white`: the value that means white; None: what the file says, and the pixels as they are where it says nothing.
    """

    white: float | None = None
    scale: float | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    layout: str = "nchw"

    @property
    def is_identity(self) -> bool:
        """Whether pixels go in as they are."""
        return self.white is None and self.has_no_steps

    @property
    def has_no_steps(self) -> bool:
        """Whether nothing is done to pixels whose white is 255."""
        return self.scale is None and self.mean is None and self.std is None

    def apply(self, pixels: NDArray[Any], double: bool) -> NDArray[Any]:
        """Scaled pixels (..., C), computed in float64 when `double`, else in float32.

        >>> PixelRule(scale=0.5, mean=(1.0,)).apply(np.array([[4, 6]], np.uint8), double=False).tolist()
        [[1.0, 2.0]]
        """
        if self.has_no_steps:
            return pixels
        channels = pixels.shape[-1]
        values: NDArray[np.floating[Any]] = pixels.astype(np.float64 if double else np.float32)
        if self.scale is not None:
            values = values * values.dtype.type(self.scale)
        if self.mean is not None:
            values = values - _per_channel("--mean", self.mean, channels, values.dtype)
        if self.std is not None:
            values = values / _per_channel("--std", self.std, channels, values.dtype)
        return values


@dataclass(frozen=True)
class Feed:
    """What goes into one run.

    Attributes:
        arrays: for every input.
        picture: the first image among them.
        notes: what was taken for granted about its pixels.
    """

    arrays: Mapping[str, NDArray[Any]]
    picture: Picture | None
    notes: tuple[str, ...] = ()


def read_feed(item: Item, slots: Mapping[str, Slot], rule: PixelRule) -> Feed:
    """Arrays for every input of one run.

    Raises:
        FileError: a file cannot be read.
        ShapeError, UnpoolError: an array does not fit its input.
    """
    arrays: dict[str, NDArray[Any]] = {}
    first: Picture | None = None
    notes: list[str] = []
    for name, source in item.sources.items():
        arrays[name], picture, told = read_one(source, slots[name], rule)
        first = first or picture
        notes += told
    return Feed(arrays, first, tuple(dict.fromkeys(notes)))


def read_one(source: Source, slot: Slot, rule: PixelRule) -> tuple[NDArray[Any], Picture | None, list[str]]:
    """The array for one input, the picture that it was made of, and what was taken for granted about its pixels."""
    picture, told = None, []
    if source.is_image:
        read = read_image(source.path, slot.spatial_rank(rule.layout), slot.channels(rule.layout))
        picture = read if rule.white is None else Picture(read.pixels, rule.white)
        told = [] if rule.white is not None else pixel_notes(picture.pixels.dtype, picture.white, slot)
        array = to_input(picture, slot, rule, str(source))
    else:
        array = _as_stored(_read_array(source), slot)
    slot.check(array, str(source))
    return array, picture, told


def one_feed(inputs: Sequence[str], slots: Mapping[str, Slot]) -> dict[str, NDArray[Any]]:
    """Arrays for the one run that `-i` arguments name; pixels go in as they are.

    Raises:
        UsageError: they name the inputs of several runs.
        FileError, ShapeError, UnpoolError: as `read_feed`.
    """
    items = collect(inputs, list(slots)).items
    if len(items) != 1:
        raise UsageError(f"-i: expected the inputs of one run, got {len(items)}. Name one file per input.")
    return dict(read_feed(items[0], slots, PixelRule()).arrays)


def pixel_notes(dtype: np.dtype[Any], white: float | None, slot: Slot) -> list[str]:
    """What is taken for granted about pixels of a type, of which one value means white."""
    if white is None:
        return [f"its numbers, {dtype}, go in as they are: the file does not say which one is white. --white says it"]
    if white == WHITE:
        return []
    if _takes_numbers(slot):
        return [f"its numbers go in as they are, for the input takes {slot.dtype}; {white:g} is white"]
    return [f"{white:g} is taken as white and goes in as 255, as in 8-bit pictures. --white 255 keeps the numbers"]


def _takes_numbers(slot: Slot) -> bool:
    """Whether an input is for the numbers of deeper pictures: integers of more than 8 bits."""
    return slot.dtype.kind in "iu" and slot.dtype.itemsize > 1


def to_input(picture: Picture, slot: Slot, rule: PixelRule, where: str) -> NDArray[Any]:
    """Pixels as a batch of one in the layout and type of the input.

    Raises:
        UnpoolError: the values cannot be held by the type of the input.
    """
    is_exact = slot.dtype.kind in "iub"
    is_double = slot.dtype == np.float64
    pixels = picture.pixels
    if rule.white is not None or not _takes_numbers(slot):
        pixels = scaled(pixels, picture.white, np.float64 if is_double or is_exact else np.float32)
    values = rule.apply(pixels, double=is_double)
    with np.errstate(invalid="ignore"):
        cast = values.astype(slot.dtype)
    if is_exact and not np.array_equal(cast, values):
        raise UnpoolError(
            f"{where}: input {slot.name!r} takes {slot.dtype}, got {values.min():g} to {values.max():g}, "
            "which it cannot hold exactly. Change --white, --scale, --mean and --std, or convert the image."
        )
    batch = cast[None]
    return np.ascontiguousarray(np.moveaxis(batch, -1, 1) if rule.layout == "nchw" else batch)


def _per_channel(option: str, values: Sequence[float], channels: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    if len(values) not in (1, channels):
        expected = "1 value" if channels == 1 else f"1 value or {channels} (one per channel)"
        raise UsageError(f"{option}: expected {expected}, got {len(values)}.")
    return np.array(values, dtype)


def _as_stored(array: NDArray[Any], slot: Slot) -> NDArray[Any]:
    """NumPy writes bfloat16 as two raw bytes per element: give them their type back."""
    is_raw = array.dtype == np.dtype("V2") and slot.dtype == BFLOAT16
    return array.view(slot.dtype) if is_raw else array


def _read_array(source: Source) -> NDArray[Any]:
    try:
        loaded = np.load(source.path, allow_pickle=False)
        if source.member is None:
            if not isinstance(loaded, np.ndarray):
                raise FileError(f"{source}: expected one array, got an archive. Name it .npz.")
            return loaded
        with loaded:
            array: NDArray[Any] = loaded[source.member]
            return array
    except FileError:
        raise
    except Exception as error:  # a broken archive leads zipfile, zlib and NumPy to many
        raise FileError(f"{source}: expected an array of numbers, could not read it ({error}).") from error
