"""Every path of the pools and of ConvTranspose: one table of who makes its cases, and which are tried.

The number of a case seeds its geometry, type, layout, ending, and the gaps in front of its arrays.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from tests.cases import kernel_conv_transpose as conv_transpose_cases
from tests.cases import kernel_few_channels as direct_cases
from tests.cases import kernel_pools as pool_cases
from tests.cases import kernel_tiles as tile_cases


class KernelPath(NamedTuple):
    """A way to compute a call."""

    case_of: Callable[[int], Any]  # the case of a number
    difference: Callable[[Any, int], str | None]  # what is wrong with a case on so many threads; None if nothing is
    numbers: range  # of the cases

    def cases(self) -> list[Any]:
        return [self.case_of(number) for number in self.numbers]

    def differences(self) -> list[str]:
        """What is wrong with the cases, each alone and with two threads."""
        found = (self.difference(case, threads) for case in self.cases() for threads in (1, 2))
        return [each for each in found if each]


PATHS = {
    "pools": KernelPath(pool_cases.pool_case, pool_cases.difference, range(576)),
    "pools with places of 64 bits": KernelPath(
        partial(pool_cases.pool_case, kernels=pool_cases.WIDE_KERNELS), pool_cases.difference, range(5000, 5040)
    ),
    "tiles": KernelPath(tile_cases.tile_case, pool_cases.difference, range(432)),
    "tiles with places of 64 bits": KernelPath(
        partial(tile_cases.tile_case, kernels=tile_cases.WIDE_KERNELS), pool_cases.difference, range(9000, 9008)
    ),
    "phases and rows": KernelPath(
        conv_transpose_cases.conv_transpose_case, conv_transpose_cases.difference, range(400)
    ),
    "winograd": KernelPath(conv_transpose_cases.winograd_case, conv_transpose_cases.difference, range(288)),
    "rolling pools": KernelPath(
        partial(pool_cases.pool_case, kernels=pool_cases.ROLLING_KERNELS), pool_cases.difference, range(7000, 7280)
    ),
    "direct": KernelPath(direct_cases.direct_case, direct_cases.difference, range(320)),
}
