"""What a run over files has to do: which tiles, from where, what is written of them, and all that depends on."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unpool.errors import UnpoolError
from unpool.runtime.streams.arrangement import Array, whole
from unpool.runtime.streams.casting import cast_source
from unpool.runtime.streams.flow import AHEAD
from unpool.runtime.streams.identity import array_identity, session_identity
from unpool.runtime.streams.journal import Settings
from unpool.runtime.streams.opening import open_source
from unpool.runtime.streams.result import Result, result_of
from unpool.runtime.tiles.fitting import fitted
from unpool.runtime.tiles.tiler import Tiler
from unpool.runtime.tiles.tiling import Tiling

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession

AUTO = "auto"

IN_HANDS = 2 + AHEAD
"""Tiles that are in memory at a time between two stages: in the hands of both, and those that wait."""

BESIDES = 96 << 20
"""Bytes for what the first tile loads: machine code, compressors, threads and their buffers."""


@dataclass(frozen=True)
class Asked:
    """What a caller asks for, in the words of `run`."""

    tile: Sequence[int] | str
    max_memory: int | None
    output: str | None
    argmax: bool
    layout: str

    def __post_init__(self) -> None:
        if isinstance(self.tile, str):
            if self.tile != AUTO:
                raise UnpoolError(f'tile: expected "auto" or a size per spatial axis, got {self.tile!r}. Correct it.')
        else:
            object.__setattr__(self, "tile", [int(length) for length in self.tile])


@dataclass(frozen=True)
class Job:
    """What is to be done.

    Attributes:
        session: that runs the tiles.
        tiling: of the image.
        feed: every input; those that are not cut are arrays.
        result: what is written.
        settings: all that the result depends on, as it is written into a journal.
    """

    session: "InferenceSession"
    tiling: Tiling
    feed: Mapping[str, Any]
    result: Result
    settings: Settings


def job(session: "InferenceSession", feed: Mapping[str, Any], asked: Asked, earlier: Settings | None) -> Job:
    """What is to be done for a feed of paths, sources and arrays; nothing of them is read but what is not cut.

    Args:
        session: that runs the tiles.
        feed: every input by name.
        asked: by the caller.
        earlier: the settings of an unfinished run, whose tiles are taken again where they were chosen by memory.

    Raises:
        UnpoolError: an input is missing or of another type, or the output is not one of the model's.
    """
    sources = _sources(session, feed, asked.layout)
    name = _output(session, asked.output)
    tiler = Tiler(session, layout=asked.layout, outputs=[name])
    shapes = {key: tuple(source.shape) for key, source in sources.items()}
    cell = _cell(tiler, sources, name, asked, earlier)
    tiling = tiler.tiling(shapes, cell, is_even=asked.tile == AUTO)
    affines = (getattr(source, "affine", None) for source in sources.values())
    affine = next((found for found in affines if found is not None), None)
    result = result_of(session, tiling, name, argmax=asked.argmax, affine=affine)
    settings = {
        **session_identity(session),
        "inputs": {key: _identity(source) for key, source in sources.items()},
        **asdict(asked),
        "cell": [int(length) for length in cell],
        "type": result.written.dtype.str,
        "shape": list(result.written.shape),
    }
    uncut = {key: _whole(source) for key, source in sources.items() if key not in tiling.inputs}
    return Job(session, tiling, {**sources, **uncut}, result, settings)


def _sources(session: "InferenceSession", feed: Mapping[str, Any], layout: str) -> dict[str, Any]:
    """Every input as something with a shape that gives windows."""
    values = {value.name: value for value in session.get_inputs()}
    if set(values) != set(feed):
        raise UnpoolError(
            f"feed: expected the inputs {', '.join(values)}; got {', '.join(feed) or 'none'}. Correct it."
        )
    found: dict[str, Any] = {}
    for name, given in feed.items():
        source = given
        if isinstance(given, (str, Path)):
            source = open_source(given, rank=len(values[name].shape or ()), layout=layout)
        elif not hasattr(given, "shape"):
            source = np.asarray(given)
        found[name] = cast_source(source, values[name].type, name)
    return found


def _output(session: "InferenceSession", name: str | None) -> str:
    names = [value.name for value in session.get_outputs()]
    if name is None and len(names) > 1:
        raise UnpoolError(f"output: expected one of {', '.join(names)}, got none. Name one.")
    return names[0] if name is None else name


def _cell(tiler: Tiler, sources: Mapping[str, Any], name: str, asked: Asked, earlier: Settings | None) -> Sequence[int]:
    """Elements of the first input of which a tile gives the results."""
    if not isinstance(asked.tile, str):
        return asked.tile
    if earlier is not None and "cell" in earlier:
        found: Sequence[int] = earlier["cell"]
        return found

    def beside(tiling: Tiling) -> int:
        read = sum(prod(shape) * sources[key].dtype.itemsize for key, shape in tiling.largest().items())
        piece = result_of(tiler.session, tiling, name, argmax=False, affine=None).written
        return IN_HANDS * (int(read) + prod(piece.piece) * piece.dtype.itemsize) + BESIDES

    shapes = {key: tuple(source.shape) for key, source in sources.items()}
    return fitted(tiler, shapes, asked.max_memory, beside).tile


def _whole(source: Any) -> Array:
    return source if isinstance(source, np.ndarray) else np.asarray(source[whole(tuple(source.shape))])


def _identity(source: Any) -> str:
    found: str = source.identity() if hasattr(source, "identity") else array_identity(source)
    return found
