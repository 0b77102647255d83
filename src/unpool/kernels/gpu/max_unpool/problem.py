"""A max unpooling as its kernels take it: zeros, with every element of x at its index."""

import math
from dataclasses import dataclass

from unpool.geometry import Axis
from unpool.kernels.gpu.launch import LIMIT32


@dataclass(frozen=True, slots=True)
class GpuUnpoolProblem:
    """One call.

    Attributes:
        axes: one per spatial axis, whose large size is that of y.
        inferred: the other spatial sizes that indices may count in.
        batch: N.
        channels: C.
        kind: of the elements, as `unpool.dtypes` calls it.
        index_space: "output", "inferred" or "auto".
        is_channels_last: whether x and y are (N, D1..Dk, C) in memory.
        per_plane: whether indices count inside their own plane, instead of the whole tensor.
        activation: its name, "" for none.
        params: its parameters.
    """

    axes: tuple[Axis, ...]
    inferred: tuple[int, ...]
    batch: int
    channels: int
    kind: str
    index_space: str = "output"
    is_channels_last: bool = False
    per_plane: bool = False
    activation: str = ""
    params: tuple[float, ...] = ()

    @property
    def planes(self) -> int:
        """N * C."""
        return self.batch * self.channels

    @property
    def small(self) -> int:
        """Elements of a plane of x."""
        return math.prod(axis.small for axis in self.axes)

    @property
    def large(self) -> int:
        """Elements of a plane of y."""
        return math.prod(axis.large for axis in self.axes)

    @property
    def index_sizes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sizes of the two spaces that indices may count in: those of y, and the inferred ones if they may apply."""
        large = tuple(axis.large for axis in self.axes)
        return large, large if self.index_space == "output" else self.inferred

    @property
    def is_wide(self) -> bool:
        """True if places have 64 bits."""
        reach = max(axis.small * axis.window.stride + axis.window.size + axis.begin for axis in self.axes)
        return max(self.planes * max(self.large, self.small), reach) >= LIMIT32
