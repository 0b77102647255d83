"""What a transposed convolution is, before any array is there."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from unpool.geometry import Axis
from unpool.kernels.cpu.machine.threads import VECTORISED

Way = Literal["points", "direct", "winograd", "phases", "rows"]
"""How a transposed convolution is computed; `__init__.py` tells them apart."""


@dataclass(frozen=True, slots=True)
class Work:
    """What the choice of a way depends on.

    Attributes:
        axes: one per spatial axis.
        batch: size of the batch.
        group: number of groups.
        channels: of x.
        maps: of each group of y.
        dtype: in which sums are formed.
        is_plain: whether x and y are of that type, channels first.
        is_kept: whether what is derived from the weights can be kept.
        is_channels_last: whether x and y are.
        is_exact: whether every product is formed as it is written, which Winograd's tiles do not.
        way: the one to take where the call can, because it was faster when it was timed; None for the cheapest one.
    """

    axes: tuple[Axis, ...]
    batch: int
    group: int
    channels: int
    maps: int
    dtype: np.dtype[Any]
    is_plain: bool
    is_kept: bool
    is_channels_last: bool = False
    is_exact: bool = False
    way: str | None = None

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
        """Of a window."""
        return math.prod(axis.window.size for axis in self.axes)

    @property
    def split_work(self) -> int:
        """As `split` counts it, where sums stay in registers."""
        return self.batch * self.channels * self.maps * self.small * self.taps // VECTORISED
