"""The three operators on dask arrays of any chunking: lazy, one compiled thread per task. Needs the extra `dask`.

A chunk of the output reads what its windows cover of the input, across the borders of chunks, and no more. So chunks
need not fit the stride, results do not depend on them, and the task of a chunk waits for its neighbours only.
"""

from importlib.util import find_spec

if find_spec("dask") is None:
    raise ModuleNotFoundError(
        "unpool.dask: expected the package dask, it is not installed. Run: pip install 'unpool[dask]'", name="dask"
    )

from unpool.dask.conv_transpose import conv_transpose
from unpool.dask.max_pool import max_pool
from unpool.dask.max_unpool import max_unpool

__all__ = ["conv_transpose", "max_pool", "max_unpool"]
