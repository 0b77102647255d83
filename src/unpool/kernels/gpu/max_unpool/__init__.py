"""Max unpooling on a GPU: which kernels run, and why.

Where windows are small and tensors row-major, and indices count in y, which may be written twice:

| step | kernel | runs |
|---|---|---|
| indices are judged, and y is written from the windows that reach it | cells | where y is memory of our own |
| every index is read and judged; nothing else is written | judge | where y is memory of the caller |
| y is written from the windows that reach it | cells | then, where every index lies in its own window |
| of equal indices the last one is noted, then y is written | owners | otherwise, unless one is out of range |

All other calls:

| step | kernel | runs |
|---|---|---|
| every index is read and judged; nothing else is written | judge | always |
| y in memory order, each element from the windows that reach it | windows | where every index lies in its own window |
| of equal indices the last one is noted, then y is written | owners | otherwise, unless one is out of range |

The host starts all of them. What has been judged lies on the device, and a kernel whose turn it is not ends at once: so
nobody waits for the device. Where an index is out of range, memory of the caller stays as it was, and memory of our own
becomes NaN. Gradients: `per_plane.py`.
"""

from unpool.kernels.gpu.max_unpool.unpool import Run, Unpool, launch

__all__ = ["Run", "Unpool", "launch"]
