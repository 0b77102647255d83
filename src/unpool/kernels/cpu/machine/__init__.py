"""The machine below the kernels: the processor, the compiler and its cache, and threads that share jobs."""
