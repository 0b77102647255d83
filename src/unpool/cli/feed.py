"""Item -> feed: the files of one run read, scaled and cast to what the model's inputs take; and what that takes."""

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from unpool.cli.errors import UsageError
from unpool.cli.inputs import InputFile, Item, collect
from unpool.cli.metadata import PixelRule
from unpool.cli.model import BFLOAT16, Slot, naming_layout
from unpool.display import format_shape
from unpool.errors import UnpoolError
from unpool.images.formats import BY_SUFFIX, Content, read_stream
from unpool.images.npy import read_header, read_member, read_npy
from unpool.images.pixels import Picture, scaled
from unpool.images.source import BATCH


@dataclass(frozen=True)
class Feed:
    """Inputs of one run: arrays by name, the first image among them, and assumptions about pixels."""

    arrays: Mapping[str, NDArray[Any]]
    picture: Picture | None
    notes: tuple[str, ...]


def read_feed(item: Item, slots: Mapping[str, Slot], rule: PixelRule) -> Feed:
    """Arrays for every input of one run."""
    inputs = {name: read_one(source, slots[name], rule) for name, source in item.sources.items()}
    picture = next((picture for _, picture, _ in inputs.values() if picture is not None), None)
    notes = dict.fromkeys(note for *_, notes in inputs.values() for note in notes)
    return Feed({name: array for name, (array, *_) in inputs.items()}, picture, tuple(notes))


def read_one(source: InputFile, slot: Slot, rule: PixelRule) -> tuple[NDArray[Any], Picture | None, list[str]]:
    """The array for one input, the picture that it was made of, and assumptions about it."""
    picture: Picture | None = None
    with naming_layout([slot] if source.is_image else [], rule.layout):
        with source.open() as stream:
            if source.is_image:
                rank, channels = slot.spatial_rank(rule.layout), slot.channels(rule.layout)
                picture = read_stream(stream, source.suffix, str(source), rank, channels, rule.pages)
            elif source.member is not None:
                stored = read_member(stream, source.member, str(source))
            else:
                stored = read_npy(stream, _size_of(stream), str(source))
        if picture is None:
            array, notes = fitted(stored, slot, rule.layout, str(source))
        else:
            notes = pixel_notes(rule, picture, slot)
            picture = replace(picture, white_level=rule.white_of(picture.white_level))
            array = to_input(picture, slot, rule, str(source))
        # the pages of a picture run in turn where the batch of the model is fixed
        runs_in_turn = picture is not None and picture.is_batch and slot.batch and not len(array) % slot.batch
        slot.check(array[: slot.batch] if runs_in_turn else array, str(source))
    return array, picture, notes


def pixel_notes(rule: PixelRule, stored: Picture, slot: Slot) -> list[str]:
    """Assumptions about a picture as stored in its file."""
    kind, has_unit = stored.pixels.dtype, stored.spatial_header is not None
    notes = rule.notes(kind, stored.white_level, takes_numbers(slot), has_unit)
    return [*stored.notes, *notes, *rule.above(stored)]


def one_feed(inputs: Sequence[str], slots: Mapping[str, Slot], layout: str) -> dict[str, NDArray[Any]]:
    """Arrays for the one run that `-i` arguments name; pixels go in as they are."""
    items, _ = collect(inputs, list(slots))
    if len(items) != 1:
        raise UsageError(f"-i: expected the inputs of one run, got {len(items)}. Name one file per input.")
    return dict(read_feed(items[0], slots, PixelRule(layout=layout)).arrays)


def to_input(picture: Picture, slot: Slot, rule: PixelRule, where: str) -> NDArray[Any]:
    """Pixels as a batch, of one unless they are pages, in the layout and type of the input, which has to hold them."""
    is_exact, is_double, pixels = slot.dtype.kind in "iub", slot.dtype == np.float64, picture.pixels
    if rule.white is not None or not takes_numbers(slot):
        pixels = scaled(pixels, picture.white_level, np.float64 if is_double or is_exact else np.float32)
    values = rule.apply(pixels, double=is_double)
    with np.errstate(invalid="ignore"):
        cast = values.astype(slot.dtype, copy=False)
    if is_exact and not np.array_equal(cast, values):
        fact = f"takes {slot.dtype}, got {values.min():g} to {values.max():g}, which it cannot hold exactly"
        advice = "Change --white, --scale, --mean and --std, or convert the image."
        raise UnpoolError(f"{where}: input {slot.name!r} {fact}. {advice}")
    batch = cast if picture.is_batch else cast[None]
    return np.ascontiguousarray(np.moveaxis(batch, -1, 1) if rule.layout == "nchw" else batch)


def takes_numbers(slot: Slot) -> bool:
    """True for inputs of integers of more than 8 bits, which take stored numbers unscaled."""
    return slot.dtype.kind in "iu" and slot.dtype.itemsize > 1


def fitted(array: NDArray[Any], slot: Slot, layout: str, where: str) -> tuple[NDArray[Any], list[str]]:
    """The array in the type and rank of an input, and a note where these were not its own.

    A wider type is taken where it holds every number, and axes of one element are added: the batch, or the batch and
    the channels. Nothing else is guessed.

    >>> slot = Slot("x", np.dtype(np.float32), (None, 1, None, None, None))
    >>> array, notes = fitted(np.zeros((4, 5, 6), np.int16), slot, "nchw", "vol.npy")
    >>> array.shape, str(array.dtype), notes
    ((1, 1, 4, 5, 6), 'float32', ['4x5x6 int16 goes in as 1x1x4x5x6 float32'])
    """
    stored = array.view(slot.dtype) if array.dtype == np.dtype("V2") and slot.dtype == BFLOAT16 else array
    result = _of_type(of_rank(stored, slot, layout), slot, where)
    if result.shape == stored.shape and result.dtype == stored.dtype:
        return result, []
    before, after = (f"{format_shape(one.shape)} {one.dtype}" for one in (stored, result))
    return result, [f"{before} goes in as {after}"]


def of_rank(array: NDArray[Any], slot: Slot, layout: str) -> NDArray[Any]:
    """A view of the array with axes of one element added where the input has more axes."""
    if slot.shape is None or array.ndim >= len(slot.shape):
        return array
    batch = array[None]
    if array.ndim == len(slot.shape) - 2 and slot.channels(layout) in (1, None):
        batch = array[None, None] if layout == "nchw" else array[None, ..., None]
    return batch if slot.fits(batch.shape) else array


def _of_type(array: NDArray[Any], slot: Slot, where: str) -> NDArray[Any]:
    if array.dtype == slot.dtype or array.dtype.kind not in "biuf" or slot.dtype.kind == "b":
        return array
    with np.errstate(invalid="ignore", over="ignore"):
        cast = array.astype(slot.dtype)
        is_exact = np.array_equal(cast.astype(array.dtype), array, equal_nan=array.dtype.kind == "f")
    if is_exact:
        return cast
    fact = f"takes {slot.dtype}, got {array.dtype} from {array.min():g} to {array.max():g}"
    raise UnpoolError(f"{where}: input {slot.name!r} {fact}, which it cannot represent exactly. Convert it first.")


@dataclass(frozen=True)
class Footprint:
    """The shape of the input that a file fills, bytes while it is read whole, and bytes that are kept."""

    shape: tuple[int, ...]
    peak: int
    held: int


def footprint(source: InputFile, slot: Slot, rule: PixelRule) -> Footprint:
    """The memory that a file takes as an input of a model."""
    layout, batch = rule.layout, 1
    with source.open() as stream:
        if not source.is_image:
            return _of_array(source, stream, slot, layout)
        file_format = BY_SUFFIX[source.suffix]
        assert file_format.decoding_bytes is not None
        spatial, channels, peak, held = file_format.decoding_bytes(stream, str(source))
        if file_format.content is Content.PAGES:
            *pages, height, width = spatial
            is_volume = slot.spatial_rank(layout) == 3
            if rule.pages == BATCH and len(pages) > is_volume:
                batch = pages.pop(0)
            spatial = (prod(pages), height, width) if is_volume else (height, width)
    spatial = tuple(spatial[: slot.spatial_rank(layout)])
    count = slot.channels(layout) or channels
    shape = (batch, count, *spatial) if layout == "nchw" else (batch, *spatial, count)
    return Footprint(shape, peak, held)


def _of_array(source: InputFile, stream: BinaryIO, slot: Slot, layout: str) -> Footprint:
    if source.member is None:
        header = read_header(stream, _size_of(stream), str(source))
    else:
        member = f"{source.member}.npy"
        with zipfile.ZipFile(stream) as archive, archive.open(member) as file:
            header = read_header(file, archive.getinfo(member).file_size, str(source))
    shape, dtype = header.shape, header.dtype
    placeholder = np.broadcast_to(np.empty((), dtype), shape)
    count, width = prod(shape), max(dtype.itemsize, slot.dtype.itemsize)
    # cast to the type of the input, and back to see that nothing was lost
    peak = count * dtype.itemsize if dtype == slot.dtype else count * 3 * width
    return Footprint(of_rank(placeholder, slot, layout).shape, peak, count * slot.dtype.itemsize)


def _size_of(stream: BinaryIO) -> int:
    size = stream.seek(0, 2)
    stream.seek(0)
    return size
