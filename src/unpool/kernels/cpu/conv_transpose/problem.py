"""Description of a transposed convolution, before there are arrays."""

import math
from typing import Any, NamedTuple

import numpy as np

from unpool.geometry import Axis
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.machine.threads import VECTOR_SPEEDUP

TOGETHER = 1 << 6  # products that are summed at once: with more, the input leaves the first cache, and errors grow


class ConvTransposeProblem(NamedTuple):
    """All that the choice of an algorithm depends on."""

    axes: tuple[Axis, ...]  # one per spatial axis
    batch: int  # size of the batch
    group: int  # number of groups
    channels: int  # of x
    maps: int  # channels of y, in one group
    dtype: np.dtype[Any]  # in which sums are formed
    is_plain: bool  # whether x and y have that type, with channels first
    is_cached: bool  # whether packed weights are kept for later calls
    is_channels_last: bool = False  # whether channels are the last axis of x and y
    is_exact: bool = False  # whether every product is formed as written, which Winograd's tiles do not
    is_amx: bool = False  # whether x, w and y are bfloat16, and AMX can multiply them
    algorithm: str | None = None  # chosen by autotuning; used where it is supported

    @property
    def group_shape(self) -> tuple[int, int, int]:
        """Channels of x and of y in one group, and bytes of an element."""
        return self.channels // self.group, self.maps, self.dtype.itemsize

    @property
    def is_empty(self) -> bool:
        """True if there are no products."""
        sizes = [size for axis in self.axes for size in (axis.small, axis.large)]
        return math.prod((self.batch, *self.group_shape, *sizes)) == 0

    @property
    def small(self) -> int:
        """Positions of x."""
        return math.prod(axis.small for axis in self.axes)

    @property
    def large(self) -> int:
        """Positions of y."""
        return math.prod(axis.large for axis in self.axes)

    @property
    def taps(self) -> int:
        """Taps of a window."""
        return math.prod(axis.window.size for axis in self.axes)

    @property
    def split_cost(self) -> int:
        """Work as `split` counts it, where sums stay in registers: products, and reading the weights once."""
        weights = self.channels * self.maps * self.taps
        products = weights * self.batch * self.small
        return products * self.dtype.itemsize // (2 * vector_bytes()) + weights // VECTOR_SPEEDUP
