"""The three operators in Triton: torch tensors on a CUDA device in and out, on the current stream.

No kernel waits for the device or sends anything to the host. Under TRITON_INTERPRET=1 the same kernels run on tensors
of the CPU, in Triton's interpreter, which is how they are tested where there is no GPU.

    launch.py          the one place that starts kernels; whether they are interpreted
    elements.py        element types: their bits, how they are widened and rounded
    activation.py      Relu and the like
    tiles.py           which elements of a tensor a program works on
    layouts.py         copies between channels first and channels last
    max_pool/          one folder per operator: its __init__.py says which kernel runs which call,
    max_unpool/        the other files are the kernels
    conv_transpose/
"""

from unpool.kernels.gpu import requirements as _requirements  # noqa: F401 - says which packages are missing
