"""Launches of kernels, on the device of a tensor and its current stream."""

from typing import Any

import numpy as np
import torch

from unpool.kernels.gpu.elements import INTERPRETED, bits_of

LIMIT32 = 2**31  # number of elements that needs places of 64 bits
_OPTIONS = {"enable_fp_fusion": True}  # the default of all versions; 3.9 requires it to be named


class Launcher:
    """Launches one kernel for one call, any number of times, on the device of its tensors and its current stream.

    Triton inspects every argument at every launch. Here all but the tensors stay the same: so only the first launch
    goes through Triton, and later ones start the kernel that it compiled, with the addresses of the tensors. That takes
    (addresses and numbers that change, args, meta): `args` are named tuples, each of numbers alone, or tuples alone,
    which Triton 3.6 needs; `meta` are constants of the kernel. `stages` are loads that overlap in loops of products;
    None for Triton's own choice. The kernel takes tensors as bits, except for those at the positions `floats`. Their
    types are the same in every launch, and so are numbers that are no booleans.
    """

    def __init__(
        self, kernel: Any, programs: int, args: Any, meta: Any, warps: int = 4, stages: int | None = None,
        floats: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        self.kernel, self.programs, self.args, self.meta, self._floats = kernel, programs, args, meta, floats
        self._options = {**_OPTIONS, "num_warps": warps} | ({} if stages is None else {"num_stages": stages})
        self._starts: dict[tuple[Any, ...], Any] = {}

    def __call__(self, *operands: Any) -> None:
        """Start the kernel; the first operand is a tensor."""
        if not self.programs:
            return
        if INTERPRETED:
            with np.errstate(all="ignore"):
                self.compile(*operands)
            return
        device = operands[0].device
        if device.type == "cuda" and device.index != torch.cuda.current_device():
            with torch.cuda.device(device):
                self(*operands)
            return
        values = [x.data_ptr() if isinstance(x, torch.Tensor) else x for x in operands]
        key = (device.index, *[value & 15 for value in values])  # what Triton compiles depends on 16-byte alignment
        start = self._starts.get(key)
        if start is None:
            self._starts[key] = self.compile(*operands)
        else:
            start(*values, self.args, self.meta)

    def compile(self, *operands: Any) -> Any:
        """Start the kernel by Triton, and return a function that starts it again; None in the interpreter."""
        operands = tuple(
            bits_of(x) if isinstance(x, torch.Tensor) and number not in self._floats else x
            for number, x in enumerate(operands)
        )
        compiled = self.kernel[(self.programs,)](*operands, self.args, self.meta, **self._options)
        return compiled and compiled[(self.programs, 1, 1)]


def blocks(count: int, size: int) -> int:
    """Number of blocks of `size` elements that hold `count` elements."""
    return -(-count // size)


def power_of_two(size: int, most: int) -> int:
    """The smallest power of two that is at least `size`, or `most` if that is less.

    >>> power_of_two(5, 64), power_of_two(0, 64), power_of_two(100, 64)
    (8, 1, 64)
    """
    return min(1 << max(size - 1, 0).bit_length(), most)
