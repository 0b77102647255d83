"""Max pooling: which kernel runs a call, and why.

| windows | kernel | why |
|---|---|---|
| side by side on data alone, 1, 2 or 4 wide | tiles | each vector is read once, and parted into taps |
| short, overlapping, of floats in planes | rolling | a row is read once, and its maxima stay in registers |
| channels last, few taps | tiles | channels are side by side, whatever the windows are |
| that do not overlap otherwise, or have few taps | direct | each element is read once or twice, in registers |
| channels last, fewer channels than a register holds | direct | its registers may end short |
| a plane of 2**31 elements, or a row too long to lay out | direct | its places have 64 bits, and it lays out nothing |
| the rest: overlapping | separable | work grows with the sum of the window's logarithms, not with its product |
| that share so much that walking them takes forever | doubling | as separable, for planes of any size and layout |
| with NaN | the same, in full where it was noticed | without regard to NaN a comparison is cheaper |
| with a maximum that padding has too | separable, then direct where it was noticed | it cannot tell them apart |

Every kernel has a file of its name, with a function `launch` that prepares its call, and the kernel that is compiled.
To add one, write such a file, a line of the table, and a line of `route`.

    pool.py                          what is asked for: the record that every kernel gets
    choice.py                        whether separable is possible, and cheaper than direct
    compare.py                       the comparison of direct and tiles
    elements.py                      how rolling and separable compare elements
    rolling_parts.py                 what rolling does with a block of columns
    strips.py, lines.py, moves.py    how separable cuts planes, lays out rows, and combines them
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.max_pool import direct, doubling, rolling, separable, tiles
from unpool.kernels.cpu.max_pool.choice import is_separable_cheaper, is_separable_possible
from unpool.kernels.cpu.max_pool.pool import Pool

Run: TypeAlias = Callable[[Any, Any, Any, int | None], object]
"""Writes y and indices from x, with at most so many threads; all C-contiguous.

It takes x as (outer, D1..Dk), or (outer, D1..Dk, C) with channels last; y in the same layout and type; and int64
indices in the shape of y, which are not touched where they are not wanted: places in the whole (N, C, D1..Dk) tensor,
or in one plane of it, row-major, -1 where a window holds no data.
"""


def route(pool: Pool) -> Run:
    """The call that writes the largest element of every window to y, and where it was found to indices."""
    if pool.results == 0:
        return Launch(None, 0, 0)
    return next(iter(kernels(pool).values()))()


def kernels(pool: Pool) -> dict[str, Callable[[], Run]]:
    """What prepares each kernel that can run a call with results, by its name; the one that `route` takes is first."""
    tiling = tiles.tiling(pool.plane)
    is_shared = doubling.is_worthwhile(pool)
    one_by_one = partial(doubling.launch if is_shared else direct.launch, pool)
    found: dict[str, Callable[[], Run]] = {}
    if tiling is not None and tiling.is_disjoint:
        found["tiles"] = partial(tiles.launch, pool, tiling)
    if rolling.is_possible(pool):
        found["rolling"] = partial(rolling.launch, pool)
    if is_separable_possible(pool) and is_separable_cheaper(pool):
        found["separable"] = partial(separable.launch, pool, one_by_one)
    if tiling is not None and not is_shared:
        found.setdefault("tiles", partial(tiles.launch, pool, tiling))
    found["doubling" if is_shared else "direct"] = partial(one_by_one, 0, pool.outer * pool.plane.rows)
    if is_separable_possible(pool):
        found.setdefault("separable", partial(separable.launch, pool, one_by_one))
    return found
