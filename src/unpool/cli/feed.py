"""Item -> feed: the files of one run read, scaled and cast to what the model's inputs take."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unpool.cli.errors import UsageError
from unpool.cli.inputs import InputFile, Item, collect
from unpool.cli.metadata import PixelRule
from unpool.cli.model import BFLOAT16, Slot
from unpool.display import format_shape
from unpool.errors import UnpoolError
from unpool.images.formats import read_stream
from unpool.images.npy import read_member, read_npy
from unpool.images.pixels import Picture, scaled


@dataclass(frozen=True)
class Feed:
    """Inputs of one run.

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


def read_one(source: InputFile, slot: Slot, rule: PixelRule) -> tuple[NDArray[Any], Picture | None, list[str]]:
    """The array for one input, the picture that it was made of, and what was taken for granted about it."""
    picture: Picture | None = None
    if source.is_image:
        stored = _read_picture(source, slot, rule)
        picture = rule.lit(stored)
        told = [*stored.notes, *pixel_notes(rule, stored, slot), *rule.above(stored)]
        array = to_input(picture, slot, rule, str(source))
    else:
        array, told = fitted(_read_array(source), slot, rule.layout, str(source))
    fixed = slot.batch
    is_in_turn = picture is not None and picture.is_batch and fixed and not len(array) % fixed
    slot.check(array[:fixed] if is_in_turn else array, str(source))
    return array, picture, told


def pixel_notes(rule: PixelRule, stored: Picture, slot: Slot) -> list[str]:
    """Assumptions about the numbers of a picture, as stored in its file."""
    return rule.notes(stored.pixels.dtype, stored.white_level, takes_numbers(slot), stored.spatial_header is not None)


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


def to_input(picture: Picture, slot: Slot, rule: PixelRule, where: str) -> NDArray[Any]:
    """Pixels as a batch, of one unless they are pages, in the layout and type of the input.

    Raises:
        UnpoolError: the values cannot be held by the type of the input.
    """
    is_exact = slot.dtype.kind in "iub"
    is_double = slot.dtype == np.float64
    pixels = picture.pixels
    if rule.white is not None or not takes_numbers(slot):
        pixels = scaled(pixels, picture.white_level, np.float64 if is_double or is_exact else np.float32)
    values = rule.apply(pixels, double=is_double)
    with np.errstate(invalid="ignore"):
        cast = values.astype(slot.dtype, copy=False)
    if is_exact and not np.array_equal(cast, values):
        raise UnpoolError(
            f"{where}: input {slot.name!r} takes {slot.dtype}, got {values.min():g} to {values.max():g}, "
            "which it cannot hold exactly. Change --white, --scale, --mean and --std, or convert the image."
        )
    batch = cast if picture.is_batch else cast[None]
    return np.ascontiguousarray(np.moveaxis(batch, -1, 1) if rule.layout == "nchw" else batch)


def takes_numbers(slot: Slot) -> bool:
    """True for inputs of integers of more than 8 bits, which take stored numbers unscaled."""
    return slot.dtype.kind in "iu" and slot.dtype.itemsize > 1


def _read_picture(source: InputFile, slot: Slot, rule: PixelRule) -> Picture:
    with source.open() as stream:
        return read_stream(
            stream, source.suffix, str(source), slot.spatial_rank(rule.layout), slot.channels(rule.layout), rule.pages
        )


def _read_array(source: InputFile) -> NDArray[Any]:
    with source.open() as stream:
        if source.member is not None:
            return read_member(stream, source.member, str(source))
        size = stream.seek(0, 2)
        stream.seek(0)
        return read_npy(stream, size, str(source))


def fitted(array: NDArray[Any], slot: Slot, layout: str, where: str) -> tuple[NDArray[Any], list[str]]:
    """The array in the type and rank of an input, and a note where these were not its own.

    A wider type is taken where it holds every number, and axes of one element are added: the batch, or the batch and
    the channels. What would be guessed is left as it is.

    >>> slot = Slot("x", np.dtype(np.float32), (None, 1, None, None, None))
    >>> array, notes = fitted(np.zeros((4, 5, 6), np.int16), slot, "nchw", "vol.npy")
    >>> array.shape, str(array.dtype), notes
    ((1, 1, 4, 5, 6), 'float32', ['4x5x6 int16 goes in as 1x1x4x5x6 float32'])
    """
    given = array.view(slot.dtype) if array.dtype == np.dtype("V2") and slot.dtype == BFLOAT16 else array
    made = _of_type(of_rank(given, slot, layout), slot, where)
    is_same = made.shape == given.shape and made.dtype == given.dtype
    told = f"{format_shape(given.shape)} {given.dtype} goes in as {format_shape(made.shape)} {made.dtype}"
    return made, [] if is_same else [told]


def of_rank(array: NDArray[Any], slot: Slot, layout: str) -> NDArray[Any]:
    """The array with axes of one element added, where an input has more axes; nothing is copied."""
    if slot.shape is None or array.ndim >= len(slot.shape):
        return array
    ways = [array[None]]
    if array.ndim == len(slot.shape) - 2 and slot.channels(layout) in (1, None):
        ways = [array[None, None] if layout == "nchw" else array[None, ..., None]]
    return next((one for one in ways if slot.fits(one.shape)), array)


def _of_type(array: NDArray[Any], slot: Slot, where: str) -> NDArray[Any]:
    if array.dtype == slot.dtype or array.dtype.kind not in "biuf" or slot.dtype.kind == "b":
        return array
    with np.errstate(invalid="ignore", over="ignore"):
        cast = array.astype(slot.dtype)
        is_exact = np.array_equal(cast.astype(array.dtype), array, equal_nan=array.dtype.kind == "f")
    if is_exact:
        return cast
    raise UnpoolError(
        f"{where}: input {slot.name!r} takes {slot.dtype}, got {array.dtype} from {array.min():g} to {array.max():g}, "
        "which it cannot represent exactly. Convert it first."
    )
