"""Starts kernels, on the device of a tensor and its current stream."""

from typing import Any

import numpy as np
import torch
import triton

INTERPRETED = bool(triton.knobs.runtime.interpret)
"""Whether Triton's interpreter runs the kernels, on tensors of the CPU: TRITON_INTERPRET=1 when Triton was imported.

What a kernel has to do otherwise there depends on this alone. It is one thing: the interpreter keeps bfloat16 as
integers, and its matrix product multiplies those; operands are widened to float32 before it.
"""

LIMIT32 = 2**31
"""Elements from which on places have 64 bits."""

_MANY = 4096
"""Sums that four warps do not keep without spilling: see the compiler's own count in tests/gpu/test_compiled.py."""

_OPTIONS = {"enable_fp_fusion": True}  # the default of all versions up to 3.9, which asks that it be named


def launch(kernel: Any, programs: int, device: torch.device, arguments: tuple[Any, ...], warps: int = 4) -> None:
    """Start so many programs of a kernel; none where there is nothing to do."""
    if programs:
        with torch.cuda.device(device) if device.type == "cuda" else np.errstate(all="ignore"):
            kernel[(programs,)](*arguments, num_warps=warps, **_OPTIONS)


def warps_for(elements: int) -> int:
    """Warps of a program that keeps the sums of so many elements: twice the usual for those that fill registers."""
    return 8 if elements >= _MANY else 4


def blocks(count: int, size: int) -> int:
    """How many blocks of a size hold so many elements."""
    return -(-count // size)


def power_of_two(size: int, most: int) -> int:
    """The smallest power of two that is no less than a size, or `most`, if that is less.

    >>> power_of_two(5, 64), power_of_two(0, 64), power_of_two(100, 64)
    (8, 1, 64)
    """
    return min(1 << max(size - 1, 0).bit_length(), most)
