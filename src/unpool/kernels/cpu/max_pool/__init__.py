"""Max pooling: which kernel runs a call, and why.

| windows | kernel | why |
|---|---|---|
| side by side on data alone, 1, 2 or 4 wide | tiles | each vector is read once, and split into taps |
| short, overlapping, of floats in planes | rolling | a row is read once, and its maxima stay in registers |
| channels last, few taps | tiles | channels are side by side, whatever the windows are |
| that do not overlap otherwise, or have few taps | direct | each element is read once or twice, in registers |
| channels last, fewer channels than a register holds | direct | its registers may be filled in part |
| a plane of 2**31 elements, or a row too long to lay out | direct | its places have 64 bits, and it lays out nothing |
| the rest: overlapping | separable | work grows with the sum of the window's logarithms, not with its product |
| that share so many elements that walking them takes very long | doubling | as separable, for planes of any size |
| with NaN | the same, with full comparisons where NaN occurs | ignoring NaN makes a comparison cheaper |
| with a maximum that equals padding | separable, then direct for that part | separable cannot tell them apart |

Every kernel has a file of its name, with a function `launch` that prepares its call, and the compiled kernel. To add
one, write such a file, a line of the table, and a line of `kernels`.

    pool.py                                   the description of a call, which every kernel takes
    compare.py                                comparisons of elements
    separable_plan.py, separable_combine.py   how separable splits planes, pads rows, and combines them
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from unpool.kernels.cpu.machine.plan import KernelStep, Operand
from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.max_pool import direct, doubling, rolling, separable, tiles
from unpool.kernels.cpu.max_pool.pool import PoolProblem

Run: TypeAlias = Callable[[Any, Any, Any, int | None], object]
"""Writes y and indices from x, all C-contiguous, on a maximum number of threads.

It takes x as (outer, D1..Dk), or (outer, D1..Dk, C) with channels last; y in the same layout and type; and int64
indices in the shape of y, not touched unless the call has indices: places in the whole (N, C, D1..Dk) tensor,
or in one plane of it, row-major, -1 where a window holds no data.
"""


def route(pool: PoolProblem) -> Run:
    """The call that writes the largest element of every window to y, and its index to indices."""
    if pool.results == 0:
        return Launch(None, 0, 0)
    return next(iter(kernels(pool).values()))()


def steps(run: Run, arrays: tuple[Operand, Operand, Operand]) -> tuple[KernelStep, ...]:
    """The steps of a call from `route`."""
    return run.steps(arrays) if isinstance(run, separable.PaddingGuard) else (KernelStep(run, arrays),)


def kernels(pool: PoolProblem) -> dict[str, Callable[[], Run]]:
    """Functions that prepare the kernels for a call with results, by name; `route` takes the first."""
    tiling = tiles.tiling(pool.plane)
    if tiling is not None and pool.elements.size != 2 and tiles.is_wide(pool, tiling):
        tiling = None  # rows of 2**31 elements: the direct kernel
    is_shared = doubling.is_worthwhile(pool)
    one_by_one = partial(doubling.launch if is_shared else direct.launch, pool)
    chosen: dict[str, Callable[[], Run]] = {}
    if tiling is not None and tiling.is_disjoint:
        chosen["tiles"] = partial(tiles.launch, pool, tiling)
    if rolling.is_possible(pool):
        chosen["rolling"] = partial(rolling.launch, pool)
    if separable.is_possible(pool) and separable.is_cheaper(pool):
        chosen["separable"] = partial(separable.launch, pool, one_by_one)
    if tiling is not None and not is_shared:
        chosen.setdefault("tiles", partial(tiles.launch, pool, tiling))
    chosen["doubling" if is_shared else "direct"] = one_by_one
    if separable.is_possible(pool):
        chosen.setdefault("separable", partial(separable.launch, pool, one_by_one))
    return chosen
