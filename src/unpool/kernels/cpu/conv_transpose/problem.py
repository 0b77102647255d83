"""Description of a transposed convolution, before there are arrays."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from unpool.geometry import Axis
from unpool.kernels.cpu.axes import axis_at, large_sizes, small_sizes
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.machine.threads import VECTOR_SPEEDUP
from unpool.kernels.cpu.vector.registration import compile_as, jit_inline


class Storage(NamedTuple):
    """How x, w and y are stored."""

    is_plain: bool  # whether x and y have the type of sums, with channels first
    is_channels_last: bool = False  # whether channels are the last axis of x and y
    is_amx: bool = False  # whether x, w and y are bfloat16, and AMX can multiply them


class ConvTransposeProblem(NamedTuple):
    """All that the choice of an algorithm depends on."""

    axes: tuple[Axis, ...]  # one per spatial axis
    batch: int  # size of the batch
    group: int  # number of groups
    channels: int  # of x
    maps: int  # channels of y, in one group
    dtype: np.dtype[Any]  # in which sums are formed; compiled, bytes of an element
    storage: Storage
    is_cached: bool  # whether packed weights are kept for later calls
    is_exact: bool = False  # whether every product is formed as written, which Winograd's tiles do not
    algorithm: str | None = None  # chosen by autotuning; used where it is supported
    cut: Any = None  # compiled, the blocking by phases

    @property
    def group_shape(self) -> tuple[int, int, int]:
        """Channels of x and of y in one group, and bytes of an element."""
        return group_shape(self)

    @property
    def is_empty(self) -> bool:
        """True if there are no products."""
        return is_empty(self)

    @property
    def small(self) -> int:
        """Positions of x."""
        return small_sizes(self.axes, 0)

    @property
    def large(self) -> int:
        """Positions of y."""
        return large_sizes(self.axes, 0)

    @property
    def taps(self) -> int:
        """Taps of a window."""
        return window_taps(self.axes)

    @property
    def split_cost(self) -> int:
        """Work as `split` counts it, where sums stay in registers: products, and reading the weights once."""
        return split_cost(self)


def element_size(problem: ConvTransposeProblem) -> int:
    """Bytes of an element of sums."""
    return problem.dtype.itemsize


@compile_as(element_size)
def _element_size(problem: Any) -> Callable[..., Any]:
    return lambda problem: problem.dtype


@jit_inline
def group_shape(problem: ConvTransposeProblem) -> tuple[int, int, int]:
    """As `ConvTransposeProblem.group_shape`."""
    return problem.channels // problem.group, problem.maps, element_size(problem)


@jit_inline
def is_empty(problem: ConvTransposeProblem) -> bool:
    """As `ConvTransposeProblem.is_empty`."""
    if problem.batch == 0 or problem.channels // problem.group == 0 or problem.maps == 0:
        return True
    return small_sizes(problem.axes, 0) == 0 or large_sizes(problem.axes, 0) == 0


@jit_inline
def window_taps(axes: Any) -> int:
    """Taps of a window."""
    taps = 1
    for number in range(len(axes)):
        taps *= axis_at(axes, number).window.size
    return taps


@jit_inline
def phase_count(axes: Any) -> int:
    """Phases of y."""
    count = 1
    for number in range(len(axes)):
        axis = axis_at(axes, number)
        count *= min(axis.window.stride, axis.large)
    return count


@jit_inline
def split_cost(problem: ConvTransposeProblem) -> int:
    """As `ConvTransposeProblem.split_cost`."""
    weights = problem.channels * problem.maps * window_taps(problem.axes)
    products = weights * problem.batch * small_sizes(problem.axes, 0)
    return products * element_size(problem) // (2 * vector_bytes()) + weights // VECTOR_SPEEDUP
