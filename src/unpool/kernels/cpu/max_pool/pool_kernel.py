"""What every kernel of max pooling is for the code that chooses one."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from unpool.kernels.cpu.max_pool.pool import PoolProblem

Run: TypeAlias = Callable[[Any, Any, Any, int | None], object]
"""Writes y and indices from x, all C-contiguous, on a maximum number of threads.

It takes x as (outer, D1..Dk), or (outer, D1..Dk, C) with channels last; y in the same layout and type; and int64
indices in the shape of y, not touched unless the call has indices: places in the whole (N, C, D1..Dk) tensor,
or in one plane of it, row-major, -1 where a window holds no data.
"""


class PoolKernel(NamedTuple):
    """A kernel; `max_pool/__init__.py` has the tuple of all, from which it chooses.

    The kernels are ordered and have no cost in one unit, because shape rules settle the choice: `tiles`, `rolling` and
    `doubling` win wherever they take a call, and only `separable` compares its work with that of `direct`.
    """

    name: str

    takes: Callable[[PoolProblem], bool]
    """True if it computes a call with results, and may be the fastest."""

    is_faster: Callable[[PoolProblem, "PoolKernel"], bool]
    """True if it is faster than another one, which is the best of those that follow in the tuple."""

    launch: Callable[[PoolProblem], Run]
    """The call."""
