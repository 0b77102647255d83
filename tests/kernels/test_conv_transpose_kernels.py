"""Three algorithms for a transposed convolution give one result, on sizes that fill and overfill tiles and blocks."""

import gc
import weakref

import numpy as np
import pytest

from tests.cases.kernel_conv_transpose import problem_of
from tests.cases.kernel_pools import eager_threads
from tests.support.guarded import beside_guard, survives
from unpool.geometry import Axis, Window
from unpool.kernels.cpu import conv_transpose
from unpool.kernels.cpu.conv_transpose import dispatch, phases_pack, phases_plan
from unpool.kernels.cpu.conv_transpose import phases as conv_transpose_phases
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem, Storage
from unpool.kernels.cpu.weights import own_weights
from unpool.operators import conv_transpose as operator
from unpool.operators import resolve


def by_phases(x, w, b, axes, group, y, threads):
    """The phases kernel, whatever the routing would choose."""
    cut = phases_plan.blocking(axes, x.shape[1] // group, w.shape[1], w.itemsize)
    packed = phases_pack.pack(w, cut, group)
    conv_transpose_phases.launch(problem_of(x, w, axes, group), x.dtype).run((x, packed, b, y), threads)


def by_router(x, w, b, axes, group, y, threads):
    dispatch.ConvTransposeDispatcher(problem_of(x, w, axes, group), x.dtype)(x, w, b, y, threads)


@pytest.mark.parametrize("block", [16, 32, 1 << 12])
@pytest.mark.parametrize("chunk", [1, 8, 40])
def test_blocks_and_chunks_do_not_show(monkeypatch, block, chunk):
    """However the work is cut, every output is the same sum in the same order."""
    random = np.random.default_rng(block + chunk)
    x, w, b = (random.standard_normal(shape).astype(np.float32) for shape in ((2, 13, 19, 23), (13, 37, 4, 4), (37,)))
    spec = resolve.spec("ConvTranspose", {"strides": [2, 2], "pads": [1, 1, 1, 1]})
    axes = operator.call(spec, x.shape, w.shape, b.shape).axes
    y, cut = (np.empty((2, 37, 38, 46), np.float32) for _ in range(2))
    by_phases(x, w, b, axes, 1, y, 1)
    chosen = phases_plan.blocking(axes, 13, 37, 4)
    forced = chosen._replace(block=block * phases_plan.tile_shapes()[chosen.tile][1], chunk=chunk)
    monkeypatch.setattr(phases_plan, "blocking", lambda *_: forced)
    by_phases(x, w, b, axes, 1, cut, 2)
    np.testing.assert_array_equal(cut, y)


@pytest.mark.parametrize(("channels", "maps", "window"), [(13, 37, 4), (200, 5, 5), (7, 16, 2)])
def test_many_weights_are_packed_as_few(monkeypatch, channels, maps, window):
    """Compiled code reads the weights alone, and gives what NumPy gives: parts of sums, unfilled tiles, groups."""
    w = np.random.default_rng(channels).standard_normal((2 * channels, maps, window, window)).astype(np.float32)
    axes = (Axis(30, 15, Window(window, 2), 1), Axis(30, 15, Window(window, 2), 0))
    cut = phases_plan.blocking(axes, channels, maps, 4)._replace(tile=0)
    expected = phases_pack.pack(w, cut, 2)
    monkeypatch.setattr(phases_pack, "PACKING", phases_pack.PACKING._replace(weights_once=0))
    for at_end in (False, True):
        with eager_threads():
            np.testing.assert_array_equal(phases_pack.pack(beside_guard(w, at_end=at_end), cut, 2, 2), expected)


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize(
    ("batch", "channels", "maps", "taps"), [(2, 5, 12, 4), (8, 3, 49, 1), (9, 7, 11, 9), (17, 1, 5, 30)]
)
def test_points_of_many_images(batch, channels, maps, taps, at_end):
    """Beside protected pages, tiles of images and columns that are not full give what einsum gives, on any threads."""
    random = np.random.default_rng(batch)
    shapes = (batch, channels, 1), (channels, maps, taps), (maps,), (batch, maps, taps)
    x, w, b, y = (random.integers(-5, 6, shape).astype(np.float32) for shape in shapes)
    expected = np.einsum("nc,cmt->nmt", x[..., 0], w) + b[:, np.newaxis]
    x, w, b, y = (beside_guard(each, at_end=at_end) for each in (x, w, b, y))
    dispatcher = dispatch.ConvTransposeDispatcher(problem_of(x, w, (Axis(taps, 1, Window(taps)),), 1), x.dtype)
    assert survives(lambda: dispatcher(x, w, b, y, 1))
    with eager_threads():
        for threads in (1, 3):
            y[:] = np.nan
            dispatcher(x, w, b, y, threads)
            np.testing.assert_array_equal(y, expected)


def test_infinite_weights_never_meet_padding():
    """A weight of infinity takes the kernel that forms no product with padding, so no NaN appears."""
    x, w = np.ones((1, 16, 9, 40)), np.ones((16, 16, 3, 3))
    w[0, 0, 0, 0] = np.inf
    spec = resolve.spec("ConvTranspose", {})
    axes = operator.call(spec, x.shape, w.shape, None).axes
    y = np.empty((1, 16, 11, 42))
    by_router(x, w, np.zeros(16), axes, 1, y, 1)
    assert not np.isnan(y).any()
    assert np.isinf(y[0, 0, :9, :40]).all()
    assert np.isfinite(y[0, 0, 9:]).all()


def test_packed_weights_live_as_long_as_the_weights():
    """What is derived from unpool's own weights is kept with them; others are packed at every call."""
    x, w = np.ones((1, 16, 9, 40), np.float32), np.ones((16, 16, 3, 3), np.float32)
    axes = operator.call(resolve.spec("ConvTranspose", {}), x.shape, w.shape, None).axes
    y, b = np.empty((1, 16, 11, 42), np.float32), np.zeros(16, np.float32)
    by_router(x, w, b, axes, 1, y, 1)
    w *= 2
    by_router(x, w, b, axes, 1, y, 1)
    own = own_weights(w)
    by_router(x, own, b, axes, 1, y, 1)
    packings = own.packings
    (ghost,) = map(weakref.ref, packings._known.values())
    del own, packings
    gc.collect()
    assert y[0, 0, 5, 20] == 2 * 16 * 9
    assert ghost() is None


@pytest.mark.parametrize("window", [3, 7])
def test_tables_are_small_beside_the_output(window):
    """No table has an entry for every position, so that the plan of a large volume stays small."""
    work = ConvTransposeProblem(
        (Axis(64, 64, Window(window), window // 2),) * 3,
        1,
        1,
        1,
        16,
        np.dtype(np.float32),
        Storage(is_plain=True),
        is_cached=True,
    )
    output_bytes = 16 * 64**3 * 4
    assert conv_transpose_phases.launch(work, work.dtype).for_threads(2).nbytes < output_bytes / 100


EXTREMES = [
    ((1, 8192, 64, 64), (8192, 512, 4, 4), [2, 2]),
    ((1, 2048, 24, 40, 40), (2048, 64, 4, 4, 4), [2, 2, 2]),
    ((1, 4, 40, 40), (4, 64, 240, 240), [240, 240]),
    ((1, 1, 1 << 22), (1, 1, 9), [1]),
    ((1, 64, 500), (64, 64, 3000), [1000]),
]


@pytest.mark.parametrize(("x", "w", "strides"), EXTREMES)
def test_workspace_is_bounded(x, w, strides):
    """A thread needs no more than the documented memory, or the algorithm that needs none is used."""
    axes = operator.call(resolve.spec("ConvTranspose", {"strides": strides}), x, w, None).axes
    work = ConvTransposeProblem(
        axes, x[0], 1, x[1], w[1], np.dtype(np.float32), Storage(is_plain=False), is_cached=False
    )
    if conv_transpose.algorithms(work)[0].name == "phases":
        assert phases_plan.blocking(axes, x[1], w[1], 4).workspace <= 1 << 25
