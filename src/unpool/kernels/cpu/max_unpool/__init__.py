"""Max unpooling: which kernel runs a call, and why.

| call | kernel | why |
|---|---|---|
| windows two wide along the last axis, that hold their indices | windows | one pass writes y and checks indices |
| other windows or indices, channels last | scatter, after a check | nothing is written before all indices are checked |
| indices inside their own plane, as PyTorch's; gradients | per_plane | no plane depends on another |

Every kernel has a file of its name. Indices are known only when they are read: the call from `route` runs first, and if
it finds an index outside its window, `scatter` writes all of y again (`execute/max_unpool.py`).
"""

from unpool.geometry import Axis
from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.max_unpool import windows


def route(
    axes: tuple[Axis, ...], planes: int, size: int, *, channels_last: bool, counts_in_y: bool, is_recycled: bool
) -> Launch | None:
    """The call that checks indices while it writes y of N * C planes, None where only `scatter` can write it."""
    if channels_last or not counts_in_y:
        return None
    return windows.launch(axes, planes, size, is_recycled=is_recycled)
