"""Max unpooling on a GPU: which kernels run, and why.

If windows are small, tensors row-major, and indices count in y:

| step | file | runs |
|---|---|---|
| check the indices, and write y from the windows that reach it | cells | if y is memory of our own |
| check all indices; write nothing else | check_indices | if y is memory of the caller |
| write y from the windows that reach it | cells | then, if every index lies in its own window |
| find the last of equal indices, then write y | scatter | otherwise, unless an index is out of range |

All other calls:

| step | file | runs |
|---|---|---|
| check all indices; write nothing else | check_indices | always |
| write y in memory order from the windows that reach it | gather | if every index lies in its own window |
| find the last of equal indices, then write y | scatter | otherwise, unless an index is out of range |

The host starts all of them, and does not wait: the result of the check stays on the device, and a kernel that it
excludes ends at once. If an index is out of range, memory of the caller keeps its content, and memory of our own
becomes NaN. Gradients: `gradient.py`.
"""

from collections.abc import Callable
from typing import TypeAlias

import torch

from unpool.kernels.gpu.max_unpool import cells, check_indices, gather, scatter
from unpool.kernels.gpu.max_unpool.check_indices import GpuUnpoolProblem

__all__ = ["GpuUnpoolProblem", "Run", "launch"]

# writes y of (x, indices, y, whether y is the caller's memory), and returns the result of `check_indices.py`; x and y
# have no gaps and one layout, indices are int64 (N, C, d1..dk) without gaps in either layout
Run: TypeAlias = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, bool], torch.Tensor]


def launch(problem: GpuUnpoolProblem) -> Run:
    """A function that computes a max unpooling."""
    check, write_any = check_indices.launch(problem), scatter.launch(problem)
    fits_cells = cells.fits(problem.axes, is_channels_last=problem.is_channels_last)
    is_one_pass = problem.index_space == "output" and fits_cells
    check_and_write = cells.launch(problem, check_indices=True) if is_one_pass else None
    write_local = cells.launch(problem, after_check=True) if is_one_pass else gather.launch(problem)

    def run(x: torch.Tensor, indices: torch.Tensor, y: torch.Tensor, is_callers: bool) -> torch.Tensor:
        result = check_indices.new_result(indices.device)
        if check_and_write and not is_callers:
            check_and_write(x, indices, y, result)
        else:
            check(indices, result)
            write_local(x, indices, y, result)
        write_any(x, indices, y, result, is_callers)
        return result

    return run
