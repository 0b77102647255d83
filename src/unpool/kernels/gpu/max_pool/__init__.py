"""Max pooling on a GPU: one kernel, `pool_windows`, runs every call, and `gradient` walks it back.

| windows | how they are walked | why |
|---|---|---|
| of few taps | all taps of a window, in row-major order | each element is read, compared and kept at once |
| of many, along several axes | one axis after the other, see `passes.py` | 13 + 13 taps are fewer than 13 * 13 |
| side by side along the last axis, 2 or 4 wide | neighbours are read together | loads are as wide as they can be |
"""

from unpool.kernels.gpu.max_pool.calls import Pool, launch

__all__ = ["Pool", "launch"]
