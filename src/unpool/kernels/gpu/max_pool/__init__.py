"""Max pooling on a GPU: one kernel, `pool_windows`, runs every call, and `gradient.py` walks it back.

| windows | taps are read | why |
|---|---|---|
| few taps | all taps of a window, in row-major order | elements and places stay in registers |
| many taps, along several axes | one axis after the other, see `launch.py` | 13 + 13 taps are fewer than 13 * 13 |
| side by side along the last axis, 2 or 4 wide | neighbours together | the widest loads |
"""

from unpool.kernels.gpu.max_pool.launch import GpuPoolProblem, launch

__all__ = ["GpuPoolProblem", "launch"]
