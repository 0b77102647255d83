"""Runs a model over windows of files, as the command line asks."""

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from unpool.cli.exits import UsageError, exit_code, one_line, print_error
from unpool.cli.feeds import read_one, takes_numbers, to_input
from unpool.cli.inputs import Item, Source
from unpool.cli.model import Slot
from unpool.cli.picture import Picture, to_channels
from unpool.cli.pixels import PixelRule
from unpool.cli.run_options import Request
from unpool.cli.tiles import AUTO
from unpool.errors import UnpoolError, UnsupportedError
from unpool.runtime.streams import opening
from unpool.runtime.streams.arrangement import Shape, Slices, channel_axis
from unpool.runtime.streams.blend import blend
from unpool.runtime.streams.doing import Finished
from unpool.runtime.streams.progress import Progress
from unpool.runtime.streams.run import run
from unpool.runtime.streams.source import Source as Stored

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession

Told: TypeAlias = Callable[[Progress], None]

WRITTEN_TYPES = ("float", "double", "float16", "uint", "int", "bool")

_log = logging.getLogger("unpool.cli")


@dataclass(frozen=True)
class PixelSource:
    """An image file as an input of a model: its pixels are scaled and cast window by window.

    Attributes:
        source: of the pixels, as they are stored.
        slot: the input.
        rule: how pixels become numbers.
    """

    source: Stored
    slot: Slot
    rule: PixelRule

    @property
    def white(self) -> float | None:
        """The value that means white."""
        return self.rule.white_of(self.source.white)

    @property
    def shape(self) -> Shape:
        """Of the whole input."""
        found = list(self.source.shape)
        channel = channel_axis(len(found), self.rule.layout.upper())
        found[channel] = self.slot.channels(self.rule.layout) or found[channel]
        return tuple(found)

    @property
    def space(self) -> Any:
        """The header that says where the voxels are, if the file has one."""
        return self.source.space

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
        where = str(self.source.path)
        stored = self.source[slices]
        pixels = np.moveaxis(stored[0], channel_axis(stored.ndim, self.rule.layout.upper()) - 1, -1)
        is_of_file = self.white is not None and self.white == self.source.white
        if self.rule.white is None and is_of_file and pixels.max(initial=0) > self.white:
            raise UnpoolError(
                f"{where}: expected pixels up to {self.white:g}, which the file says is white, got {pixels.max()}. "
                "Say with --white what is white."
            )
        channels = self.shape[channel_axis(stored.ndim, self.rule.layout.upper())]
        return to_input(Picture(to_channels(pixels, channels, where), self.white), self.slot, self.rule, where)

    def identity(self) -> str:
        """Equal for the same pixels, treated alike."""
        return f"{self.source.identity()} {self.rule}"


def takes_windows(request: Request, item: Item, session: "InferenceSession", wanted: Sequence[str]) -> bool:
    """Whether a run goes through files window by window; otherwise inputs and outputs are in memory.

    Raises:
        UsageError: it has to, and what is asked for cannot be written so.
    """
    needs = request.needs_windows or any(source.is_for_windows for source in item.sources.values())
    if needs and not request.may_take_windows:
        raise UsageError(
            f"-o {request.output.path}: such inputs are read in windows, which go to .npy, .tif, .zarr or .nii "
            "without --overlay. Choose another output."
        )
    kinds = {value.name: value.type for value in session.get_outputs()}
    is_plain = all(kinds[name].startswith(tuple(f"tensor({kind}" for kind in WRITTEN_TYPES)) for name in wanted)
    return needs or (request.tiles.size is not None and request.may_take_windows and is_plain)


def run_over_windows(
    session: "InferenceSession",
    request: Request,
    item: Item,
    slots: Mapping[str, Slot],
    places: Mapping[str, Path],
    told: Told,
) -> tuple[Finished, list[str]]:
    """Run one item into a file by output; what was written, and what was taken for granted about pixels."""
    notes: list[str] = []
    feed = {name: _opened(source, slots[name], request, notes) for name, source in item.sources.items()}
    with _ending_at_once():
        done = _run(session, request, feed, places, told)
    if done.was_complete:
        notes.append(f"{done.path} was already complete; nothing was computed")
    return done, list(dict.fromkeys(notes))


def _run(
    session: "InferenceSession", request: Request, feed: Mapping[str, Any], places: Mapping[str, Path], told: Told
) -> Finished:
    """In exact tiles, or in windows that are averaged."""
    tiles = request.tiles
    words: dict[str, Any] = {
        "argmax": request.argmax,
        "max_memory": tiles.memory,
        "layout": request.rule.layout.upper(),
        "resume": request.resume,
        "told": told,
    }
    if tiles.blend is not None and isinstance(tiles.size, tuple):
        return blend(session, feed, places, tiles.size, overlap=tiles.overlap, mode=tiles.blend, **words)
    return run(session, feed, places, AUTO if tiles.size is None else tiles.size, **words)


def _opened(source: Source, slot: Slot, request: Request, notes: list[str]) -> Any:
    """A file as an input of a model: read in windows where its format allows, else whole."""
    rule, layout = request.rule, request.rule.layout
    if source.member is not None or source.content is not None or opening.ending_of(source.path) is None:
        return _whole(source, slot, request, notes)
    rank = 2 + slot.spatial_rank(layout) if source.is_image or slot.shape is None else len(slot.shape)
    try:
        found = opening.open_source(
            source.path, rank=rank, layout=layout.upper(), level=request.level, channels=slot.channels(layout)
        )
    except UnsupportedError as error:
        if request.level:
            raise
        _log.info("%s", one_line(error))
        return _whole(source, slot, request, notes)
    if found.note:
        notes.append(found.note)
    if not source.is_image:
        slot.check_shape(found.shape, str(source))
        return found
    pixels = PixelSource(found, slot, rule)
    notes += rule.notes(found.dtype, found.white, takes_numbers(slot), found.space is not None)
    slot.check_shape(pixels.shape, str(source))
    return pixels


def _whole(source: Source, slot: Slot, request: Request, notes: list[str]) -> NDArray[Any]:
    if request.level:
        raise UsageError(f"--level: {source} has no levels. Leave it out.")
    array, _, told = read_one(source, slot, request.rule)
    notes += told
    return array


@contextmanager
def _ending_at_once() -> Iterator[None]:
    """Let the process end when it is told to, and not when the tile that is being computed is done.

    The threads that compute it are in compiled code, which the end of the interpreter would pull away under them.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as error:
        why = "interrupted" if isinstance(error, KeyboardInterrupt) else "told to end"
        print_error(f"{why}; --resume goes on from the last tile that was written")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else exit_code(error))
