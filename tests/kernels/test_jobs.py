"""Every thread gets an equal share: how kernels cut the calls of the benchmark, for 1 to 96 threads; nothing runs.

What a job takes is what the routes' own costs say, and for what moves memory only, its bytes.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest

import unpool
from benchmarks.case import Call
from benchmarks.shapes import CHANNELS, CONV_TRANSPOSE, MAX_POOL, MAX_UNPOOL, SIZES, WINDOWS
from unpool.dtypes import storage_type
from unpool.geometry import Axis, Window
from unpool.kernels.cpu import conv_transpose, max_pool, max_unpool
from unpool.kernels.cpu.conv_transpose import direct, dispatch, phases, phases_plan, winograd, winograd_accuracy
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem, Storage
from unpool.kernels.cpu.conv_transpose.winograd_tiling import depth_axis, flatten_depth, tiling_of
from unpool.kernels.cpu.fold_axes import readonly
from unpool.kernels.cpu.machine import jobs, threads
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.machine.jobs import JobSplit
from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.max_pool.pool import ElementType, PoolMode, PoolProblem
from unpool.kernels.cpu.max_unpool import scatter
from unpool.kernels.cpu.tuning import JOBS

MOST = 96
WORTH = 200.0  # microseconds of work of each thread, from which on shares have to be even
PRODUCTS = 58_700  # multiply-adds at the processor's peak, in a microsecond of one thread
BYTES = 10_000  # from and to memory, likewise
POOLS, UNPOOLS, CONV_TRANSPOSES = (*MAX_POOL, *SIZES, *WINDOWS), MAX_UNPOOL, (*CONV_TRANSPOSE, *CHANNELS)

COARSE = {
    "max_unpool/SegNet last unpool, 8 images/float32": 1.17,
    "max_unpool/SegNet last unpool, 1 image/float32": 1.48,
    "conv_transpose/pix2pix up 512/float32": 1.52,
    "conv_transpose/pix2pix up 256/float32": 1.34,
    "conv_transpose/pix2pix up 64/float32": 1.24,
    "conv_transpose/DCGAN up 128, 8 images/float32": 1.30,
    "conv_transpose/U-Net up 1024/float32": 1.20,
    "conv_transpose/CycleGAN up, 8 images/float32": 1.33,
    "conv_transpose/U-Net up 256/float32": 1.17,
    "conv_transpose/DeconvNet 64, 8 images/float32": 1.19,
    "conv_transpose/DeconvNet 256/float32": 1.22,
    "conv_transpose/DCGAN up 1024/float32": 2.43,
    "conv_transpose/FCN-8s up, 21 classes/float32": 1.24,
    "conv_transpose/HiFi-GAN vocoder up/float32": 1.31,
    "conv_transpose/iSTFT/float32": 3.48,
    "conv_transpose_k2/256 channels, size 64/float32": 1.21,
    "conv_transpose_k2/1024 channels, size 8/float32": 1.43,
    "conv_transpose_k2/1024 channels, size 32/float32": 1.19,
    "conv_transpose_k4/256 channels, size 32/float32": 1.29,
    "conv_transpose_k4/256 channels, size 64/float32": 1.34,
    "conv_transpose_k4/1024 channels, size 8/float32": 2.43,
    "conv_transpose_k4/1024 channels, size 32/float32": 1.29,
    "conv_transpose_k4/1024 channels, size 64/float32": 1.23,
}
"""How uneven shares are at most, where a smaller job would be less than some tiles of products, or where even shares
would take longer than uneven ones: each job of phases needs its inputs laid out, of Winograd's tiles transformed, and
each part of a plane all of its indices. The larger one of AVX-512 and AVX2."""


def axes_of(case: Call) -> tuple[Axis, ...]:
    window, grows = Window(case.window, case.stride, case.dilation), case.operator == "conv_transpose"
    larges, smalls = (case.y_shape, case.x_shape) if grows else (case.x_shape, case.y_shape)
    if case.operator == "max_unpool":
        larges, smalls = smalls, larges
    return tuple(Axis(large, small, window, case.pad) for large, small in zip(larges[2:], smalls[2:], strict=True))


def pool_of(case: Call) -> PoolProblem:
    (n, c, *spatial), storage = case.shape, storage_type(case.numpy_type, "")
    is_last = case.layout == "NHWC"
    lowest = int(np.array(storage.lowest, storage.dtype).view(storage.bits))
    elements = ElementType(np.dtype(storage.bits), storage.infinity, lowest)
    shape = (n, *spatial, c) if is_last else (n * c, *spatial)
    return PoolProblem.of(shape, axes_of(case), elements, case.indices, PoolMode(is_last))


def problem_of(case: Call) -> ConvTransposeProblem:
    sizes = case.shape[0], case.group, case.shape[1], case.channels // case.group
    return ConvTransposeProblem(axes_of(case), *sizes, np.dtype(np.float32), Storage(is_plain=True), is_cached=True)


class Jobs(NamedTuple):
    """Of one kernel, in microseconds."""

    each: np.ndarray  # what every job takes
    along: int = 1  # so many in a row share what is prepared for them
    before: float = 0.0  # what that takes

    def shares(self, count: int) -> np.ndarray:
        """What each of so many threads gets, as a board deals jobs."""
        edges = len(self.each) * np.arange(count + 1) // count
        sums = np.append(0, np.cumsum(self.each))[edges]
        rows = -(-edges[1:] // self.along) - edges[:-1] // self.along
        return np.diff(sums) + rows * self.before


def alike(count: int, total: float) -> Jobs:
    return Jobs(np.full(count, total / count))


def dealt(cut: JobSplit, last: float = 1.0) -> Jobs:
    """Jobs of a cut; the last row of those that share what is prepared may be shorter, and is `last` of the others."""
    each = np.full(cut.jobs, cut.each / PRODUCTS)
    each[-cut.along :] *= last
    return Jobs(each, cut.along, cut.before / PRODUCTS)


def last_part(size: int, part: int, unit: int) -> float:
    """What the last part has of the others, in whole units."""
    return -(-(size % part) // unit) * unit / part or 1.0


def kernels(case: Call, count: int) -> Iterator[Jobs]:
    """The jobs of every kernel that a call runs with so many threads, in microseconds."""
    if case.operator == "conv_transpose":
        yield from conv_transposes(problem_of(case), count)
    elif case.operator == "max_pool":
        pool = pool_of(case)
        yield alike(max_pool.route(pool)._jobs, pool.nbytes / BYTES)
    else:
        planes, large = case.shape[0] * case.shape[1], int(np.prod(case.shape[2:]))
        small = int(np.prod(case.x_shape[2:]))
        streams = max_unpool.route(
            axes_of(case), planes, 4, channels_last=False, counts_in_y=True, is_recycled=True
        )  # fmt: skip
        assert streams is not None
        yield alike(streams._jobs, planes * (12 * small + 4 * large) / BYTES)
        yield alike(scatter._range_check(planes * small, planes * large, planes)._jobs, planes * 8 * small / BYTES)
        parts = scatter._parts(planes, small, large, count)
        yield alike(planes * parts, planes * (parts * 8 * small + 4 * (small + large)) / BYTES)


def conv_transposes(work: ConvTransposeProblem, count: int) -> Iterator[Jobs]:
    algorithm, channels = conv_transpose.algorithms(work)[0].name, work.channels // work.group
    products = work.batch * work.channels * work.maps * work.small * work.taps
    if algorithm == "phases":
        whole = phases_plan.blocking(work.axes, channels, work.maps, 4)
        found, _ = phases_plan.blocking_for_threads(whole, work, count)
        cut = phases_plan._split_of(found, found.block, work)
        yield dealt(cut, last_part(found.plan.length, found.block, found.step))
    elif algorithm == "winograd":
        flat, depth = flatten_depth(work), depth_axis(work.axes)
        assert flat is not None
        assert depth is not None
        found = winograd.choose_blocks(flat, count)
        positions = flat.batch * int(np.prod(tiling_of(flat.axes).tiles))
        yield dealt(found.jobs, last_part(positions, found.block, vector_bytes() // 4))
        shape = (work.batch, work.channels, depth.small, *(axis.small for axis in flat.axes))
        check = winograd_accuracy._check(flat.axes, shape, work.dtype, work.group, depth)
        yield alike(check.for_threads(count)._jobs, 4 * int(np.prod(shape)) * depth.taps / BYTES)
    elif algorithm == "direct":
        yield alike(direct.launch(work).for_threads(count)._jobs, 4 * products / PRODUCTS)
    else:
        with patch.object(Launch, "run", lambda self, *_: made.append(self)):
            made: list[Launch] = []
            arrays = [np.empty(shape, np.float32) for shape in ((work.batch, work.channels), (1,), (1,), (1,))]
            dispatch.make_run(conv_transpose.named(algorithm), work, work.dtype)(*arrays, count)
        yield alike(made[0]._jobs, products / PRODUCTS)


@pytest.mark.sample(9)
@pytest.mark.parametrize("case", [*POOLS, *UNPOOLS, *CONV_TRANSPOSES], ids=lambda case: f"{case.path} {case.title}")
def test_shares_are_even(case: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """The busiest of 1 to 96 threads has at most JOBS.imbalance times the mean, where it is worth 200 µs."""
    worst = {}
    for count in range(1, MOST + 1):
        monkeypatch.setattr(phases_plan, "max_threads", lambda: count)  # noqa: B023 - called in the same turn
        for number, each in enumerate(kernels(case, count)):
            got = each.shares(count)
            if got.mean() >= WORTH:
                worst[number, count] = float(got.max() / got.mean())
    allowed = COARSE.get(case.path, JOBS.imbalance)
    assert {key: share for key, share in worst.items() if share > allowed} == {}


@pytest.mark.parametrize("count", [1, 2, 5, 16, 96])
def test_launches_are_cut_as_costs_say(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs whose costs are compared are those that the kernels get."""
    monkeypatch.setattr(threads, "available_cores", lambda: MOST)
    for case in CONV_TRANSPOSES:
        work = problem_of(case)
        algorithm = conv_transpose.algorithms(work)[0].name
        if algorithm == "winograd":
            flat, depth = flatten_depth(work), depth_axis(work.axes)
            launch = winograd.launch(flat, work.dtype, depth=depth).for_threads(count)
            assert launch._jobs == winograd.choose_blocks(flat, count).jobs.jobs
        elif algorithm == "phases" and case.shape[-1] <= 64:
            whole = phases_plan.blocking(work.axes, work.channels // work.group, work.maps, 4)
            found, parts = phases_plan.blocking_for_threads(whole, work, count)
            launch = phases.launch(work, work.dtype).for_threads(count)
            assert (launch._jobs, launch._parts) == (phases_plan._split_of(found, found.block, work).jobs, parts)


def test_enough_is_enough() -> None:
    """From `even_job_count` jobs on shares are even, and one less would not do for all threads."""

    def imbalance(number: int, count: int) -> float:
        return -(-number // count) * count / number

    for count in range(1, MOST + 1):
        fewest = jobs.even_job_count(count)
        assert max(imbalance(number, count) for number in range(fewest, fewest + 2 * count)) <= JOBS.imbalance, count
        fewer = range(count, fewest)
        assert count < 3 or max(imbalance(number, count) for number in fewer) > JOBS.imbalance, count


def computed(threads: int) -> list[bytes]:
    """By Winograd's tiles, by phases, and by phases to few positions."""
    random, found = np.random.default_rng(5), []
    for small, window, channels, maps in (((23, 29), 4, 40, 72), ((17, 19), 5, 24, 20), ((5, 6), 2, 96, 72)):
        shapes = (2, channels, *small), (channels, maps, window, window)
        x, w = (random.standard_normal(shape).astype(np.float32) for shape in shapes)
        found.append(unpool.conv_transpose(x, w, strides=[2, 2], threads=threads).tobytes())
    return found


def scattered(threads: int) -> list[bytes]:
    """One plane, and three, with indices that are equal or far apart."""
    random, found = np.random.default_rng(6), []
    for planes in (1, 3):
        x = random.standard_normal((1, planes, 181, 211)).astype(np.float32)
        places = random.integers(0, 4 * 181 * 211, x.shape) // 7
        places += 4 * 181 * 211 * np.arange(planes).reshape(1, -1, 1, 1)
        found.append(unpool.max_unpool(x, places, kernel_shape=[2, 2], strides=[2, 2], threads=threads).tobytes())
    return found


@pytest.mark.parametrize("work", [computed, scattered], ids=lambda work: work.__name__)
def test_cuts_change_no_bit(work: Callable[[int], list[bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    """However many threads a call is cut for, it gives the same bytes; one computes all jobs here."""

    def compute(kernel: Any, first: int, stop: int, *rest: Any) -> list[Any]:
        return [kernel(*rest[-1], part, part + 1) for part in range(first, stop)]

    monkeypatch.setattr(threads, "max_threads", lambda: MOST)
    monkeypatch.setattr(threads._workers, "compute", compute)
    alone = work(1)
    for count in (3, 16, MOST):
        assert work(count) == alone, count


def test_parts_of_planes_take_their_own_indices() -> None:
    """Cut into any number of parts, a plane is what it is when nobody cuts it; an index beside it is refused."""
    random = np.random.default_rng(8)
    x, places = random.integers(1, 99, (1, 2, 5, 7)), random.integers(0, 60, (1, 2, 5, 7))
    places[0, 1] += 60
    expected = np.zeros(120, np.int64)
    for value, place in zip(x.flat, places.flat, strict=True):
        expected[place] = value
    for parts in (1, 2, 7, 60):
        y = np.full(120, -1)
        assert scatter.scatter_planes(readonly(x), readonly(places), y, 2, parts, 1, 0, 2 * parts)
        assert y.tolist() == expected.tolist()
    places[0, 0, 4, 6] = 60
    assert not scatter.scatter_planes(readonly(x), readonly(places), y, 2, 60, 1, 0, 120)
