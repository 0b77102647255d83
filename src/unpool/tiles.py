"""Exact tiling: `run` a model tile by tile, with the results of one run; or run single tiles, for a cluster.

tiler = Tiler(session)                                           reads the graph once
tiling = tiler.tiling({"x": (1, 3, 9000, 9000)}, (512, 512))     lists the tiles, from shapes alone
results = run_tile(session, tiling, tiling[7], feed)             runs one of them, anywhere, in any order
write_tile(outputs, tiling[7], results)                          writes its results into the outputs

`blend` averages overlapping windows, for models that cannot be tiled exactly.
"""

from unpool.runtime.tiles.blending import blend
from unpool.runtime.tiles.run import (
    TilingFit,
    compute_tile,
    fit_tiling,
    read_tile,
    run,
    run_tile,
    run_tiling,
    write_tile,
)
from unpool.runtime.tiles.tiler import Tiler
from unpool.runtime.tiles.tiling import Extent, Tile, Tiling

__all__ = [
    "Extent",
    "Tile",
    "Tiler",
    "Tiling",
    "TilingFit",
    "blend",
    "compute_tile",
    "fit_tiling",
    "read_tile",
    "run",
    "run_tile",
    "run_tiling",
    "write_tile",
]


def __dir__() -> list[str]:
    return sorted({"__doc__", *__all__})
