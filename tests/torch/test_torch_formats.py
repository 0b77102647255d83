"""Memory formats: results are channels-last where torch's own are, slices and axes of one element included."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

import unpool.torch as ours
from tests.support.runners import as_tuple

FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}
ORDERS = [(1, 2, 3, 0), (0, 1, 2, 3), (1, 0, 2, 3), (3, 2, 1, 0), (0, 3, 1, 2)]
"""Of the axes of a volume in memory: channels-last, row-major, and others."""
SHAPES = [(2, 3, 5, 4, 3), (1, 3, 5, 4, 3), (2, 1, 5, 4, 3), (1, 1, 5, 4, 3), (2, 3, 1, 1, 1), (2, 3, 1, 4, 1)]


def layouts(rank, shape):
    """Tensors of one shape that lie in different ways."""
    spatial, last = range(2, rank + 2), FORMATS[rank]
    inner = (slice(None), slice(None), *[slice(1, -1)] * rank)
    wide = [size + 2 * (axis in spatial) for axis, size in enumerate(shape)]
    yield torch.randn(shape)
    yield torch.randn(wide)[inner]
    yield torch.randn(shape).to(memory_format=last)
    yield torch.randn(wide).to(memory_format=last)[inner]
    yield torch.randn(shape[0], 2 * shape[1], *shape[2:]).to(memory_format=last)[:, ::2]
    yield torch.randn(shape[0], *shape[2:], shape[1]).movedim(-1, 1)
    yield torch.randn(1, *shape[1:]).to(memory_format=last).expand(shape)
    yield torch.randn(shape).transpose(2, 3).contiguous().transpose(2, 3)


def calls(rank, x):
    """What torch and we make of a tensor."""
    places = torch.arange(x[0, 0].numel()).view(x.shape[2:]).expand(x.shape)
    weight = torch.randn(x.shape[1], 4, *[2] * rank)
    yield f"max_pool{rank}d", (x, 3, 1, 1)
    yield f"max_pool{rank}d", (x, 1, 1, 0, 1, False, True)
    if rank == 2:  # torch's 3-D forms lose the format, ours keep it
        yield "max_unpool2d", (x, places, 2)
        yield "conv_transpose2d", (x, weight, None, 2)
        yield "conv_transpose2d", (x, weight.to(memory_format=torch.channels_last), None, 2)


@pytest.mark.parametrize("rank", [2, 3])
def test_formats_are_those_of_torch(rank):
    """Values, indices and strides are torch's, however the input lies."""
    for shape in SHAPES:
        for x in layouts(rank, shape[: rank + 2]):
            for name, given in calls(rank, x):
                found, expected = (as_tuple(getattr(module, name)(*given)) for module in (ours, F))
                for mine, theirs in zip(found, expected, strict=True):
                    torch.testing.assert_close(mine, theirs)
                    assert mine.stride() == theirs.stride(), (name, x.shape, x.stride())


@pytest.mark.parametrize("shape", [(6, 5, 4, 3), (6, 5, 1, 3), (1, 5, 4, 3)])
def test_formats_of_unbatched_volumes_are_those_of_torch(shape):
    """Without a batch a dense channels-last volume stays so in a pool, a slice does not; and gradients flow."""
    volumes = [torch.randn([shape[axis] for axis in order]).permute(np.argsort(order).tolist()) for order in ORDERS]
    for x in (*volumes, volumes[0][::2], volumes[0][:, 1:]):
        found, expected = (module.max_pool3d(x, 1, return_indices=True) for module in (ours, F))
        torch.testing.assert_close(found, expected)
        assert [each.stride() for each in found] == [each.stride() for each in expected], x.stride()
    x = volumes[0].detach().requires_grad_()
    assert torch.equal(torch.autograd.grad(ours.max_pool3d(x, 1).sum(), x)[0], torch.ones(shape))


@pytest.mark.parametrize("name", ["max_unpool3d", "conv_transpose3d"])
def test_volumes_keep_their_format(name):
    """Channels-last volumes stay so through unpoolings and transposed convolutions too."""
    x = torch.randn(2, 3, 4, 5, 3).to(memory_format=torch.channels_last_3d)[:, :, 1:]
    places = torch.arange(45).view(3, 5, 3).expand(x.shape)
    given = (x, places, 2) if "unpool" in name else (x, torch.randn(3, 2, 2, 2, 2))
    found, expected = (getattr(module, name)(*given) for module in (ours, F))
    torch.testing.assert_close(found, expected)
    assert found.is_contiguous(memory_format=torch.channels_last_3d)


def test_gradients_have_the_format_of_what_they_are_of():
    """The gradient of a slice of a channels-last tensor is channels-last, as torch's is."""
    whole = torch.randn(2, 3, 7, 9).to(memory_format=torch.channels_last)
    strides = []
    for module in (ours, F):
        x = whole[:, :, 1:, 1:].detach().requires_grad_()
        y, indices = module.max_pool2d(x, 2, return_indices=True)
        z = module.max_unpool2d(y, indices, 2)
        strides.append(torch.autograd.grad(z.square().sum(), x)[0].stride())
    assert strides[0] == strides[1] == (144, 1, 24, 3)


def test_traced_formats_are_those_of_the_kernels():
    """The kernel for tracing says the strides that come out, slices and single channels included."""
    for shape in ((2, 3, 5, 4), (2, 1, 5, 4)):
        for x in layouts(2, shape):
            weight = torch.randn(shape[1], 4, 2, 2)
            for name, arguments in (
                ("max_pool_with_indices", (x, [3, 3], [1, 1], [1, 1], [1, 1], False)),
                ("conv_transpose", (x, weight, None, [2, 2], [0, 0], [0, 0], 1, [1, 1])),
            ):
                torch.library.opcheck(getattr(torch.ops.unpool, name), arguments, test_utils="test_faketensor")
