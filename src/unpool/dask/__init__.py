"""The three operators on dask arrays of any chunking: lazy, one compiled thread per task. Needs the extra `dask`.

A chunk of the output reads exactly the part of the input that its windows cover, across the borders of chunks. So
chunks of any size are allowed, results do not depend on them, and the task of a chunk waits only for its neighbours.
"""

from unpool.extras import require

require("unpool.dask", "dask", "dask")

from unpool.dask.conv_transpose import conv_transpose  # noqa: E402 - only after the check above
from unpool.dask.max_pool import max_pool  # noqa: E402
from unpool.dask.max_unpool import max_unpool  # noqa: E402

__all__ = ["conv_transpose", "max_pool", "max_unpool"]


def __dir__() -> list[str]:
    """The public names alone."""
    return sorted({"__doc__", *__all__})
