"""Runs a model whole or in tiles, as the command line asks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from unpool.cli.exits import UsageError

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession

AUTO = "auto"
_UNITS = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


@dataclass(frozen=True)
class TileOptions:
    """`size`: "auto", or elements by spatial axis; None runs the model whole. `memory`: of the process, in bytes."""

    size: tuple[int, ...] | str | None = None
    memory: int | None = None


def tile_options(tile: str | None, memory: str | None) -> TileOptions:
    """What `--tile` and `--max-memory` ask for; a limit alone asks for tiles that keep it.

    >>> tile_options("512x384", None), tile_options(None, "2GiB")
    (TileOptions(size=(512, 384), memory=None), TileOptions(size='auto', memory=2147483648))
    """
    most = None if memory is None else _bytes(memory)
    if tile is None or tile == AUTO:
        return TileOptions(AUTO if tile or memory else None, most)
    if memory is not None:
        raise UsageError(f"--max-memory: chooses the size of tiles, --tile {tile} says it. Leave one of them out.")
    parts = tile.lower().split("x")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise UsageError(f"--tile: expected auto or sizes such as 512x512 or 64x128x128, got {tile!r}.")
    return TileOptions(tuple(map(int, parts)))


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
    steps: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> list[Any]:
    """The wanted outputs; `steps` goes through the tiles, and may show how far it is."""
    if options.size is None:
        return session.run(list(wanted), dict(feed))
    from unpool.runtime.tiles.run import run

    made = run(
        session, feed, options.size, max_memory=options.memory, outputs=wanted, layout=layout.upper(), steps=steps
    )
    return [made[name] for name in wanted]
