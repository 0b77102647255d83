"""Max pooling on a GPU: one kernel, `windows`, runs every call, and `gradient` walks it back.

Every window is walked tap by tap. So the work grows with the product of the window's sizes: on the CPU there are ways
around that, here there are none yet.
"""

from unpool.kernels.gpu.max_pool.windows import Pool, launch

__all__ = ["Pool", "launch"]
