"""Max unpooling and the gradients of pools on a GPU, or in Triton's interpreter: what the CPU gives, bit for bit."""

import numpy as np
import pytest
import torch

from tests.support.gpu import DEVICE
from unpool import per_plane as on_cpu
from unpool.execute.gpu import gradients, index_checks
from unpool.geometry import Axis, Window
from unpool.kernels.gpu.elements import BITS
from unpool.kernels.gpu.max_unpool import GpuUnpoolProblem, cells, launch
from unpool.kernels.gpu.max_unpool.check_indices import NO_POSITION

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("none_pending")]

theirs = torch.nn.functional
POOLS = {1: theirs.max_pool1d, 2: theirs.max_pool2d, 3: theirs.max_pool3d}
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def elements(shape, dtype, first=1):
    """Elements that all differ, or nearly so."""
    count = int(np.prod(shape))
    return (torch.arange(first, first + count, device=DEVICE) % 127).to(dtype).reshape(shape)


def axes_of(small, size, stride, large=None, begin=0):
    """One axis for each size."""
    grown = large or tuple((each - 1) * stride + size - 2 * begin for each in small)
    return tuple(Axis(big, each, Window(size, stride), begin) for big, each in zip(grown, small, strict=True))


def own(axes, planes, random):
    """An index for each element, in its window and in the whole tensor, (planes, d1..dk)."""
    place, grids = 0, np.indices([planes, *(axis.small for axis in axes)])
    for axis, grid in zip(axes, grids[1:], strict=True):
        first = grid * axis.window.stride - axis.begin
        at = first + random.integers(0, axis.window.size, grid.shape)
        place = place * axis.large + np.clip(at, 0, axis.large - 1)
    return place + grids[0] * int(np.prod([axis.large for axis in axes]))


def scattered(x, indices, shape):
    """What unpooling is: the last of equal indices wins."""
    y = torch.zeros(int(np.prod(shape)), dtype=x.dtype)
    for value, index in zip(x.flatten().cpu(), indices.flatten().tolist(), strict=True):
        y[index] = value
    return y.view(shape)


def run(axes, dtype, change=None, *, is_callers=False, is_per_plane=False):
    """(y, verdict, expected y or None): two images of three channels; `change` makes indices wrong."""
    random, small, large = np.random.default_rng(1), [axis.small for axis in axes], [axis.large for axis in axes]
    whole = own(axes, 6, random)
    if change:
        change(whole.reshape(-1))
    plane = int(np.prod(large))
    given = whole - np.arange(6).reshape(-1, *[1] * len(axes)) * plane if is_per_plane else whole
    x = elements((2, 3, *small), dtype)
    y = torch.full((2, 3, *large), 77, dtype=dtype, device=DEVICE)
    name = str(dtype).removeprefix("torch.")
    unpool = GpuUnpoolProblem(axes, tuple(large), 2, 3, name, per_plane=is_per_plane)
    assert cells.fits(axes, is_channels_last=False)
    indices = torch.from_numpy(given.astype(np.int64)).view(x.shape).to(DEVICE)
    verdict = launch(unpool)(x, indices, y, is_callers).tolist()
    is_right = (whole >= 0).all() and (whole < 6 * plane).all()
    return y.cpu(), verdict, scattered(x, torch.from_numpy(whole), y.shape) if is_right else None


CALLS = {
    "side by side": axes_of((4, 5), 2, 2),
    "long rows": axes_of((1, 270), 2, 2),
    "long strides": axes_of((3, 4), 3, 3),
    "no stride": axes_of((3, 8), 1, 1),
    "odd": axes_of((3, 4), 3, 2),
    "padded": axes_of((4, 5), 3, 2, begin=1),
    "left over": axes_of((3, 4), 2, 2, large=(8, 11)),
    "cut off": axes_of((3, 4), 2, 2, large=(5, 7)),
    "overlapping": axes_of((4, 5), 3, 1, begin=1),
    "rank 1": axes_of((9,), 2, 2),
    "rank 3": axes_of((2, 3, 4), 2, 2),
    "rank 3, padded": axes_of((2, 3, 2), 2, 2, begin=1),
}


@pytest.mark.parametrize("is_per_plane", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_right_indices(name, is_per_plane):
    """Every index in its window: nothing is found wrong, in memory of our own and in the caller's."""
    for is_callers in (False, True):
        y, verdict, expected = run(CALLS[name], torch.float32, is_callers=is_callers, is_per_plane=is_per_plane)
        assert verdict[:2] == [NO_POSITION] * 2
        assert torch.equal(y, expected)


@pytest.mark.parametrize("kind", BITS)
@pytest.mark.parametrize("name", ["side by side", "padded"])
def test_all_types(name, kind):
    """Elements are copied as they are, whatever they are."""
    y, verdict, expected = run(CALLS[name], getattr(torch, kind))
    assert verdict[:2] == [NO_POSITION] * 2
    assert torch.equal(y, expected)


@pytest.mark.parametrize("is_callers", [False, True])
@pytest.mark.parametrize("name", ["side by side", "padded", "rank 1", "rank 3"])
def test_an_index_in_another_window(name, is_callers):
    """The first one is noted, and of equal indices the last one wins."""
    y, verdict, expected = run(
        CALLS[name], torch.float16, lambda flat: flat.put([3, 5, 8], flat[-1]), is_callers=is_callers
    )
    assert verdict[:2] == [NO_POSITION, 3]
    assert torch.equal(y, expected)


@pytest.mark.parametrize("is_per_plane", [False, True])
@pytest.mark.parametrize("index", [-1, 10**6, 2**40, -(2**63)])
def test_an_index_out_of_range(index, is_per_plane):
    """Memory of our own becomes NaN, and that of the caller stays; the verdict is the first position of each kind."""
    call = CALLS["side by side"], torch.float32, lambda flat: flat.put([4, 7], [flat[10], index])
    for is_callers in (False, True):
        y, verdict, _ = run(*call, is_callers=is_callers, is_per_plane=is_per_plane)
        assert verdict[:2] == [7, 4]
        assert (y == 77).all() if is_callers else y.isnan().all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("rank", "window"),
    [
        (1, (2, 2, 0, 1)), (2, (2, 2, 0, 1)), (3, (2, 2, 0, 1)), (2, (3, 3, 0, 1)), (2, (3, 2, 1, 1)),
        (2, (3, 1, 1, 1)), (2, (3, 1, 1, 2)), (2, (2, 2, 1, 3)), (2, (5, 1, 2, 1)), (2, (7, 1, 3, 1)),
        (1, (19, 1, 9, 1)), (3, (3, 1, 1, 1)),
    ],
)  # fmt: skip
def test_gradients_of_pools(rank, window, dtype):
    """Windows side by side, with gaps, few or many that overlap; indices of -1 are left out, and no sum is -0."""
    shape = {1: (2, 2, 90), 2: (2, 2, 11, 12), 3: (1, 2, 4, 5, 4)}[rank]
    torch.manual_seed(1)
    x = torch.randint(-8, 9, shape).double()
    size, stride, padding, dilation = window
    y, indices = POOLS[rank](x, size, stride, padding, dilation, return_indices=True)
    indices.view(-1)[3::11] = -1
    grad = torch.randint(-3, 4, y.shape).to(dtype)
    grad.view(-1)[::7] = -0.0
    windows = tuple((each,) * rank for each in window)
    got = gradients.max_pool_backward(grad.to(DEVICE), indices.to(DEVICE), shape[2:], windows).cpu()
    expected = torch.zeros(4 if rank < 3 else 2, int(np.prod(shape[2:])), dtype=torch.float64)
    flat = indices.view(len(expected), -1)
    expected.scatter_add_(1, flat.clamp(min=0), torch.where(flat < 0, 0, grad.double().view(flat.shape)))
    assert torch.equal(got.double(), expected.view(shape))
    assert not (got.signbit() & (got == 0)).any()


def test_gradients_are_those_of_the_cpu():
    """Sums that have to be rounded are added in the same order, so all bits are the same."""
    torch.manual_seed(2)
    for window in [(3, 2, 1, 1), (5, 1, 2, 1), (9, 1, 4, 1), (3, 1, 1, 2)]:
        x = torch.rand(2, 3, 11, 12)
        y, indices = theirs.max_pool2d(x, *window, return_indices=True)
        grad = torch.rand(y.shape) - 0.5
        expected = on_cpu.max_pool_backward(grad.numpy(), indices.numpy(), (11, 12))
        windows = tuple((each,) * 2 for each in window)
        got = gradients.max_pool_backward(grad.to(DEVICE), indices.to(DEVICE), (11, 12), windows)
        assert np.array_equal(got.cpu().numpy().view(np.int32), expected.view(np.int32))


@pytest.mark.parametrize("dtype", FLOATS)
def test_gradients_of_unpooling(dtype):
    """Each element reads the place of its index: none for -1, and for one out of range, which is reported."""
    grad = elements((2, 3, 6, 7), dtype)
    indices = torch.randint(0, 42, (2, 3, 3, 150), device=DEVICE)
    indices.view(-1)[::5] = -1
    expected = torch.where(
        indices < 0, 0, grad.flatten(2).gather(2, indices.clamp(min=0).flatten(2)).view(indices.shape)
    )
    assert torch.equal(gradients.max_unpool_backward(grad, indices), expected)
    index_checks.raise_pending()
    indices.view(-1)[700], indices.view(-1)[701] = 42, -2
    got = gradients.max_unpool_backward(grad, indices)
    assert got.view(-1)[700:702].tolist() == [0, 0]
    with pytest.raises(ValueError, match=r"got another at \[0, 1, 1, 100\]"):
        index_checks.raise_pending()
