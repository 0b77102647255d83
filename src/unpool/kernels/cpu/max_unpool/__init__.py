"""Max unpooling: which kernel runs a call, and why.

| call | kernel | why |
|---|---|---|
| windows two wide along the last axis, that hold their indices | windows | y in memory order, checked on the way |
| other windows or indices, channels last | check, then scatter | nothing is written before all indices are right |
| indices inside their own plane, as PyTorch's; gradients | per_plane | no plane depends on another |

Every kernel has a file of its name. Where an index lies is known only when it has been read: the call that `route`
gives is tried first, and where it refuses, `check` and `scatter` write all of y again (`execute/max_unpool.py`).
"""

from unpool.geometry import Axis
from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.max_unpool import windows


def route(
    axes: tuple[Axis, ...], planes: int, size: int, *, channels_last: bool, counts_in_y: bool, is_recycled: bool
) -> Launch | None:
    """The call that checks indices while it writes y, None where only `check` and `scatter` can do it.

    Args:
        axes: one per spatial axis.
        planes: N * C.
        size: bytes of an element: 2, 4 or 8.
        channels_last: whether channels lie beside each other in memory.
        counts_in_y: whether indices may count in y, rather than in a tensor of another shape.
        is_recycled: whether the memory of y has been in use before.
    """
    if channels_last or not counts_in_y:
        return None
    return windows.launch(axes, planes, size, is_recycled=is_recycled)
