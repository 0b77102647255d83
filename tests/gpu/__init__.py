"""The kernels in Triton, in the interpreter where there is no GPU."""
