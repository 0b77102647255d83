"""Transposed convolution: which of six algorithms computes a call, and why.

| inputs | algorithm | why |
|---|---|---|
| one element per channel, no dilation | gemm_1x1 | nothing overlaps |
| constant weights and inputs of bfloat16, of many channels, on a CPU with AMX | amx | more products at once |
| few products for each output, stride 1, 2, 4 or 8 | direct | inputs and sums stay in registers, nothing else moves |
| phases of 2x2 or 3x3 taps, in slices, of many channels and positions | winograd | fewer products |
| almost all others | phases | sums stay in registers, inputs are read once per tile |
| large windows on tiny maps, weights with NaN or infinity | rows | padding is never multiplied |

Each is an `Algorithm` in a file of its name (`winograd_steps.py` for Winograd's). They are compared from the last to
the first. To add one, write such a file, and put it into `ALGORITHMS` before those that it is compared with.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from unpool.kernels.cpu.conv_transpose import amx, direct, gemm_1x1, phases, rows, winograd_steps
from unpool.kernels.cpu.conv_transpose.algorithm import Algorithm
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem
from unpool.kernels.cpu.tuning import ROWS_COSTS
from unpool.kernels.cpu.vector.registration import compile_as, jit_inline

ALGORITHMS: tuple[Algorithm, ...] = (
    gemm_1x1.ALGORITHM, amx.ALGORITHM, direct.ALGORITHM, winograd_steps.ALGORITHM, phases.ALGORITHM, rows.ALGORITHM
)  # fmt: skip
"""All algorithms; each is compared with the best of those behind it."""


def named(name: str) -> Algorithm:
    """The algorithm of this name."""
    return next(each for each in ALGORITHMS if each.name == name)


GEMM_1X1, AMX, DIRECT, WINOGRAD, PHASES, ROWS = range(6)
"""Numbers of algorithms, for compiled code."""


def supports(number: int, problem: ConvTransposeProblem) -> bool:
    """As `Algorithm.supports`, of an algorithm's number."""
    return ALGORITHMS[number].supports(problem)


@compile_as(supports)
def _supports(number: Any, problem: Any) -> Callable[..., Any]:
    def compiled(number, problem):
        if number == GEMM_1X1:
            return gemm_1x1.is_possible(problem)
        if number == DIRECT:
            return direct.supports(problem)
        if number == WINOGRAD:
            return winograd_steps.supports(problem)
        return phases.supports(problem) if number == PHASES else number == ROWS

    return compiled


def is_faster(number: int, problem: ConvTransposeProblem, other: int) -> bool:
    """As `Algorithm.is_faster`, of the numbers of two algorithms."""
    return ALGORITHMS[number].is_faster(problem, ALGORITHMS[other])


@compile_as(is_faster)
def _is_faster(number: Any, problem: Any, other: Any) -> Callable[..., Any]:
    def compiled(number, problem, other):
        if number == DIRECT:
            return direct.is_faster(problem, other)
        if number == WINOGRAD:
            return winograd_steps.is_faster(problem, other)
        return phases.is_faster(problem, other) if number == PHASES else number == GEMM_1X1

    return compiled


@jit_inline
def choose(problem: ConvTransposeProblem) -> Any:
    """The numbers of the algorithms for a call, the best last, and how many they are."""
    chosen, count = np.empty(ROWS + 1, np.int64), 0
    for number in range(ROWS, -1, -1):
        if supports(number, problem) and (count == 0 or is_faster(number, problem, chosen[count - 1])):
            chosen[count], count = number, count + 1
    return chosen, count


@lru_cache(maxsize=1024)
def algorithms(problem: ConvTransposeProblem) -> tuple[Algorithm, ...]:
    """The algorithms for a call, the best first; each takes over if its predecessor cannot take the weights."""
    numbers, count = choose(problem)
    chosen = [ALGORITHMS[numbers[place]] for place in range(count - 1, -1, -1)]
    if chosen[0] is gemm_1x1.ALGORITHM:  # which takes all weights
        return (chosen[0],)
    tuned = [each for each in supported_algorithms(problem) if each.name == problem.algorithm]
    return (*tuned, *(each for each in chosen if each not in tuned))


@lru_cache(maxsize=1024)
def supported_algorithms(problem: ConvTransposeProblem) -> tuple[Algorithm, ...]:
    """All algorithms for a call with finite weights; "rows" only where it may be the fastest."""
    supported = [each for each in ALGORITHMS if each.supports(problem)]
    if supported[0] is gemm_1x1.ALGORITHM:
        return (supported[0],)
    if phases.ALGORITHM not in supported:
        return tuple(supported)
    is_hopeless = problem.group * problem.batch * rows.cost(problem) >= ROWS_COSTS.hopeless * phases.cost(problem)
    return tuple(supported[:-1] if is_hopeless else supported)
