"""NaN costs a comparison more where it is, and no second pool of the plane, however it lies."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from tests.cases import kernel_pools as kernel_cases
from tests.cases.kernel_pools import KERNELS, ROLLING_KERNELS, Kernel, PoolCase
from unpool.kernels.cpu.max_pool import direct

SHAPE = (3, 2, 19, 71)
FLOATING = tuple(each for each in KERNELS if np.dtype(each.kind).kind not in "iu")
SEPARABLE = tuple(each for each in FLOATING if each.is_separable)
DIRECT = tuple(each for each in FLOATING if not each.is_separable)


def every(step: int, axis: int) -> Callable[[np.ndarray], Any]:
    """Which elements are NaN: all at every `step`-th place of an axis."""
    return lambda number: np.unravel_index(number, SHAPE)[axis] % step == 0


PLACES: dict[str, Callable[[np.ndarray], Any]] = {
    "one": lambda number: number == number.size // 2,
    "one in every second plane": lambda number: number % (2 * 19 * 71) == 700,
    "one in a hundred": lambda number: number * 7919 % 101 == 0,
    "half": lambda number: number * 7919 % 101 < 50,
    "rows": every(2, 2),
    "columns": every(9, 3),
    "planes": every(2, 0),
    "all": lambda number: number >= 0,
    "ends of rows": lambda number: number % SHAPE[3] == SHAPE[3] - 1,
}


def case(kernel: Kernel, where: str, *, nan_last: bool) -> PoolCase:
    """A pool of numbers, and of NaN that tell which of them was found."""
    window = kernel.rolled or (5, 4)
    attributes = {"kernel_shape": list(window), "strides": [kernel.stride or 3] * 2, "pads": [1, 0, 0, 1]}
    numbers = np.random.default_rng(4).integers(-9, 9, SHAPE).astype(kernel.kind)
    bits = kernel_cases.bits_of(np.full(SHAPE, np.nan, kernel.kind)) + np.arange(numbers.size).reshape(SHAPE) % 13
    nan = bits.astype(f"u{numbers.itemsize}").view(kernel.kind)
    is_nan = np.asarray(PLACES[where](np.arange(numbers.size))).reshape(SHAPE)
    x = np.where(is_nan, nan, numbers).astype(kernel.kind)
    plain = kernel_cases.plain_case(f"{kernel} {where} {nan_last=}", kernel, x, **attributes)
    return replace(plain, gaps=(1, 2, 3), nan_last=nan_last)


@pytest.mark.sample(3)
@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("kernels", [ROLLING_KERNELS, SEPARABLE], ids=["rolling", "separable"])
def test_is_pooled_once(kernels: tuple[Kernel, ...], where: str) -> None:
    """The kernels that take windows apart find NaN, its bits and its place by themselves, with any threads."""
    with patch.object(direct, "launch", side_effect=AssertionError("pooled again")):
        for number, kernel in enumerate(kernels):
            chosen = case(kernel, where, nan_last=number % 2 == 1)
            assert kernel_cases.difference(chosen, 1, 3) is None
            assert kernel_cases.difference(replace(chosen, nan_last=number % 2 == 0), 1, 3) is None


@pytest.mark.sample(3)
@pytest.mark.parametrize("where", PLACES)
def test_directly(where: str) -> None:
    """So does the kernel that walks whole windows, whether the block before had NaN or not."""
    for kernel in DIRECT:
        for nan_last in (False, True):
            assert kernel_cases.difference(case(kernel, where, nan_last=nan_last), 1) is None


def test_at_the_end_of_rows() -> None:
    """In the last place of rows whose length no number of lanes divides, NaN is found where no padding follows."""
    for number, kernel in enumerate((*DIRECT, *SEPARABLE, *ROLLING_KERNELS[:1])):
        chosen = case(kernel, "ends of rows", nan_last=number % 2 == 1)
        attributes = chosen.attributes | {"strides": [kernel.stride or 3, kernel.stride or 67]}  # 67 + 4 are all of 71
        chosen = replace(chosen, attributes=attributes | {"pads": [0, 0 if kernel.stride != 2 else 1, 0, 0]})
        assert kernel_cases.difference(chosen, 1) is None
