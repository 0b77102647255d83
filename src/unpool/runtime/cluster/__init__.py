"""Runs in tiles on a cluster of `distributed`."""

from unpool.extras import require

require("InferenceSession.map_tiles", "dask", "dask", "distributed", "zarr", "numcodecs")

from unpool.runtime.cluster.map_tiles import ClusterOptions, map_tiles  # noqa: E402 - only after the check above
from unpool.runtime.streams.output_transform import ScoreFormat  # noqa: E402

__all__ = ["ClusterOptions", "ScoreFormat", "map_tiles"]
