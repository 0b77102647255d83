"""Tiles on a cluster of `distributed`: the client cuts, workers run the model and write to Zarr.

job        what every worker has, and what it does with one tile
outputs    the Zarr arrays that workers write
map_tiles  the client's part
"""

try:
    import distributed  # noqa: F401
    import zarr  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"InferenceSession.map_tiles: needs the packages distributed and zarr, {error.name} is not installed. "
        "Run: pip install 'unpool[dask]'",
        name=error.name,
    ) from error

from unpool.runtime.cluster.map_tiles import Work, map_tiles

__all__ = ["Work", "map_tiles"]
