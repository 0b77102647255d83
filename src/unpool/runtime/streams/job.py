"""A run in exact tiles: which tiles, from where, what is written of them, and all that depends on."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from unpool.errors import FileError, UnpoolError
from unpool.images.axes import Shape, Slices
from unpool.images.sink import OutputSpec
from unpool.memory_limits import rss
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.streams.doing import session_settings
from unpool.runtime.streams.journal import Settings
from unpool.runtime.streams.result import SOFTMAX, Result, Scores, Whole, result_of
from unpool.runtime.streams.work import (
    BESIDES,
    IN_HANDS,
    Made,
    Stage,
    identities,
    read_uncut,
    sources_of,
    spatial_header_of,
)
from unpool.runtime.tiles.fitting import WHOLE, fitted, least_bytes
from unpool.runtime.tiles.run import compute_tile, read_tile
from unpool.runtime.tiles.tiler import Tiler
from unpool.runtime.tiles.tiling import Tile, Tiling

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession

AUTO = "auto"


@dataclass(frozen=True)
class Asked:
    """What a caller asks for, in the words of `run`."""

    tile: Sequence[int] | str
    max_memory: int | None
    outputs: Sequence[str]
    scores: Scores
    layout: str

    @property
    def words(self) -> Settings:
        """All of it by the names of its words."""
        own: dict[str, Any] = asdict(self)
        return {**own.pop("scores"), **own}

    def __post_init__(self) -> None:
        object.__setattr__(self, "outputs", list(self.outputs))
        if isinstance(self.tile, str):
            if self.tile != AUTO:
                raise UnpoolError(
                    f'tile: expected "auto" or a size per spatial axis, got {self.tile!r}. '
                    "Pass a list such as [512, 512]."
                )
        else:
            object.__setattr__(self, "tile", [int(length) for length in self.tile])


@dataclass(frozen=True)
class Job:
    """What is to be done; a part of it is a tile.

    Attributes:
        session: that runs the tiles.
        tiling: of the image.
        feed: every input; those that are not cut are arrays.
        results: by output, what is written.
        settings: all that the results depend on, as it is written into a journal.
    """

    session: "InferenceSession"
    tiling: Tiling
    feed: Mapping[str, Any]
    results: Mapping[str, Result]
    settings: Settings

    @property
    def written(self) -> dict[str, OutputSpec]:
        """By output, what goes into its file."""
        return {name: result.written for name, result in self.results.items()}

    def __len__(self) -> int:
        return len(self.tiling)

    def windows(self, part: int) -> dict[str, Slices]:
        """Where a tile goes in the files of the outputs to which it gives something."""
        return {name: self.results[name].window(slices) for name, slices in self.tiling[part].filled.items()}

    def items(self, left: Collection[int]) -> Iterable[Tile]:
        """The tiles that are left."""
        return (tile for tile in self.tiling if tile.number in left)

    def stages(self, options: onnxruntime.RunOptions) -> Sequence[Stage]:
        """Read a tile, and compute it."""

        def read(tile: Tile) -> tuple[Tile, Any]:
            return tile, read_tile(tile, self.feed)

        def compute(given: tuple[Tile, Any]) -> Made:
            tile, read = given
            made = compute_tile(self.session, self.tiling, tile, read, options)
            return tile.number, {name: self.results[name].of(made[name]) for name in tile.filled}

        return read, compute


def job(session: "InferenceSession", feed: Mapping[str, Any], asked: Asked, earlier: Settings | None) -> Job:
    """What is to be done for a feed of paths, sources and arrays; nothing of them is read but what is not cut.

    Args:
        session: that runs the tiles.
        feed: every input by name.
        asked: by the caller.
        earlier: the settings of an earlier run, whose tiles are taken again where they were chosen by memory.

    Raises:
        UnpoolError: an input is missing or of another type, or an output is not one of the model's.
    """
    sources = sources_of(session, feed, asked.layout)
    tiler = Tiler(session, layout=asked.layout, outputs=asked.outputs)
    shapes = {key: tuple(source.shape) for key, source in sources.items()}
    cell = _cell(tiler, sources, asked, earlier)
    tiling = tiler.tiling(shapes, cell, is_even=asked.tile == AUTO)
    spatial_header = spatial_header_of(sources)
    results = {name: result_of(session, _whole(tiling, name), asked.scores, spatial_header) for name in asked.outputs}
    settings = {
        **session_settings(session),
        "inputs": identities(sources),
        **asked.words,
        "cell": [int(length) for length in cell],
        "types": [result.written.dtype.str for result in results.values()],
        "shapes": [list(result.written.shape) for result in results.values()],
    }
    return Job(session, tiling, read_uncut(sources, tiling.inputs), results, settings)


def _cell(tiler: Tiler, sources: Mapping[str, Any], asked: Asked, earlier: Settings | None) -> Sequence[int]:
    """Elements of the first input of which a tile gives the results."""
    if not isinstance(asked.tile, str):
        return asked.tile
    if earlier is not None and "cell" in earlier:
        return _earlier_cell(earlier["cell"])

    shapes = {key: tuple(source.shape) for key, source in sources.items()}
    return fitted(tiler, shapes, asked.max_memory, _beside(tiler, sources, asked)).tile


def least_memory(session: "InferenceSession", feed: Mapping[str, Any], asked: Asked) -> int:
    """Bytes that a run in the smallest tiles takes, beside what the process has and what the sources hold.

    Args:
        session: that would run the tiles.
        feed: every input by name; of those that are no paths, only the shape and the type count.
        asked: by the caller.
    """
    sources = sources_of(session, feed, asked.layout)
    tiler = Tiler(session, layout=asked.layout, outputs=asked.outputs)
    shapes = {key: tuple(source.shape) for key, source in sources.items()}
    return least_bytes(tiler, shapes, _beside(tiler, sources, asked))


def load_kernels(session: "InferenceSession", feed: Mapping[str, Any], asked: Asked, most: int) -> None:
    """Run the smallest tile on zeros, so that the memory of kernels and their packages counts as taken.

    Args:
        session: that will run the tiles.
        feed: every input by name; of those that are no paths, only the shape and the type count.
        asked: by the caller.
        most: bytes that the process may have; nothing is run where the smallest tile takes more.
    """
    sources = sources_of(session, feed, asked.layout)
    tiler = Tiler(session, layout=asked.layout, outputs=asked.outputs)
    shapes = {key: tuple(source.shape) for key, source in sources.items()}
    if rss() + least_bytes(tiler, shapes, _beside(tiler, sources, asked)) > most:
        return
    smallest = tiler.tiling(shapes, [max(tiler.strides(shapes))] * len(tiler.strides(shapes)), is_even=True)
    cut = smallest.largest()
    fed = {key: np.zeros(cut.get(key, shapes[key]), source.dtype) for key, source in sources.items()}
    with suppress(UnpoolError):  # of what is wrong with the model, the first tile tells
        session.run(list(asked.outputs), fed)


def _beside(tiler: Tiler, sources: Mapping[str, Any], asked: Asked) -> Callable[[Tiling], int]:
    """By tiling, the bytes that are held beside a tile that is being computed."""

    def beside(tiling: Tiling) -> int:
        read = sum(prod(shape) * sources[key].dtype.itemsize for key, shape in tiling.largest().items())
        results = [result_of(tiler.session, _whole(tiling, name)).written for name in asked.outputs]
        made = sum(prod(written.piece) * written.dtype.itemsize for written in results)
        return IN_HANDS * (int(read) + made) + (SOFTMAX * made if asked.scores.softmax else 0) + BESIDES

    return beside


def _earlier_cell(found: object) -> Sequence[int]:
    """The sizes in the settings of an earlier run.

    Raises:
        FileError: they are no such sizes.
    """
    if isinstance(found, list) and found and all(type(size) is int and 1 <= size <= WHOLE for size in found):
        return found
    raise FileError(f"earlier run: {str(found)[:80]} are not the sizes of a tile. Delete what it left to start over.")


def _whole(tiling: Tiling, name: str) -> Whole:
    """An output of the whole image.

    Raises:
        UnpoolError: it is the same for every tile.
    """
    if name not in tiling.outputs:
        raise UnpoolError(
            f"output {name!r}: expected one that is cut into tiles, got one that no tile changes. Run it whole."
        )
    field = tiling.trace.fields[name]
    spatial = tuple(axis for axis, of_image in enumerate(field.axes) if of_image is not None)
    return Whole(name, field.shape, _piece(tiling, name), spatial)


def _piece(tiling: Tiling, name: str) -> Shape:
    """The shape of what a tile gives, at most along each axis."""
    field = tiling.trace.fields[name]
    longest = [max((one.kept[name].stop - one.kept[name].first for one in along if name in one.kept), default=1)
               for along in tiling.parts]  # fmt: skip
    return tuple(size if axis is None else longest[axis] for size, axis in zip(field.shape, field.axes, strict=True))
