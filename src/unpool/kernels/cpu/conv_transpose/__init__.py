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

from functools import lru_cache

from unpool.kernels.cpu.conv_transpose import amx, direct, gemm_1x1, phases, rows, winograd_steps
from unpool.kernels.cpu.conv_transpose.algorithm import Algorithm
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem

HOPELESS = 3  # rows that cost this many times the phases are slower on any machine

ALGORITHMS: tuple[Algorithm, ...] = (
    gemm_1x1.ALGORITHM, amx.ALGORITHM, direct.ALGORITHM, winograd_steps.ALGORITHM, phases.ALGORITHM, rows.ALGORITHM
)  # fmt: skip
"""All algorithms; each is compared with the best of those behind it."""


def named(name: str) -> Algorithm:
    """The algorithm of this name."""
    return next(each for each in ALGORITHMS if each.name == name)


@lru_cache(maxsize=1024)
def algorithms(problem: ConvTransposeProblem) -> tuple[Algorithm, ...]:
    """The algorithms for a call, the best first; each is the fallback for weights that the one before cannot take."""
    chosen: list[Algorithm] = []
    for algorithm in reversed(ALGORITHMS):
        if algorithm.supports(problem) and (not chosen or algorithm.is_faster(problem, chosen[0])):
            chosen.insert(0, algorithm)
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
    is_hopeless = problem.group * problem.batch * rows.cost(problem) >= HOPELESS * phases.cost(problem)
    return tuple(supported[:-1] if is_hopeless else supported)
