"""Every kernel with its inputs and outputs between protected pages, and what shows that none was left out.

A stray access ends the process; the last line on stderr says in which case.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

import unpool
from tests.cases import kernel_conv_transpose as conv_transpose_cases
from tests.cases import kernel_few_channels as direct_cases
from tests.cases import kernel_pools as kernel_cases
from tests.cases.kernel_conv_transpose import chosen, conv_transpose_case, inaccurate_tiles, winograd_case
from tests.cases.kernel_few_channels import direct_case
from tests.cases.kernel_pools import CANARY, SAMPLE_KERNELS, WIDE_KERNELS, eager_threads, pool_case
from tests.cases.kernel_tiles import tile_case
from tests.support import cache_probe
from tests.support.guarded import beside_guard
from unpool import execute, per_plane
from unpool.execute import arrays
from unpool.execute import max_pool as pooling
from unpool.geometry import Axis, Window
from unpool.kernels.cpu.conv_transpose import phases_pack, phases_plan
from unpool.kernels.cpu.conv_transpose.winograd_accuracy import accuracy_thresholds
from unpool.kernels.cpu.conv_transpose.winograd_tiling import FLAT, DepthAxis
from unpool.kernels.cpu.max_pool import doubling
from unpool.kernels.cpu.max_unpool import windows

Case = Callable[[], str | None]  # runs it; what is wrong, None if nothing is
ALGORITHMS = ("gemm_1x1", "rows", "phases")
FLOATS = (np.float32, np.float16, np.float64)
SHAPES = ((1, 2, 5, 33), (2, 3, 7, 8), (3, 1, 4, 17), (1, 5, 1, 1), (0, 2, 3, 5), (2, 1, 9, 64))


@contextmanager
def guarded(*, at_end: bool) -> Iterator[None]:
    """Every array that cases make, and every one that unpool allocates itself, touches a protected page."""

    def placed(x: np.ndarray, gap: int) -> tuple[np.ndarray, np.ndarray]:
        room = 2 * gap * x.itemsize + x.nbytes
        return beside_guard(x, at_end=at_end), np.full(room, CANARY, np.uint8)

    def given(x: np.ndarray, _: int) -> np.ndarray:
        return beside_guard(x, at_end=at_end, is_input=True)

    def allocate(shape: tuple[int, ...], dtype: np.dtype[Any], _: str) -> np.ndarray:
        return beside_guard(np.full(shape, 77, dtype), at_end=at_end)

    with ExitStack() as stack:
        for module in (kernel_cases, conv_transpose_cases):
            stack.enter_context(patch.object(module, "placed", placed))
            stack.enter_context(patch.object(module, "given", given))
        for module in (pooling, arrays, per_plane):
            stack.enter_context(patch.object(module, "allocate", allocate))
        yield


def cases(count: int) -> list[tuple[str, Case]]:
    """Names and cases: so many pools and transposed convolutions, and fewer of what has fewer kernels."""
    few = max(6, count // 4)
    pools = [pool_case(number, SAMPLE_KERNELS) for number in range(count)]
    pools += [pool_case(number, WIDE_KERNELS) for number in range(5000, 5004)]
    pools += [tile_case(number) for number in range(few)]
    conv_transposes = [conv_transpose_case(number) for number in range(count)]
    conv_transposes += [winograd_case(number) for number in range(few)]
    found: list[tuple[str, Case]] = []
    directs = map(direct_case, range(few))
    makers = (pools, kernel_cases, 1), (conv_transposes, conv_transpose_cases, 4), (directs, direct_cases, 1)
    for made, module, turn in makers:
        for number, case in enumerate(made):
            found.append((case.name, partial(module.difference, case, 1 + number // turn % 2)))
    for number in range(few):
        found += [(f"{algorithm} {number}", partial(computed, number, algorithm)) for algorithm in ALGORITHMS]
        others = (judged, packed, doubled, unpooled, in_planes, empty)
        found += [(f"{work.__name__} {number}", partial(work, number)) for work in others]
    return found


def computed(number: int, algorithm: str) -> str | None:
    """What is wrong with a transposed convolution by this algorithm."""
    case = conv_transpose_case(8 * number + 1)
    if algorithm == "gemm_1x1":
        x, w, b = case.inputs
        rank = x.ndim - 2
        attributes = case.attributes | {"dilations": [1] * rank, "pads": [0] * 2 * rank, "group": 1}
        point = x[(slice(None), slice(w.shape[0]), *[slice(1)] * (x.ndim - 2))]
        inputs = np.resize(point, (x.shape[0], w.shape[0], *[1] * (x.ndim - 2))), w, b[: w.shape[1]]
        case = replace(case, inputs=inputs, attributes=attributes, ending={})

    @contextmanager
    def forced(_: Any) -> Iterator[None]:
        with chosen(algorithm), eager_threads():
            execute.clear_cache()
            yield
        execute.clear_cache()

    with patch.object(conv_transpose_cases, "forced", forced):
        return conv_transpose_cases.difference(case, 1 + number % 2)


def judged(number: int) -> str | None:
    """What is wrong with telling Winograd's even tiles from others, beside pages and elsewhere."""
    kind, edge = conv_transpose_cases.TYPES[number % 4], 5 + number % 7
    rng = np.random.default_rng(number)
    window = Window(4, 2, 1) if number % 4 < 2 else Window(3, 1, 1)
    axes = tuple(Axis(size * window.stride, size, window, 1) for size in (edge, edge + 6))
    x = rng.standard_normal((1 + number % 2, 16, edge, edge + 6)).astype(kind)
    x[0, :, 2, 3] *= kind(6e4)
    w = rng.standard_normal((16, 8, window.size, window.size)).astype(np.float64 if x.itemsize == 8 else np.float32)
    bounds, depth = accuracy_thresholds(w, axes, 1), FLAT
    if number % 3 == 0:
        x, depth = np.stack([x] * 3, axis=2), DepthAxis(small=3, large=4, taps=2, begin=0, step=1)
    found = [inaccurate_tiles(each, bounds, axes, 1, 1 + number % 2, depth) for each in (kernel_cases.given(x, 0), x)]
    return None if found[0].size and np.array_equal(*found) else f"judged {number}: {axes} {found}"


def packed(number: int) -> str | None:
    """What is wrong with weights that compiled code brings into the order of tiles."""
    rng = np.random.default_rng(number)
    kind, group, channels, maps = FLOATS[number % 2 * 2], 1 + number % 3, *map(int, rng.integers(1, 20, 2))
    axes = tuple(Axis(9 * 2 + size - 2, 9, Window(size, 2, 1), 0) for size in map(int, rng.integers(2, 6, 2)))
    w = rng.standard_normal((group * channels, maps, *[axis.window.size for axis in axes])).astype(kind)
    cut = phases_plan.blocking(axes, channels, maps, w.itemsize)
    right = phases_pack.pack(w, cut, group)
    out, _ = kernel_cases.placed(np.full_like(right, 77), 0)
    with eager_threads():
        phases_pack.fill(out, kernel_cases.given(w, 0), cut, group, 1 + number % 2)
    return None if out.tobytes() == right.tobytes() else f"packed {number}: {axes} {w.shape}"


def doubled(number: int) -> str | None:
    """What is wrong with windows that are pooled by doubling, as those without a finite element are."""
    values = (
        np.random.default_rng(number).integers(0, 9, (2, 1 + number % 3, 15, 40 + number)).astype(FLOATS[number % 3])
    )
    values[..., :16] = -np.inf
    x, given = kernel_cases.given(values, 0), {"kernel_shape": [13, 13], "pads": [6, 6, 6, 6]}
    right = unpool.max_pool(np.array(x), return_indices=True, **given)
    with patch.object(doubling, "DOUBLING_POOL", doubling.DOUBLING_POOL._replace(visits=0)):
        execute.clear_cache()
        found = unpool.max_pool(x, return_indices=True, **given)
    execute.clear_cache()
    is_right = all(mine.tobytes() == other.tobytes() for mine, other in zip(found, right, strict=True))
    return None if is_right else f"doubled {number}: {x.shape} {given}"


def drawn(number: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Elements, places of their planes for all of them, and how many places a plane has; 3 x 3 more than twice."""
    rng = np.random.default_rng(number)
    shape = SHAPES[number % len(SHAPES)]
    x = rng.integers(-99, 99, shape).astype(FLOATS[number // 2 % 3])
    plane = (2 * shape[2]) * (2 * shape[3] + number % 2)
    rows, columns = (np.arange(size) * 2 for size in shape[2:])
    own = (rows[:, None] + rng.integers(0, 2, shape)) * (plane // (2 * shape[2])) + columns + rng.integers(0, 2, shape)
    return x, own if number % 3 else rng.integers(0, plane, shape), plane


def unpooled(number: int) -> str | None:
    """What is wrong with unpooling by streams, by scattering, and in channels-last order."""
    x, places, plane = drawn(number)
    batch, channels, *small = x.shape
    shape = (batch, channels, 2 * small[0], plane // (2 * small[0]))
    whole = places + np.arange(batch * channels).reshape(batch, channels, 1, 1) * plane
    right = np.zeros(batch * channels * plane, x.dtype)
    right[whole.ravel()] = x.ravel()
    right = right.reshape(shape)
    layout = "NHWC" if number % 4 == 3 else "NCHW"
    x, right = (np.ascontiguousarray(np.moveaxis(each, 1, -1)) if layout == "NHWC" else each for each in (x, right))
    given = kernel_cases.given(x, 0), kernel_cases.given(whole, 0)
    out, _ = kernel_cases.placed(np.ones_like(right), 0)
    settings = {"kernel_shape": [2, 2], "strides": [2, 2], "layout": layout, "threads": 1 + number % 2}
    with eager_threads(), patch.object(windows, "UNPOOL", windows.UNPOOL._replace(non_temporal=number % 2 << 40)):
        execute.clear_cache()
        for target in (None, out):
            y = unpool.max_unpool(*given, np.array(shape), out=target, **settings)
            if y.tobytes() != right.tobytes():
                return f"unpooled {number}: {layout} {x.shape} into {shape}"
    return None


def in_planes(number: int) -> str | None:
    """What is wrong with unpooling and the gradients on indices that count in their own planes."""
    x, places, plane = drawn(number)
    outer = x.shape[:2]
    flat, at = (each.reshape(outer[0] * outer[1], x.shape[2] * x.shape[3]) for each in (x, places))
    last, total = (np.zeros((outer[0] * outer[1], plane), kind) for kind in (x.dtype, np.float64))
    for row, values, indices in zip(range(len(flat)), flat, at, strict=True):
        last[row, indices] = values
        np.add.at(total[row], indices, values.astype(np.float64))
    spread = last.reshape(*outer, plane)
    picked = np.take_along_axis(last, at, 1) if x.size else flat
    order = (0, 2, 3, 1) if number % 2 else (0, 1, 2, 3)
    back = np.argsort(order)
    given, indices = (kernel_cases.given(np.ascontiguousarray(each.transpose(order)), 0) for each in (x, places))
    values, indices = given.transpose(back), indices.transpose(back)
    large = kernel_cases.given(spread.reshape(*outer, 1, plane), 0)
    with eager_threads():
        unpooled = per_plane.max_unpool(values, indices, (1, plane), 2)
        summed = per_plane.max_pool_backward(values, indices, (1, plane), 2)
        gathered = per_plane.max_unpool_backward(large, indices, 2)
    right = spread.ravel(), total.astype(x.dtype).ravel(), picked.ravel()
    got = (np.ascontiguousarray(each).ravel() for each in (unpooled, summed, gathered))
    wrong = [name for name, ours, theirs in zip("usg", got, right, strict=True) if not np.array_equal(ours, theirs)]
    return f"in_planes {number}: {wrong} {x.shape}" if wrong else None


def empty(number: int) -> str | None:
    """A batch of none gives none, whatever the kernel."""
    x = kernel_cases.given(np.ones((0, 3, 9, 9), FLOATS[number % 3]), 0)
    w = kernel_cases.given(np.ones((3, 2, 3, 3), x.dtype), 0)
    size = 2 + number % 4
    y, indices = unpool.max_pool(x, kernel_shape=[size, size], strides=[2, 2], return_indices=True)
    computed = unpool.conv_transpose(x, w, strides=[2, 2]) if number % 3 != 1 else x
    again = unpool.max_unpool(y, indices, np.array(x.shape), kernel_shape=[size, size], strides=[2, 2])
    return f"empty {number}" if y.size + indices.size + computed.size + again.size else None


def run(count: int) -> tuple[int, list[str]]:
    """How many cases ran, beside pages before and behind them in turn, and what is wrong with some."""
    wrong, chosen = [], cases(count)
    for number, (name, case) in enumerate(chosen):
        sys.stderr.write(f"{name}\n")
        with guarded(at_end=number // 2 % 2 == 0):
            found = case()
        wrong += [found] if found else []
    return len(chosen), wrong


ELSEWHERE = ("conv_transpose.amx.", "normalization.", "planner.", "snake.")
"""Functions that run beside protected pages in test_conv_transpose_amx.py, test_normalization.py and test_snake.py, and
the planner, whose plans test_native_plans.py compares."""


def missed() -> list[str]:
    """Compiled functions that have not run in this process, nor as part of one that has, nor have a test elsewhere."""
    known = list(cache_probe.dispatchers())
    used = {name for name, each in known if each.overloads}
    inner = set().union(*(cache_probe.calls(each.py_func) for _, each in known if each.overloads))
    return sorted(name for name in cache_probe.written() - used - inner if not name.startswith(ELSEWHERE))
