"""Max unpooling: which kernel runs a call, and why.

| call | kernel | why |
|---|---|---|
| windows two wide along the last axis, that hold their indices | windows | one pass writes y and checks indices |
| other windows or indices, channels last | scatter, after a check | nothing is written before all indices are checked |
| indices inside their own plane, as PyTorch's; gradients | per_plane | no plane depends on another |

Every kernel has a file of its name. Indices are known only when they are read: the call from `route` runs first, and if
it finds an index outside its window, `scatter` writes all of y again (`execute/max_unpool.py`).
"""

from unpool.kernels.cpu.max_unpool.windows import route

__all__ = ["route"]
