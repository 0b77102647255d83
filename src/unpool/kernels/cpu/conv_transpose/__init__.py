"""Transposed convolution: which of six algorithms computes a call, and why.

| inputs | algorithm | why |
|---|---|---|
| one element per channel, no dilation | gemm_1x1 | nothing overlaps |
| few products for each output, stride 1, 2, 4 or 8 | direct | inputs and sums stay in registers, nothing else moves |
| constant weights and inputs of bfloat16, of many channels, on a CPU with AMX | amx | more products at once |
| phases of 2x2 or 3x3 taps, in slices, of many channels and positions | winograd | fewer products |
| almost all others | phases | sums stay in registers, inputs are read once per tile |
| large windows on tiny maps, weights with NaN or infinity | rows | padding is never multiplied |

The algorithm is chosen here, and `dispatch.py` runs it. To add one, write a file of its name, a line of the table, a
condition in `algorithms`, and a function in `dispatch.py` that prepares it.

Costs were measured on an AVX-512 processor. Their unit is one multiply-add of a filled tile of the phases' product,
which runs at 95 to 99 % of the processor's peak.
"""

import math
from functools import lru_cache

from unpool.geometry import Axis
from unpool.kernels.cpu.conv_transpose import amx, direct, phases_plan, winograd
from unpool.kernels.cpu.conv_transpose.problem import Algorithm, ConvTransposeProblem
from unpool.kernels.cpu.conv_transpose.winograd_tiling import flatten_depth

ROWS = 5  # a multiply-add of the rows kernel: every one loads and stores its sum
ROW_CALL = 600  # overhead of the rows kernel for each tap of each row, of any length: 10 nanoseconds
FAR = 3  # rows that cost this many times the phases are slower on any machine
UNCERTAIN = 1.5  # of Winograd's tiles and phases, the one that costs so many times the other is slower on any machine
AMX_SHARE = 0.7  # of the cost in float32, up to which AMX is faster
PACKING = 4  # packing a weight into the order of tiles, in every call for weights that are not constant
PACK_CALL = 1 << 20  # least cost of packing in every call, 20 microseconds
MOST_TAPS = 1 << 14  # maximum number of phases or taps for tables of them


@lru_cache(maxsize=1024)
def algorithms(problem: ConvTransposeProblem) -> tuple[Algorithm, ...]:
    """The algorithms for a call, the best first; each is the fallback for weights that the one before cannot take."""
    if _is_gemm_1x1(problem):
        return ("gemm_1x1",)
    shape = _group_shape(problem)
    chosen: list[Algorithm] = ["rows"]
    supported = supported_algorithms(problem)
    if "phases" in supported:
        packing = PACKING * math.prod(shape[:2]) * problem.taps + (0 if problem.is_cached else PACK_CALL)
        phases = phases_plan.blocking(problem.axes, *shape).cost + packing / problem.batch
        if phases < _cost_of_rows(problem.axes, *shape[:2]):
            chosen.insert(0, "phases")
    if "winograd" in supported and winograd.is_cheapest(*_flat_shape(problem), is_cached=problem.is_cached):
        chosen.insert(0, "winograd")
    if "direct" in supported and direct.is_cheapest(problem.axes, *shape):
        chosen.insert(0, "direct")
    if "amx" in supported and amx.cost(problem) < AMX_SHARE * _cost_of_dense(problem, chosen[0]):
        chosen.insert(0, "amx")
    tuned: list[Algorithm] = [each for each in supported if each == problem.algorithm]
    return (*tuned, *(each for each in chosen if each not in tuned))


@lru_cache(maxsize=1024)
def supported_algorithms(problem: ConvTransposeProblem) -> tuple[Algorithm, ...]:
    """All algorithms for a call with finite weights; "rows" only where it may be the fastest."""
    if _is_gemm_1x1(problem):
        return ("gemm_1x1",)
    shape = _group_shape(problem)
    if problem.batch * math.prod(shape) == 0 or any(axis.small == 0 or axis.large == 0 for axis in problem.axes):
        return ("rows",)
    chosen: list[Algorithm] = ["rows"]
    phases = math.prod(min(axis.window.stride, axis.large) for axis in problem.axes)
    is_listed = max(problem.taps, phases) <= MOST_TAPS
    dense = phases_plan.blocking(problem.axes, *shape).cost if is_listed else math.inf
    if dense < math.inf:
        chosen = ["phases", "rows"] if _cost_of_rows(problem.axes, *shape[:2]) < FAR * dense else ["phases"]
    is_winograd = not (problem.is_channels_last or problem.is_exact) and flatten_depth(problem) is not None
    if is_winograd and winograd.cost(*_flat_shape(problem), is_cached=True) < math.inf:
        chosen.insert(0, "winograd")
    if problem.is_amx and problem.is_cached and is_listed and amx.plan_of(problem) is not None:
        chosen.insert(0, "amx")
    if problem.is_plain and direct.fits(problem.axes, shape[0], shape[2]):
        chosen.insert(0, "direct")
    return tuple(chosen)


@lru_cache(maxsize=1024)
def candidate_algorithms(problem: ConvTransposeProblem) -> tuple[Algorithm, ...]:
    """The supported algorithms that may be the fastest on some machine, judged by their costs."""
    shape, supported = _group_shape(problem), supported_algorithms(problem)
    slow = set() if direct.may_be_cheapest(problem.axes, *shape) else {"direct"}
    if "winograd" in supported:
        share = winograd.share(*_flat_shape(problem), is_cached=problem.is_cached)
        slow |= {"winograd"} if share > UNCERTAIN else {"phases", "rows"} if share * UNCERTAIN < 1 else set()
    return tuple(each for each in supported if each not in slow or each == algorithms(problem)[0])


def _group_shape(problem: ConvTransposeProblem) -> tuple[int, int, int]:
    """Channels of x and of y in one group, and bytes of an element."""
    return problem.channels // problem.group, problem.maps, problem.dtype.itemsize


def _flat_shape(problem: ConvTransposeProblem) -> tuple[tuple[Axis, ...], int, int, int, int]:
    """Arguments of Winograd's costs, of a call that can be flattened."""
    flat = flatten_depth(problem)
    assert flat is not None
    return flat.axes, flat.batch, flat.channels // flat.group, flat.maps, flat.dtype.itemsize


def _cost_of_dense(problem: ConvTransposeProblem, algorithm: Algorithm) -> float:
    """Cost of Winograd's algorithm or of the phases, in multiply-adds."""
    if algorithm == "winograd":
        return problem.group * winograd.cost(*_flat_shape(problem), is_cached=problem.is_cached)
    return problem.group * problem.batch * phases_plan.blocking(problem.axes, *_group_shape(problem)).cost


def _is_gemm_1x1(problem: ConvTransposeProblem) -> bool:
    is_single_group = problem.group == 1 and problem.batch * problem.channels > 0
    return is_single_group and all(axis.small == 1 and axis.window.dilation == 1 for axis in problem.axes)


def _cost_of_rows(axes: tuple[Axis, ...], channels: int, maps: int) -> float:
    products = channels * maps * math.prod(axis.window.size * axis.small for axis in axes)
    return products * (ROWS + ROW_CALL / axes[-1].small)
