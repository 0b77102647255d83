"""The machine below the kernels: what it is, how they are compiled and kept, and how threads share their jobs."""
