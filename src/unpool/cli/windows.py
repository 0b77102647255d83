"""A model opened for one command line, and its inputs as sources of windows, as far as their formats allow."""

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unpool.cli.errors import UsageError, exit_code, one_line, print_error
from unpool.cli.feed import Footprint, footprint, pixel_notes, read_one, takes_numbers, to_input
from unpool.cli.inputs import InputFile, Item
from unpool.cli.metadata import PixelRule
from unpool.cli.model import Slot, naming_layout, smallest_size_error
from unpool.cli.progress import ProgressDisplay
from unpool.cli.render import ClassStyle
from unpool.cli.run_config import RunConfig
from unpool.errors import ShapeError, UnpoolError, UnsupportedError
from unpool.images import formats
from unpool.images.axes import AxisMapping, Shape, Slices, channel_axis, spatial_axes
from unpool.images.pixels import Backdrop, Picture, to_channels
from unpool.images.source import BATCH, TiledSource, fingerprint_array
from unpool.memory import rss, trim_heap
from unpool.onnxruntime.session import InferenceSession
from unpool.runtime.streams.jobs import AUTO, ExactTilePlan, TileRequest
from unpool.runtime.tiles.blending import BlendOptions
from unpool.runtime.tiles.run import memory_limit_message

WRITTEN_TYPES = tuple(f"tensor({kind}" for kind in ("float", "double", "float16", "uint", "int", "bool"))
FLOATS = ("tensor(float)", "tensor(double)", "tensor(float16)")
LITTLE = 32 << 20  # bytes below which another format of the output makes no difference
_log = logging.getLogger("unpool.cli")


@dataclass
class ModelRun:
    """A model opened for one command line."""

    config: RunConfig
    session: InferenceSession  # replaced by another one when it holds too much memory
    slots: Mapping[str, Slot]  # the inputs by name
    outputs: Mapping[str, str]  # the types of the wanted outputs by name, in the words of a session
    rule: PixelRule
    style: ClassStyle
    progress: ProgressDisplay

    @property
    def request(self) -> TileRequest:
        """The arguments of a run over windows of files."""
        config, blending = self.config, None
        if config.blend is not None and isinstance(config.tiles, tuple | int):
            blending = BlendOptions(config.tiles, overlap=config.tile_overlap, mode=config.blend)
        names, layout = list(self.outputs), config.layout.upper()
        return TileRequest(config.tiles or AUTO, config.max_memory, names, config.scores, layout, blending)

    @property
    def are_outputs_plain(self) -> bool:
        """True if all outputs are tensors of types that can be written in windows."""
        return all(kind.startswith(WRITTEN_TYPES) for kind in self.outputs.values())

    @property
    def gives_class_numbers(self) -> bool:
        """True if the model computes the numbers of the classes, not scores."""
        is_float = next(iter(self.outputs.values())) in FLOATS
        return self.config.makes_classes and self.config.threshold is None and not is_float

    def check_sizes(self, item: Item, feed: Mapping[str, Any]) -> None:
        """Refuse images that are smaller than the model can use: parts of it would see nothing."""
        if self.config.allow_empty or self.config.blend is not None:
            return
        shapes = {name: value.shape for name, value in feed.items()}
        message = smallest_size_error(self.session, shapes, self.config.layout)
        if message is not None:
            hint = "--allow-empty computes it as the standard says, with empty values."
            raise ShapeError(f"{item.label}: {message} {hint}")


class PixelSource:
    """An image file as an input of a model: its pixels are scaled and cast window by window."""

    def __init__(self, source: TiledSource, slot: Slot, rule: PixelRule) -> None:
        self.source, self.slot, self.rule, self.layout = source, slot, rule, rule.layout.upper()
        self.white, self.spatial_header = rule.white_of(source.white_level), source.spatial_header
        self.dtype, self.ndim = slot.dtype, len(source.shape)
        shape, channel = list(source.shape), channel_axis(self.ndim, self.layout)
        shape[channel] = slot.channels(rule.layout) or shape[channel]
        self.shape: Shape = tuple(shape)

    def __getitem__(self, slices: Slices) -> NDArray[Any]:
        picture = self.picture(slices)
        is_of_file = self.white is not None and self.white == self.source.white_level
        if self.rule.white is None and is_of_file and picture.pixels.max(initial=0) > self.white:
            expected = f"pixels up to {self.white:g}, which the file says is white, got {picture.pixels.max()}"
            raise UnpoolError(f"{self.source.path}: expected {expected}. Set the value of white with --white.")
        return to_input(picture, self.slot, self.rule, str(self.source.path))

    def picture(self, slices: Slices) -> Picture:
        """A window as it is to be looked at: pixels as `Picture` has them, in the type of the file."""
        is_batch, channel = self.rule.pages == BATCH, channel_axis(self.ndim, self.layout)
        last = np.moveaxis(self.source[slices], channel, -1)
        pixels = to_channels(last if is_batch else last[0], self.shape[channel], str(self.source.path))
        return Picture(pixels, self.white, spatial_header=self.spatial_header, is_batch=is_batch)

    def backdrop(self, page: int) -> Backdrop:
        """An image of the batch as the backdrop of classes; windows of it are read."""
        axes = spatial_axes(self.ndim, self.layout)

        def read(start: int, stop: int) -> Picture:
            slices = [slice(0, size) for size in self.shape]
            slices[0], slices[axes[0]] = slice(page, page + 1), slice(start, stop)
            slices[channel_axis(self.ndim, self.layout)] = slice(None)
            (picture,) = self.picture(tuple(slices)).pages
            return picture

        return Backdrop(tuple(self.shape[axis] for axis in axes), read)

    def fingerprint(self) -> str:
        """The fingerprint of the file."""
        return self.source.fingerprint()

    def settings(self) -> dict[str, Any]:
        """The options that make an input of pixels, by their names."""
        return self.rule.settings()


@dataclass(frozen=True)
class Unread:
    """A file with only its header read so far; `read` gives it whole as an input of this `dtype`."""

    footprint: Footprint
    dtype: np.dtype[Any]
    read: Callable[[], Any]

    @property
    def shape(self) -> Shape:
        """Of the whole input."""
        return self.footprint.shape

    def __getitem__(self, slices: Slices) -> NDArray[Any]:
        window: NDArray[Any] = self.read()[slices]
        return window


def open_feed(
    run: ModelRun, item: Item, request: TileRequest, buffer_bytes: Callable[[Mapping[str, Any]], int] = lambda _: 0
) -> tuple[dict[str, Any], list[str]]:
    """Every input of an item as something that gives windows, and assumptions about pixels.

    Other files are read whole, once it is clear that with `buffer_bytes` more the run keeps the limit of memory.
    """
    notes: list[str] = []
    feed = {name: _open_input(run, source, run.slots[name], notes) for name, source in item.sources.items()}
    run.check_sizes(item, feed)
    if request.max_memory is not None:
        plan = None if request.blending is not None else ExactTilePlan(run.session, feed, request)
        if plan is not None:
            plan.load_kernels(request.max_memory)
        trim_heap()
        _require_memory(run, feed, plan, request.max_memory, buffer_bytes(feed))
    read = {name: value.read() if isinstance(value, Unread) else value for name, value in feed.items()}
    if request.max_memory is not None:
        trim_heap()
    return read, list(dict.fromkeys(notes))


def _require_memory(
    run: ModelRun, feed: Mapping[str, Any], plan: ExactTilePlan | None, limit: int, buffers: int
) -> None:
    used, held, needed = rss(), 0, 0
    for source in feed.values():
        if isinstance(source, Unread):
            needed = max(needed, held + source.footprint.peak)
            held += source.footprint.held
    if plan is not None:
        needed = max(needed, held + plan.least_bytes() + buffers)
    if needed and used + needed > limit:
        is_by_windows = run.config.file_format.windows is not None and not run.config.is_stdout
        hint = "" if held + buffers < LITTLE or is_by_windows else " For .zarr or .npy output less is enough."
        raise ShapeError(memory_limit_message("--max-memory", limit, used, needed) + hint)


def _open_input(run: ModelRun, source: InputFile, slot: Slot, notes: list[str]) -> Any:
    """A file as an input of a model: to be read in windows where its format allows, else to be read whole."""
    read_whole = partial(_whole, run, source, slot, notes)
    open_windows = partial(_in_windows, run, source, slot, notes)
    known = formats.format_of(source.path)
    with naming_layout([slot] if source.is_image else [], run.rule.layout):
        if source.member is not None or source.content is not None or known is None or known.open is None:
            return _unread(run, source, slot, read_whole)
        if known.windows is None:  # compressed: all of it is read
            return _unread(run, source, slot, open_windows)
        try:
            return open_windows()
        except UnsupportedError as error:
            if run.config.level or source.is_for_windows:
                raise
            _log.info("%s", one_line(error))
            return _unread(run, source, slot, read_whole)


def _unread(run: ModelRun, source: InputFile, slot: Slot, read: Callable[[], Any]) -> Any:
    if run.config.max_memory is None:
        return read()
    try:
        size = footprint(source, slot, run.rule)
    except Exception:  # reading the whole file gives the error about a header that cannot be read
        return read()
    slot.check_shape(size.shape, str(source))
    return Unread(size, slot.dtype, read)


def _in_windows(run: ModelRun, source: InputFile, slot: Slot, notes: list[str]) -> Any:
    rule, layout = run.rule, run.rule.layout
    stored = formats.open(
        source.path,
        rank=2 + slot.spatial_rank(layout) if source.is_image or slot.shape is None else len(slot.shape),
        layout=layout.upper(),
        level=run.config.level,
        channels=slot.channels(layout),
        pages=rule.pages,
    )
    if stored.warning:
        notes.append(stored.warning)
    if source.is_image:
        has_unit = stored.spatial_header is not None
        notes += rule.notes(stored.dtype, stored.white_level, takes_numbers(slot), has_unit)
    opened = PixelSource(stored, slot, rule) if source.is_image else stored
    slot.check_shape(opened.shape, str(source))
    return opened


def _whole(run: ModelRun, source: InputFile, slot: Slot, notes: list[str]) -> Any:
    """A file that was read: an array, or the pixels as they are stored, which become numbers window by window."""
    rule = run.rule
    if run.config.level:
        raise UsageError(f"--level: {source} has no levels. Leave it out.")
    if not source.is_image:
        array, _, assumptions = read_one(source, slot, rule)
        notes += assumptions
        return array
    with source.open() as stream:
        rank, channels = slot.spatial_rank(rule.layout), slot.channels(rule.layout)
        picture = formats.read_stored(stream, source.suffix, str(source), rank, channels, rule.pages)
    notes += pixel_notes(rule, picture, slot)
    stored, is_batch, layout = picture.pixels, picture.is_batch, rule.layout.upper()
    rank = stored.ndim + (not is_batch)
    axes = (*([0] if is_batch else []), *spatial_axes(rank, layout), channel_axis(rank, layout))
    tiled = TiledSource(
        Path(str(source)),
        stored.shape,
        stored.dtype,
        AxisMapping(axes, rank),
        lambda slices: stored[slices],
        lambda: fingerprint_array(stored),
        picture.white_level,
        picture.spatial_header,
    )
    pixels = PixelSource(tiled, slot, rule)
    slot.check_shape(pixels.shape, str(source))
    return pixels


@contextmanager
def ending_at_once(undo: Callable[[], None], *, can_resume: bool) -> Iterator[None]:
    """End the process at once on Ctrl-C or a signal, not after the tile that is being computed.

    The threads that compute it are in compiled code, which the end of the interpreter would pull away under them.
    `undo` removes what an interrupted command would leave; with `can_resume` the message names --resume.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as error:
        reason = "interrupted" if isinstance(error, KeyboardInterrupt) else "terminated"
        undo()
        print_error(f"{reason}{'; --resume continues after the last tile that was written' if can_resume else ''}")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else exit_code(error))
