"""Three algorithms for a transposed convolution give one result, on sizes that fill and overfill tiles and blocks."""

import gc
import weakref

import numpy as np
import pytest

from tests.cases.kernel_conv_transpose import by_rows, problem_of
from tests.cases.kernel_pools import eager_threads
from tests.support.guarded import beside_guard, survives
from unpool.geometry import Axis, Window
from unpool.kernels.cpu import conv_transpose
from unpool.kernels.cpu.conv_transpose import dispatch, phases_pack, phases_plan
from unpool.kernels.cpu.conv_transpose import phases as conv_transpose_phases
from unpool.kernels.cpu.conv_transpose.problem import ConvTransposeProblem
from unpool.kernels.cpu.weights import own_weights
from unpool.operators import conv_transpose as operator
from unpool.operators import resolve

CASES = 120


def draw(seed):
    """A random call of rank 1 to 4 as (x, w, b, axes, group, y), with lanes of up to 150 elements."""
    random = np.random.default_rng(seed)
    rank, group = int(random.integers(1, 5)), int(random.choice([1, 1, 2, 3]))
    channels, maps = (int(random.integers(1, 12)) for _ in range(2))
    small = [int(random.integers(1, 6)) for _ in range(rank - 1)] + [int(random.integers(1, 60 if rank > 1 else 150))]
    window = [int(random.integers(1, 6)) for _ in range(rank)]
    stride, dilation = ([int(random.integers(1, 5)) for _ in range(rank)] for _ in range(2))
    extra = [int(random.integers(0, max(pair))) for pair in zip(stride, dilation, strict=True)]
    reach = [(size - 1) * step + 1 for size, step in zip(window, dilation, strict=True)]
    pads = [int(random.integers(0, size)) for size in reach] + [int(random.integers(0, 2)) for _ in reach]
    attributes = {"strides": stride, "dilations": dilation, "output_padding": extra, "group": group}
    full = [(n - 1) * s + r + e for n, s, r, e in zip(small, stride, reach, extra, strict=True)]
    if all(size > begin + end for size, begin, end in zip(full, pads[:rank], pads[rank:], strict=True)):
        attributes["pads"] = pads
    x = random.integers(-8, 9, (int(random.integers(1, 3)), channels * group, *small)).astype(np.float64)
    w = random.integers(-8, 9, (channels * group, maps, *window)).astype(np.float64)
    b = random.integers(-8, 9, maps * group).astype(np.float64)
    call = operator.call(resolve.spec("ConvTranspose", attributes), x.shape, w.shape, b.shape)
    y = np.full((x.shape[0], maps * group, *call.large.spatial), np.nan)
    return x, w, b, call.axes, group, y


def by_phases(x, w, b, axes, group, y, threads):
    """The phases kernel, whatever the routing would choose."""
    cut = phases_plan.blocking(axes, x.shape[1] // group, w.shape[1], w.itemsize)
    packed = phases_pack.pack(w, cut, group)
    conv_transpose_phases.launch(problem_of(x, w, axes, group), x.dtype).run((x, packed, b, y), threads)


def by_router(x, w, b, axes, group, y, threads):
    """As the routing chooses."""
    dispatch.ConvTransposeDispatcher(problem_of(x, w, axes, group), x.dtype)(x, w, b, y, threads)


@pytest.mark.sample(11)
@pytest.mark.parametrize("seed", range(CASES))
def test_phases_and_rows_agree(seed):
    """Tiles and rows add the same products: integers come out equal, in float32 too."""
    x, w, b, axes, group, y = draw(seed)
    expected = np.empty_like(y)
    by_rows(x, w, b, axes, group, expected)
    by_phases(x, w, b, axes, group, y, 2)
    narrow = np.empty(y.shape, np.float32)
    by_phases(*(each.astype(np.float32) for each in (x, w, b)), axes, group, narrow, 1)

    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(narrow, expected)


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
    monkeypatch.setattr(phases_pack, "MANY_ONCE", 0)
    for at_end in (False, True):
        with eager_threads():
            np.testing.assert_array_equal(phases_pack.pack(beside_guard(w, at_end=at_end), cut, 2, 2), expected)


@pytest.mark.parametrize(("begin", "large"), [(0, 4), (1, 2), (2, 9), (5, 3), (0, 0)])
def test_points_are_cut_like_rows(begin, large):
    """One element per channel: the window of weights starts at `begin` and is extended by the bias alone."""
    random = np.random.default_rng(3)
    x, w, b = (random.integers(-5, 6, shape).astype(np.float64) for shape in ((2, 3, 1), (3, 4, 4), (4,)))
    axes = (Axis(large, 1, Window(4, 3), begin),)
    y, expected = np.full((2, 4, large), np.nan), np.full((2, 4, large), np.nan)
    by_router(x, w, b, axes, 1, y, 1)
    by_rows(x, w, b, axes, 1, expected)

    np.testing.assert_array_equal(y, expected)


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
    x = np.ones((1, 16, 9, 40), np.float32)
    spec = resolve.spec("ConvTranspose", {})
    w = np.ones((16, 16, 3, 3), np.float32)
    axes = operator.call(spec, x.shape, w.shape, None).axes
    y = np.empty((1, 16, 11, 42), np.float32)
    by_router(x, w, np.zeros(16, np.float32), axes, 1, y, 1)
    w *= 2
    by_router(x, w, np.zeros(16, np.float32), axes, 1, y, 1)
    own = own_weights(w)
    by_router(x, own, np.zeros(16, np.float32), axes, 1, y, 1)
    packings = own.packings
    (ghost,) = map(weakref.ref, packings._known.values())
    del own, packings
    gc.collect()

    assert y[0, 0, 5, 20] == 2 * 16 * 9
    assert ghost() is None


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
    work = ConvTransposeProblem(axes, x[0], 1, x[1], w[1], np.dtype(np.float32), is_plain=False, is_cached=False)
    if conv_transpose.algorithms(work)[0].name == "phases":
        assert phases_plan.blocking(axes, x[1], w[1], 4).workspace <= 1 << 25
