"""Runs in tiles on a cluster of `distributed`."""

from unpool.extras import require

require("map_tiles", "dask", "dask", "distributed", "zarr", "numcodecs")

from unpool.runtime.cluster.map_tiles import map_tiles  # noqa: E402 - only after the check above

__all__ = ["map_tiles"]
