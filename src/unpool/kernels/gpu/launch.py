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

_OPTIONS = {"enable_fp_fusion": True}  # the default of all versions up to 3.9, which asks that it be named


class Start:
    """Starts one kernel for one call, as often as one likes, on the device of its tensors and its current stream.

    Triton looks at every number that a kernel gets, each time it is started. Here they are the same every time: so only
    the first start goes that way, and later ones take what it has compiled.

    Attributes:
        kernel: a function of (tensors and numbers that change, call, how).
        programs: how many of it run; none where there is nothing to do.
        call: numbers, in named tuples: each holds numbers alone, or tuples alone, which Triton 3.6 needs.
        how: what the compiled kernel depends on.
    """

    def __init__(
        self, kernel: Any, programs: int, call: Any, how: Any, warps: int = 4, stages: int | None = None
    ) -> None:
        """As attributes, and how each program runs.

        Args:
            kernel: as above.
            programs: as above.
            call: as above.
            how: as above.
            warps: of a program.
            stages: of loads that are under way together, in loops that multiply; None for Triton's own choice.
        """
        self.kernel, self.programs, self.call, self.how = kernel, programs, call, how
        self._options = {**_OPTIONS, "num_warps": warps} | ({} if stages is None else {"num_stages": stages})
        self._compiled: dict[tuple[Any, ...], Any] = {}

    def __call__(self, *given: Any) -> None:
        """Start it; the first of what is given is a tensor."""
        if not self.programs:
            return
        device = given[0].device
        if INTERPRETED:
            with np.errstate(all="ignore"):
                self._start(None, given)
        elif device.type != "cuda" or device.index == torch.cuda.current_device():
            self._start(device.index, given)
        else:
            with torch.cuda.device(device):
                self._start(device.index, given)

    def _start(self, device: int | None, given: tuple[Any, ...]) -> None:
        key = (device, *map(_kind, given))
        compiled = self._compiled.get(key)
        if compiled is None:
            self._compiled[key] = self.kernel[(self.programs,)](*given, self.call, self.how, **self._options)
        else:
            compiled[(self.programs, 1, 1)](*given, self.call, self.how)


def _kind(given: Any) -> Any:
    """What a compiled kernel depends on: a tensor's type, and whether vectors of 16 bytes fit its place."""
    return (given.dtype, given.data_ptr() % 16 == 0) if isinstance(given, torch.Tensor) else given


def blocks(count: int, size: int) -> int:
    """How many blocks of a size hold so many elements."""
    return -(-count // size)


def power_of_two(size: int, most: int) -> int:
    """The smallest power of two that is no less than a size, or `most`, if that is less.

    >>> power_of_two(5, 64), power_of_two(0, 64), power_of_two(100, 64)
    (8, 1, 64)
    """
    return min(1 << max(size - 1, 0).bit_length(), most)
