"""Winograd's kernel: right on all windows it takes, nearly as exact as direct sums, and never for infinity or NaN."""

import math

import numpy as np
import pytest

from tests.cases.kernel_conv_transpose import by_rows, inaccurate_tiles, problem_of
from tests.cases.kernel_paths import PATHS
from unpool.geometry import Axis, Window
from unpool.kernels.cpu.conv_transpose import dispatch as router
from unpool.kernels.cpu.conv_transpose import named, winograd
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem, Storage
from unpool.kernels.cpu.conv_transpose.winograd_accuracy import accuracy_thresholds
from unpool.kernels.cpu.conv_transpose.winograd_tiling import depth_axis, find_tiling, flatten_depth, tiling_of
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.tuning import WINOGRAD
from unpool.kernels.cpu.weights import own_weights
from unpool.operators import conv_transpose as operator
from unpool.operators import resolve

FLOAT32 = np.dtype(np.float32)


def square(size: int, small: int, *, stride: int = 2, begin: int = 1) -> tuple[Axis, Axis]:
    """Two equal axes, cut equally at both ends."""
    axis = Axis((small - 1) * stride + size - 2 * begin, small, Window(size, stride), begin)
    return axis, axis


def drawn(seed: int, axes: tuple[Axis, Axis], batch: int, channels: int, maps: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = (batch, channels, *(axis.small for axis in axes)), (channels, maps, *(axis.window.size for axis in axes))
    return [rng.standard_normal(shape).astype(np.float32) for shape in (*shapes, (maps,))]


def empty(axes: tuple[Axis, Axis], batch: int, maps: int) -> np.ndarray:
    return np.full((batch, maps, *(axis.large for axis in axes)), np.nan, np.float32)


def test_cases_are_hard() -> None:
    """Nearly all random cases have a plan; there are groups, batches, and outputs that blocks and tiles divide."""
    cases = PATHS["winograd"].cases()
    specs = [resolve.spec("ConvTranspose", case.attributes) for case in cases]
    shapes = [[each.shape for each in case.inputs] for case in cases]
    plans = [find_tiling(operator.call(spec, *each).axes[-2:]) for spec, each in zip(specs, shapes, strict=True)]
    assert sum(plan is not None for plan in plans) > 0.9 * len(cases)
    assert {plan.outputs for plan in plans if plan} == {2, 3}
    assert sum(case.attributes["group"] > 1 for case in cases) > 50
    assert sum(case.inputs[0].shape[0] > 1 for case in cases) > 100
    assert sum(case.panel_bytes == 1 for case in cases) > 50
    assert sum(case.inputs[0].ndim == 5 for case in cases) > 80


CUBE = (Axis(6, 6, Window(3), 1), Axis(12, 12, Window(3), 1), Axis(14, 14, Window(3), 1))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, 1e6])
@pytest.mark.parametrize("axes", [square(3, 20, stride=1), square(4, 20), CUBE], ids=["3", "4", "slices"])
def test_what_is_not_finite_reaches_its_own_outputs_only(value: float, axes: tuple[Axis, ...]) -> None:
    """One element that is no number, or too large to be added to another, changes the windows it is in, as in rows."""
    x, w, b = drawn(1, axes, 2, 64, 64)
    x[(1, 5, 6, 4) if len(axes) == 2 else (1, 5, 2, 6, 4)] = value
    w = own_weights(w / 100)
    y, expected = empty(axes, 2, 64), empty(axes, 2, 64)
    found = router.ConvTransposeDispatcher(problem_of(x, w, axes, 1), x.dtype)
    assert found.algorithms(is_cached=True)[0].name == "winograd"
    found(x, w, b, y, 2)
    by_rows(x, w, b, axes, 1, expected)
    assert np.isfinite(expected).sum() >= expected.size - 64 * axes[-1].window.size ** len(axes)
    np.testing.assert_array_equal(np.isfinite(y), np.isfinite(expected))
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


def test_slices_are_taken_where_they_lie_side_by_side() -> None:
    """A first axis of stride 1 makes channels of its taps; one that grows, and a fourth axis, do not."""
    axes, step = square(3, 8, stride=1), Axis(6, 6, Window(3, 1, 2), 2)
    work = ConvTransposeProblem((step, *axes), 2, 2, 6, 4, FLOAT32, Storage(is_plain=True), is_cached=True)
    flat = flatten_depth(work)
    assert flat == work._replace(axes=axes, batch=12, channels=18)
    assert depth_axis(work.axes) == (6, 6, 3, 2, 2)
    assert flatten_depth(work._replace(axes=(square(3, 8)[0], *axes))) is None
    assert flatten_depth(work._replace(axes=(step, step, *axes))) is None


@pytest.mark.parametrize(
    ("axes", "sizes", "is_cached", "pays"),
    [
        (square(4, 32), (1, 64, 64), True, True),
        (square(3, 32, stride=1), (1, 64, 64), True, True),
        (square(4, 8), (1, 1024, 512), True, False),  # few positions
        (square(4, 32), (1, 1, 1), True, False),
        (square(4, 4), (4, 64, 64), False, False),  # weights that change at every call
    ],
)
def test_pays_where_products_are_saved(
    axes: tuple[Axis, Axis], sizes: tuple[int, int, int], is_cached: bool, pays: bool
) -> None:
    """Many channels and positions pay."""
    assert winograd.is_cheapest(axes, *sizes, 4, is_cached=is_cached) == pays


@pytest.mark.parametrize("axes", [square(4, 5)[:1], (*square(4, 5), square(4, 5)[0]), square(2, 5), square(9, 5),
                                  (square(4, 5)[0], square(3, 5, stride=1)[0]), square(20, 5, stride=10)])  # fmt: skip
def test_other_windows_are_refused(axes: tuple[Axis, ...]) -> None:
    """One axis, three axes, phases of one tap or of more than three, of two sizes, or too many phases: no plan."""
    assert find_tiling(axes) is None
    assert winograd.cost(axes, 1, 64, 64, 4, is_cached=True) == math.inf


@pytest.mark.parametrize("channels", [1, 512, WINOGRAD.channels])
@pytest.mark.parametrize("size", [3, 4, 8])
def test_workspace_is_bounded(channels: int, size: int) -> None:
    """A thread's three arrays, as the module's text has them, take at most 32 MiB."""
    axes = square(size, 300, stride=max(1, size // 2))
    plan = find_tiling(axes)
    assert plan is not None
    work = ConvTransposeProblem(axes, 16, 1, channels, 999, FLOAT32, Storage(is_plain=True), is_cached=True)
    cut = winograd.choose_blocks(work, 1)
    phases = plan.phases
    elements = 16 * channels + 16 * phases * cut.chunk + phases * plan.outputs**2
    assert elements * cut.block * 4 < 28 << 20
    assert cut.block % (vector_bytes() // 4) == 0


@pytest.mark.parametrize("channels", [1, 64, 256, 1024])
def test_a_panel_fits_into_a_large_second_cache(monkeypatch: pytest.MonkeyPatch, channels: int) -> None:
    """Where that cache has 2 MiB a block of many positions stays in it, unless three vectors alone do not."""
    work = ConvTransposeProblem(
        square(3, 64, stride=1), 1, 1, channels, 64, FLOAT32, Storage(is_plain=True), is_cached=True
    )
    panels = []
    for size in (1 << 20, 1 << 21):
        monkeypatch.setattr(winograd, "second_cache_bytes", lambda size=size: size)
        panels.append(winograd.choose_blocks(work, 1).block * 16 * channels * 4)
    far, near = panels
    assert near <= max(WINOGRAD.near, WINOGRAD.tile_vectors * vector_bytes() * 16 * channels)
    assert near <= far <= max(WINOGRAD.panel, WINOGRAD.tile_vectors * vector_bytes() * 16 * channels)
    assert near < far or channels == 1024


def test_results_do_not_depend_on_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks differ, bits do not."""
    axes, results = square(3, 40, stride=1), [empty(square(3, 40, stride=1), 1, 16) for _ in range(2)]
    x, w, b = drawn(5, axes, 1, 32, 16)
    work = ConvTransposeProblem(axes, 1, 1, 32, 16, FLOAT32, Storage(is_plain=True), is_cached=True)
    for size, y in zip((0, 1 << 21), results, strict=True):
        monkeypatch.setattr(winograd, "second_cache_bytes", lambda size=size: size)
        run = router.make_run(named("winograd"), work, x.dtype, is_cached=True)
        assert run(x, own_weights(w), b, y, 1)
    np.testing.assert_array_equal(*results)


def test_packed_weights_serve_every_size() -> None:
    """Calls of one window share their packed weights whatever the image; another begin needs its own."""
    keys = {winograd.packing_key(square(4, small)) for small in (3, 8, 50)}
    assert len(keys) == 1
    assert winograd.packing_key(square(4, 8, begin=0)) not in keys
    w = np.random.default_rng(3).standard_normal((4, 9, 4, 4)).astype(np.float32)
    np.testing.assert_array_equal(winograd.pack(w, square(4, 3), 2, 1), winograd.pack(w, square(4, 50), 2, 2))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("value", [1e6, 1e20, np.nan, np.inf])
def test_tiles_around_a_spike_are_not_even(value: float, threads: int) -> None:
    """One element makes the tiles that hold it uneven, in whichever image and group; none that do not touch them."""
    axes = square(4, 32)
    x, w, _ = drawn(2, axes, 3, 128, 16)
    thresholds = accuracy_thresholds(w, axes, 2)
    assert inaccurate_tiles(x, thresholds, axes, 2, threads).size == 0
    x[1, 70, 17, 9] = value
    plan = tiling_of(axes)
    rows, columns = (
        [tile for tile in range(count) if 0 <= at - side.first - plan.outputs * tile < 4]
        for at, side, count in zip((17, 9), plan.sides, plan.tiles, strict=True)
    )
    number = plan.tiles[0] * plan.tiles[1]
    expected = {number + row * plan.tiles[1] + column for row in rows for column in columns}
    beside = {each - 1 for each in expected}
    found = set(inaccurate_tiles(x, thresholds, axes, 2, threads).tolist())
    assert expected <= found <= (expected if value == 1e6 else expected | beside)


def test_zeros_are_even_only_among_zeros() -> None:
    """An image of zeros is even; one where a window is zero, and its neighbours are not, is not."""
    axes = square(4, 9)
    x, w, _ = drawn(4, axes, 1, 64, 16)
    thresholds = accuracy_thresholds(w, axes, 1)
    assert inaccurate_tiles(np.zeros_like(x), thresholds, axes, 1, 1).size == 0
    x[:, :, 4:6, 4:6] = 0
    assert inaccurate_tiles(x, thresholds, axes, 1, 1).size > 0


@pytest.mark.parametrize("change", ["a tap", "a map", "sparse", "tiny", "huge"])
def test_uneven_weights_are_refused(change: str) -> None:
    """A tap far smaller than others, a map of few weights, and magnitudes that products may not have."""
    axes = square(4, 9)
    w = drawn(5, axes, 1, 64, 16)[1]
    assert accuracy_thresholds(w, axes, 1) is not None
    if change == "a tap":
        w[:, 3, 1, 1] *= 1e-3
    elif change == "a map":
        w[1:, 3] = 0
    else:
        w *= {"tiny": 1e-30, "huge": 1e30, "sparse": np.random.default_rng(6).random(w.shape) < 0.05}[change]
    assert accuracy_thresholds(w, axes, 1) is None


def test_a_map_without_weights_is_no_obstacle() -> None:
    """Its outputs are the bias, exactly, whatever the others are."""
    axes = square(4, 9)
    w = drawn(5, axes, 1, 64, 16)[1]
    thresholds = accuracy_thresholds(w, axes, 1)
    w[:, 3] = 0
    np.testing.assert_allclose(accuracy_thresholds(w, axes, 1).tolist(), thresholds.tolist(), rtol=0.3)
