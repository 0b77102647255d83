"""The gradients of ConvTranspose on a GPU, or in Triton's interpreter: exactly those of a double-precision sum."""

import itertools

import pytest
import torch

import unpool.torch as ours
from tests.support.gpu import DEVICE
from unpool.execute.gpu.gradients import ConvSettings, input_gradient, weight_gradient
from unpool.kernels.gpu.conv_transpose.weight_gradient import split_positions

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("on_gpu")]

theirs = torch.nn.functional
FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}
TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
GROUPS = {"dense": (16, 24, 2), "depthwise": (3, 3, 3), "few maps": (8, 3, 1)}  # channels, maps and groups
EVERY = list(itertools.product((1, 2, 3), GROUPS, TYPES, (False, True)))


def integers(*shape, dtype=torch.float32):
    """Small integers, whose products are added without rounding, so that the order of sums does not matter."""
    return torch.randint(-3, 4, shape, device=DEVICE).to(dtype)


@pytest.mark.parametrize(("rank", "groups", "dtype", "is_last"), EVERY)
def test_gradients(rank, groups, dtype, is_last):
    """Both gradients are those of float64, rounded once, in all ranks, groups, types and memory formats."""
    (channels, maps, group), settings = GROUPS[groups], (2 + rank % 2, rank % 2, 1, 1 + rank % 2)
    stride, padding, extra, dilation = settings
    x, w = integers(2, channels, *[5, 3, 2][:rank], dtype=dtype), integers(channels, maps // group, *[3, 2, 2][:rank])
    w = w.to(dtype)
    exact = [each.double().requires_grad_() for each in (x, w)]
    y = getattr(theirs, f"conv_transpose{rank}d")(*exact, None, stride, padding, extra, group, dilation)
    grad = integers(*y.shape, dtype=dtype)
    by_x, by_w = torch.autograd.grad(y, exact, grad.double())
    if is_last and rank in FORMATS:
        x, grad = (each.to(memory_format=FORMATS[rank]) for each in (x, grad))
    setting = ConvSettings((stride,) * rank, (padding,) * rank, (dilation,) * rank, group)
    assert torch.equal(input_gradient(grad, w, tuple(x.shape[2:]), setting), by_x.to(dtype))
    assert torch.equal(weight_gradient(x, grad, tuple(w.shape[2:]), setting), by_w.to(dtype))


def test_positions_in_parts():
    """Where positions are cut into parts, the sums of all parts are added, also those of a part that is not full."""
    x, grad = integers(1, 1, 9000), integers(1, 1, 9000)
    found = weight_gradient(x, grad, (1,), ConvSettings((1,), (0,), (1,), 1))
    assert split_positions(9, 1, 256) == (2, 5)
    assert found.item() == (x.double() * grad.double()).sum().item()


def test_infinite_weights_meet_no_padding():
    """Beyond the edge of grad nothing is multiplied: an infinite tap that meets only padding leaves no NaN."""
    w = torch.ones(8, 8, 2, device=DEVICE)
    w[..., 0] = float("inf")
    found = input_gradient(torch.ones(1, 8, 2, device=DEVICE), w, (2,), ConvSettings((1,), (1,), (1,), 1))
    assert found[0, 0].tolist() == [8.0, float("inf")]


def test_derivatives_of_derivatives():
    """A gradient can be differentiated again, by each of its inputs, and gives what torch's gives."""
    inputs = [integers(*shape).double().requires_grad_() for shape in ((1, 2, 3), (2, 1, 2), (2,))]
    found = []
    for module in (ours, theirs):
        y = module.conv_transpose1d(*inputs, stride=2, groups=2)
        first = torch.autograd.grad(y.pow(3).sum(), inputs, create_graph=True)
        second = torch.autograd.grad(sum(each.square().sum() for each in first), inputs)
        found.append((*first, *second))
    assert all(torch.equal(mine, other) for mine, other in zip(*found, strict=True))


def test_gradients_are_traced():
    """The gradients are operators of their own for torch.compile, with the shapes and memory formats of the tensors."""
    operators = torch.ops.unpool
    with torch._subclasses.FakeTensorMode():
        grad = torch.empty(2, 4, 8, 8, device="cuda").to(memory_format=torch.channels_last)
        x, w = torch.empty(2, 8, 4, 4, device="cuda"), torch.empty(8, 4, 2, 2, device="cuda")
        settings = [2, 2], [0, 0], [0, 0], 1, [1, 1]
        by_x = operators.conv_transpose_input_gradient(grad, w, [4, 4], *settings)
        by_w = operators.conv_transpose_weight_gradient(x, grad, [2, 2], *settings)
    assert (by_x.shape, by_w.shape, by_x.device.type) == (x.shape, w.shape, "cuda")
    assert by_x.is_contiguous(memory_format=torch.channels_last)
