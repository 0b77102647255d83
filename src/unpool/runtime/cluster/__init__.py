"""Tiles on a cluster of `distributed`: the client cuts, workers run the model and write to Zarr.

job        what every worker has, and what it does with one tile
outputs    the Zarr arrays that workers write
map_tiles  the client's part
"""

from unpool.extras import require

require("InferenceSession.map_tiles", "dask", "dask", "distributed", "zarr", "numcodecs")

from unpool.runtime.cluster.map_tiles import Work, map_tiles  # noqa: E402 - only after the check above

__all__ = ["Work", "map_tiles"]
