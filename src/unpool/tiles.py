"""Exact tiling: `run` a model part by part, with the results of the whole; or take the parts, for a cluster.

tiler = Tiler(session)                                  the graph, read once
tiling = tiler.tiling({"x": (1, 3, 9000, 9000)}, (512, 512))     which tiles, from shapes alone
run_tile(session, tiling, tiling[7], feed)              one of them, anywhere, in any order
put(outputs, tiling[7], made)                           its results in their place

`blend` averages overlapping windows, for models that cannot be tiled exactly.
"""

from unpool.runtime.tiles.blending import blend
from unpool.runtime.tiles.fitting import Fitted, fitted
from unpool.runtime.tiles.grid import Extent
from unpool.runtime.tiles.run import compute_tile, put, read_tile, run, run_tile, run_tiling
from unpool.runtime.tiles.tiler import Tiler
from unpool.runtime.tiles.tiling import Tile, Tiling

__all__ = [
    "Extent",
    "Fitted",
    "Tile",
    "Tiler",
    "Tiling",
    "blend",
    "compute_tile",
    "fitted",
    "put",
    "read_tile",
    "run",
    "run_tile",
    "run_tiling",
]


def __dir__() -> list[str]:
    """The public names alone."""
    return sorted({"__doc__", *__all__})
