"""Runs a model over windows of files, as the command line asks."""

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unpool.cli.errors import UsageError, exit_code, one_line, print_error
from unpool.cli.feed import pixel_notes, read_one, takes_numbers, to_input
from unpool.cli.footprint import Footprint, footprint
from unpool.cli.inputs import InputFile, Item
from unpool.cli.metadata import PixelRule
from unpool.cli.model import Slot
from unpool.cli.run_config import AUTO, RunConfig
from unpool.errors import ShapeError, UnpoolError, UnsupportedError
from unpool.images import formats
from unpool.images.axes import AxisMapping, Shape, Slices, channel_axis, spatial_axes
from unpool.images.fingerprint import fingerprint_array
from unpool.images.formats import read_stored
from unpool.images.pixels import Picture, to_channels
from unpool.images.source import BATCH, TiledSource
from unpool.memory_limits import rss, trim
from unpool.runtime.streams.jobs import ExactTilePlan, TileRequest
from unpool.runtime.streams.run import run_locked
from unpool.runtime.streams.runner import ProgressCallback, RunResult
from unpool.runtime.tiles.blending import BlendOptions
from unpool.runtime.tiles.run import memory_limit_message

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession

WRITTEN_TYPES = ("float", "double", "float16", "uint", "int", "bool")
PACKED = ".nii.gz"
LITTLE = 32 << 20
"""Bytes below which another format of the output makes no difference."""

_log = logging.getLogger("unpool.cli")


@dataclass(frozen=True)
class PixelSource:
    """An image file as an input of a model: its pixels are scaled and cast window by window.

    Attributes:
        source: of the pixels, as they are stored.
        slot: the input.
        rule: how pixels become numbers.
    """

    source: TiledSource
    slot: Slot
    rule: PixelRule

    @property
    def white(self) -> float | None:
        """The value that means white."""
        return self.rule.white_of(self.source.white_level)

    @property
    def shape(self) -> Shape:
        """Of the whole input."""
        found = list(self.source.shape)
        channel = channel_axis(len(found), self.rule.layout.upper())
        found[channel] = self.slot.channels(self.rule.layout) or found[channel]
        return tuple(found)

    @property
    def spatial_header(self) -> Any:
        """The header that says where the voxels are, if the file has one."""
        return self.source.spatial_header

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the input."""
        return self.slot.dtype

    def __getitem__(self, slices: Slices) -> NDArray[Any]:
        """A window, of all channels."""
        picture = self.picture(slices)
        pixels = picture.pixels
        is_of_file = self.white is not None and self.white == self.source.white_level
        if self.rule.white is None and is_of_file and pixels.max(initial=0) > self.white:
            raise UnpoolError(
                f"{self.source.path}: expected pixels up to {self.white:g}, which the file says is white, "
                f"got {pixels.max()}. Say with --white what is white."
            )
        return to_input(picture, self.slot, self.rule, str(self.source.path))

    def picture(self, slices: Slices) -> Picture:
        """A window as it is to be looked at: pixels as `Picture` has them, in the type of the file."""
        stored = self.source[slices]
        channel = channel_axis(stored.ndim, self.rule.layout.upper())
        is_batch = self.rule.pages == BATCH
        last = np.moveaxis(stored, channel, -1)
        pixels = to_channels(last if is_batch else last[0], self.shape[channel], str(self.source.path))
        return Picture(pixels, self.white, spatial_header=self.spatial_header, is_batch=is_batch)

    def fingerprint(self) -> str:
        """Equal for the same pixels, treated alike."""
        return f"{self.source.fingerprint()} {self.rule}"


@dataclass(frozen=True)
class Unread:
    """A file that is read whole, while only its header is known.

    Attributes:
        footprint: the memory that it takes.
        dtype: of the input.
        read: the file as an input.
    """

    footprint: Footprint
    dtype: np.dtype[Any]
    read: Callable[[], Any]

    @property
    def shape(self) -> Shape:
        """Of the whole input."""
        return self.footprint.shape

    def __getitem__(self, slices: Slices) -> NDArray[Any]:
        """A window, once the file is read."""
        window: NDArray[Any] = self.read()[slices]
        return window


def takes_windows(config: RunConfig, item: Item, session: "InferenceSession", wanted: Sequence[str]) -> bool:
    """True if windows go straight into the output files.

    Raises:
        UsageError: they have to, and what is asked for cannot be written so.
    """
    needs = config.needs_windows or any(source.is_for_windows for source in item.sources.values())
    if needs and not config.may_take_windows:
        raise UsageError(
            f"-o {config.output.path}: such inputs are read in windows, which go to .npy, .tif, .zarr or .nii "
            "without --overlay. Choose another output."
        )
    return needs or (config.tile is not None and config.may_take_windows and are_plain(session, wanted))


def are_plain(session: "InferenceSession", wanted: Sequence[str]) -> bool:
    """True if all outputs are tensors of types that can be written in windows."""
    kinds = {value.name: value.type for value in session.get_outputs()}
    return all(kinds[name].startswith(tuple(f"tensor({kind}" for kind in WRITTEN_TYPES)) for name in wanted)


def run_over_windows(
    session: "InferenceSession",
    config: RunConfig,
    feed: Mapping[str, Any],
    places: Mapping[str, Path],
    on_progress: ProgressCallback,
    undo: Callable[[], None],
    *,
    can_resume: bool,
) -> RunResult:
    """Run one item into a file by output; the caller holds the locks of these.

    Args:
        session: of the model.
        config: the command line.
        feed: every input, as `open_feed` gives it.
        places: by output, its file.
        on_progress: called with the progress of the run.
        undo: removes what an interrupted command would leave.
        can_resume: whether the files of an interrupted run stay, to be resumed.
    """
    tile_request = _tile_request(config, list(places), config.tile or AUTO, config.max_memory)
    if config.blend is not None and isinstance(config.tile, tuple):
        blending = BlendOptions(config.tile, overlap=config.overlap, mode=config.blend)
        tile_request = replace(tile_request, blending=blending)
    with _ending_at_once(undo, can_resume=can_resume):
        return run_locked(session, feed, places, tile_request, resume=config.resume, on_progress=on_progress)


def open_feed(
    session: "InferenceSession",
    config: RunConfig,
    item: Item,
    slots: Mapping[str, Slot],
    outputs: Sequence[str],
    check: Callable[[Mapping[str, Any]], None],
    beside: Callable[[Mapping[str, Any]], int] = lambda _: 0,
) -> tuple[dict[str, Any], list[str]]:
    """Every input of an item as something that gives windows, and what was taken for granted about pixels.

    Args:
        session: of the model.
        config: the command line.
        item: whose files are opened; those that cannot be read in windows are read.
        slots: the inputs.
        outputs: that are wanted.
        check: raises where inputs of these shapes cannot be run, before any other error of their sizes.
        beside: bytes that are held in addition to the run, from the shapes of the inputs.

    Raises:
        ShapeError: the run takes more memory than it may have; nothing is read then.
    """
    notes: list[str] = []
    feed = {name: _open_input(source, slots[name], config, notes) for name, source in item.sources.items()}
    check(feed)
    is_bounded = config.max_memory is not None
    if is_bounded:
        if config.blend is None:
            ExactTilePlan(session, feed, _tile_request(config, outputs)).load_kernels(config.max_memory or 0)
        trim()
        _require_memory(session, config, feed, outputs, beside(feed))
    read = {name: one.read() if isinstance(one, Unread) else one for name, one in feed.items()}
    if is_bounded:
        trim()
    return read, list(dict.fromkeys(notes))


def _tile_request(
    config: RunConfig, outputs: Sequence[str], tile: Sequence[int] | str = AUTO, memory: int | None = None
) -> TileRequest:
    return TileRequest(tile, memory, outputs, config.scores, config.rule.layout.upper())


def _require_memory(
    session: "InferenceSession", config: RunConfig, feed: Mapping[str, Any], outputs: Sequence[str], beside: int
) -> None:
    """Refuse a run that takes more memory than it may have, by the headers of its files."""
    most, used = config.max_memory or 0, rss()
    held = peak = 0
    for one in feed.values():
        if isinstance(one, Unread):
            peak = max(peak, held + one.footprint.peak)
            held += one.footprint.held
    needed = peak
    if config.blend is None:
        least = ExactTilePlan(session, feed, _tile_request(config, outputs)).least_bytes()
        needed = max(peak, held + least + beside)
    if needed and used + needed > most:
        less = "" if held + beside < LITTLE or config.may_take_windows else " For .zarr or .npy output less is enough."
        raise ShapeError(memory_limit_message("--max-memory", most, used, needed) + less)


def _open_input(source: InputFile, slot: Slot, config: RunConfig, notes: list[str]) -> Any:
    """A file as an input of a model: to be read in windows where its format allows, else to be read whole."""
    if source.member is not None or source.content is not None or formats.ending_of(source.path) is None:
        return _unread(source, slot, config, lambda: _whole(source, slot, config, notes))
    if source.suffix == PACKED:
        return _unread(source, slot, config, lambda: _in_windows(source, slot, config, notes))
    try:
        return _in_windows(source, slot, config, notes)
    except UnsupportedError as error:
        if config.level or source.is_for_windows:
            raise
        _log.info("%s", one_line(error))
        return _unread(source, slot, config, lambda: _whole(source, slot, config, notes))


def _unread(source: InputFile, slot: Slot, config: RunConfig, read: Callable[[], Any]) -> Any:
    """A file that is read whole; only a limit of memory makes its header matter before."""
    if config.max_memory is None:
        return read()
    try:
        found = footprint(source, slot, config.rule)
    except Exception:  # a header that cannot be read is one more reason to read the file, which says all about it
        return read()
    slot.check_shape(found.shape, str(source))
    return Unread(found, slot.dtype, read)


def _in_windows(source: InputFile, slot: Slot, config: RunConfig, notes: list[str]) -> Any:
    rule, layout = config.rule, config.rule.layout
    rank = 2 + slot.spatial_rank(layout) if source.is_image or slot.shape is None else len(slot.shape)
    found = formats.open(
        source.path,
        rank=rank,
        layout=layout.upper(),
        level=config.level,
        channels=slot.channels(layout),
        pages=rule.pages,
    )
    if found.warning:
        notes.append(found.warning)
    if not source.is_image:
        slot.check_shape(found.shape, str(source))
        return found
    pixels = PixelSource(found, slot, rule)
    notes += rule.notes(found.dtype, found.white_level, takes_numbers(slot), found.spatial_header is not None)
    slot.check_shape(pixels.shape, str(source))
    return pixels


def _whole(source: InputFile, slot: Slot, config: RunConfig, notes: list[str]) -> Any:
    """A file that was read: an array, or the pixels as they are stored, which become numbers window by window."""
    if config.level:
        raise UsageError(f"--level: {source} has no levels. Leave it out.")
    if not source.is_image:
        array, _, told = read_one(source, slot, config.rule)
        notes += told
        return array
    rule = config.rule
    with source.open() as stream:
        rank, channels = slot.spatial_rank(rule.layout), slot.channels(rule.layout)
        stored = read_stored(stream, source.suffix, str(source), rank, channels, rule.pages)
    notes += [*stored.notes, *pixel_notes(rule, stored, slot), *rule.above(stored)]
    pixels = PixelSource(_stored_source(source, stored, rule.layout), slot, rule)
    slot.check_shape(pixels.shape, str(source))
    return pixels


def _stored_source(source: InputFile, picture: Picture, layout: str) -> TiledSource:
    """Pixels in memory as a source."""
    pixels, rank = picture.pixels, picture.pixels.ndim + (0 if picture.is_batch else 1)
    axes = (
        *((0,) if picture.is_batch else ()),
        *spatial_axes(rank, layout.upper()),
        channel_axis(rank, layout.upper()),
    )
    return TiledSource(
        Path(str(source)),
        pixels.shape,
        pixels.dtype,
        AxisMapping(axes, rank),
        lambda slices: pixels[slices],
        lambda: fingerprint_array(pixels),
        picture.white_level,
        picture.spatial_header,
    )


@contextmanager
def _ending_at_once(undo: Callable[[], None], *, can_resume: bool) -> Iterator[None]:
    """End the process at once on Ctrl-C or a signal, not after the tile that is being computed.

    The threads that compute it are in compiled code, which the end of the interpreter would pull away under them.

    Args:
        undo: removes what an interrupted command would leave.
        can_resume: whether to say that the run can be resumed.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as error:
        why = "interrupted" if isinstance(error, KeyboardInterrupt) else "terminated"
        undo()
        print_error(f"{why}{'; --resume continues after the last tile that was written' if can_resume else ''}")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else exit_code(error))
