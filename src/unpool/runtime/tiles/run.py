"""Runs tiles: one tile is cut out, run, and what is kept of its results is put in its place."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from unpool.errors import UnsupportedError
from unpool.indices import rebase
from unpool.runtime.tiles.tiling import Counting, Tile, Tiling

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession

Arrays = dict[str, np.ndarray[Any, Any]]
Steps = Callable[[Iterable[Tile]], Iterable[Tile]]


def run_tile(session: "InferenceSession", tiling: Tiling, tile: Tile, feed: Mapping[str, Any]) -> Arrays:
    """What one tile gives of every output.

    Args:
        session: whose model the tiling was made for.
        tiling: of the whole image.
        tile: one of its tiles.
        feed: every input; of those that are cut, anything that gives an array for `feed[name][slices]`: an array, a
            memory map, a Zarr array.

    Returns:
        by output, the elements for `tile.filled`; also those that are the same for every tile. Indices count in the
        whole image.
    """
    read = {name: np.ascontiguousarray(feed[name][slices]) for name, slices in tile.inputs.items()}
    names = [*tile.kept, *tiling.fixed]
    made = dict(zip(names, session.run(names, {**feed, **read}), strict=True))
    return {name: _kept(name, tile, array) if name in tile.kept else array for name, array in made.items()}


def put(outputs: Mapping[str, Any], tile: Tile, made: Mapping[str, Any]) -> None:
    """Write what a tile gives into the outputs of the image: arrays, or anything that takes `out[slices] = array`."""
    for name, slices in tile.filled.items():
        outputs[name][slices] = made[name]


def run_tiling(session: "InferenceSession", tiling: Tiling, feed: Mapping[str, Any], steps: Steps = iter) -> Arrays:
    """The outputs for the whole image, tile by tile.

    Args:
        session: whose model the tiling was made for.
        tiling: of the whole image.
        feed: every input.
        steps: goes through the tiles, and may show how far it is.

    Returns:
        the outputs by name, equal to those of `session.run` on the whole image: bit for bit, except where sums of
        floats are formed in another order for another size.
    """
    outputs: Arrays = {}
    for tile in steps(tiling):
        made = run_tile(session, tiling, tile, feed)
        for name in tiling.outputs:
            if name in made and name not in outputs:
                outputs[name] = np.empty(tiling.shape(name), made[name].dtype)
        put(outputs, tile, made)
        outputs |= {name: made[name] for name in tiling.fixed}
    return outputs


def _kept(name: str, tile: Tile, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The part of an output for a tile that belongs to the image."""
    if array.shape != tile.made[name]:
        raise UnsupportedError(
            f"tiles: output {name!r} of tile {tile.number}: expected the shape {list(tile.made[name])}, as the graph "
            f"says, got {list(array.shape)}. Run the image whole."
        )
    part = array[tile.kept[name]]
    return _recounted(part, tile.counting[name]) if name in tile.counting else part


def _recounted(indices: np.ndarray[Any, Any], counting: Counting) -> np.ndarray[Any, Any]:
    """Indices of a tile as indices of the image; -1 stays."""
    return np.where(indices < 0, indices, rebase(indices, counting.part, counting.whole) + counting.shift)
