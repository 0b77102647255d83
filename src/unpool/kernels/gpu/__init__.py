"""The three operators in Triton: torch tensors on a CUDA device in and out, on the current stream.

No launch waits for the device, and no kernel sends data to the host. Under TRITON_INTERPRET=1 the same kernels run on
tensors of the CPU, in Triton's interpreter: so they are tested without a GPU.

    launch.py        launches kernels; says whether they are interpreted
    elements.py      element types: their bits, how they are widened and rounded; Relu and the like
    tiles.py         the elements of a tensor that a program works on; copies between channels first and last
    OPERATOR/        its __init__.py says which kernel runs which call, the other files are the kernels
"""

from unpool.extras import require

require("unpool on a GPU", "gpu", "torch", "triton")
