"""Runs a model whole or in tiles, as the command line asks."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unpool.cli.errors import UsageError
from unpool.errors import ShapeError
from unpool.memory_limits import peak_rss
from unpool.runtime.streams.runner import Progress, ProgressCallback

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession

AUTO = "auto"
_UNITS = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


@dataclass(frozen=True)
class TileOptions:
    """`size`: "auto", or elements by spatial axis; None runs the model whole. `memory`: of the process, in bytes.

    `blend`: how overlapping tiles are averaged; None gives exact tiles. `overlap`: a share of the tile.
    """

    size: tuple[int, ...] | str | None = None
    memory: int | None = None
    blend: str | None = None
    overlap: float = 0.25


def blended(tiles: TileOptions, blend: str | None, overlap: float | None) -> TileOptions:
    """The same with what `--blend` and `--overlap` ask for."""
    if blend is None:
        if overlap is not None:
            raise UsageError("--overlap: is of blended tiles, exact ones need none. Add --blend, or leave it out.")
        return tiles
    if not isinstance(tiles.size, tuple):
        raise UsageError(f"--blend {blend}: needs the size of the tiles. Add it, such as --tile 512x512.")
    if overlap is not None and not 0 <= overlap < 1:
        raise UsageError(f"--overlap: expected 0 or more and below 1, got {overlap}.")
    return replace(tiles, blend=blend, overlap=TileOptions.overlap if overlap is None else overlap)


def tile_options(tile: str | None, memory: str | None, *, is_blended: bool = False) -> TileOptions:
    """What `--tile` and `--max-memory` ask for; a limit alone asks for tiles that keep it, and bounds blended ones.

    >>> tile_options("512x384", None).size, tile_options(None, "2GiB").memory
    ((512, 384), 2147483648)
    """
    most = None if memory is None else _bytes(memory)
    if tile is None or tile == AUTO:
        return TileOptions(AUTO if tile or memory else None, most)
    if memory is not None and not is_blended:
        raise UsageError(f"--max-memory: chooses the size of tiles, --tile {tile} says it. Leave one of them out.")
    parts = tile.lower().split("x")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise UsageError(f"--tile: expected auto or sizes such as 512x512 or 64x128x128, got {tile!r}.")
    return TileOptions(tuple(map(int, parts)), most)


def _bytes(text: str) -> int:
    number = text.strip().rstrip("bBiIkKmMgG ")
    unit = _UNITS.get(text.strip()[len(number) :].strip().upper())
    try:
        if unit is not None and Fraction(number) > 0:
            return int(Fraction(number) * unit)
    except (ValueError, ZeroDivisionError):
        pass
    raise UsageError(f"--max-memory: expected a size such as 2GiB or 500MB, got {text!r}.")


def run_model(
    session: "InferenceSession",
    feed: Mapping[str, NDArray[Any]],
    wanted: Sequence[str],
    options: TileOptions,
    layout: str,
    on_progress: ProgressCallback = lambda _: None,
) -> list[Any]:
    """The wanted outputs; `on_progress` gets the progress of a run in tiles."""
    if options.size is None:
        return session.run(list(wanted), dict(feed))
    if options.blend is not None and isinstance(options.size, tuple):
        from unpool.runtime.tiles.blending import blend

        averaged = blend(
            session,
            feed,
            options.size,
            overlap=options.overlap,
            mode=options.blend,
            outputs=wanted,
            layout=layout.upper(),
        )
        return [averaged[name] for name in wanted]
    from unpool.runtime.tiles.run import run

    def progress(tiles: Iterable[Any]) -> Iterator[Any]:
        count, begin = len(tiles) if isinstance(tiles, Sized) else 0, time.monotonic()
        for done, tile in enumerate(tiles, 1):
            yield tile
            on_progress(Progress(count, 0, done, time.monotonic() - begin, peak_rss()))

    made = run(
        session, feed, options.size, max_memory=options.memory, outputs=wanted, layout=layout.upper(), progress=progress
    )
    return [made[name] for name in wanted]


def batches(
    arrays: Mapping[str, NDArray[Any]], sizes: Mapping[str, int | None], where: str
) -> list[Mapping[str, NDArray[Any]]]:
    """The feeds of several runs, where pages are more than the fixed batch of an input; other inputs go into each run.

    Args:
        arrays: of all inputs.
        sizes: the batch of each; None where it is open.
        where: what the error message begins with.

    >>> [feed["x"].tolist() for feed in batches({"x": np.arange(4)}, {"x": 2}, "a.tif")]
    [[0, 1], [2, 3]]
    """
    counts = {name: len(array) // size for name, array in arrays.items() if (size := sizes[name]) and len(array) > size}
    if not counts:
        return [arrays]
    if len(set(counts.values())) > 1:
        found = ", ".join(f"{name} of {len(arrays[name])}" for name in counts)
        raise ShapeError(f"{where}: inputs need equal numbers of pages, got {found}. Split the files.")
    count = next(iter(counts.values()))
    parts = {name: np.split(arrays[name], count) for name in counts}
    return [{**arrays, **{name: parts[name][number] for name in parts}} for number in range(count)]


def joined(names: Sequence[str], runs: Sequence[list[Any]]) -> list[Any]:
    """The outputs of several runs, in their order along the batch; those of one run as they are."""
    if len(runs) == 1:
        return runs[0]
    for name, *parts in zip(names, *runs, strict=True):
        if any(not isinstance(part, np.ndarray) or part.ndim == 0 for part in parts):
            raise ShapeError(
                f"output {name!r}: has no batch, so that pages cannot be run one after another. Choose another output, "
                "or export the model with an open batch."
            )
    return [np.concatenate(parts) for parts in zip(*runs, strict=True)]
