"""Calls without PyTorch's dispatcher: only where nothing else would see them, and with the same results."""

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.overrides import BaseTorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import unpool.torch as ours
from unpool.torch.ops.register import can_bypass_dispatcher

SETTINGS = {"kernel_size": 3, "stride": 2, "padding": 1}
GRADIENTS = [
    {"stride": 2},
    {"stride": 3, "groups": 2, "output_padding": 1},
    {"stride": 1, "size": 1},
    {"stride": 2, "size": 1, "window": 4, "padding": 1, "groups": 2},
    {"stride": 2, "padding": 1},
    {"stride": 2, "dilation": 2, "groups": 2},
    {"stride": 1, "window": 3, "padding": 1},
]


class Listed(TorchDispatchMode):
    """Names the operators that the dispatcher is asked for."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


class Tagged(torch.Tensor):
    """A subclass, which may want to see every call."""


@pytest.mark.parametrize("inside", [nullcontext, torch.no_grad, torch.inference_mode])
def test_plain_tensors_are_called_directly(inside):
    """Eager code calls kernels itself: tensors, views, parameters, missing ones, with and without gradients."""
    with inside():
        x = torch.ones(2, 3)
        assert can_bypass_dispatcher(x, x[:, 1:], nn.Parameter(x), None, x.to(torch.bfloat16))


@pytest.mark.parametrize(
    "inside", [Listed, BaseTorchFunctionMode, FakeTensorMode, forward_ad.dual_level, torch.profiler.profile]
)
def test_whoever_looks_at_calls_sees_them(inside):
    """A call goes through the dispatcher where a mode, a transform, a tangent or a profiler wants to know of it."""
    with inside() as mode:
        assert not can_bypass_dispatcher(torch.ones(1))
    if inside is Listed:
        with mode:
            ours.max_pool1d(torch.ones(1, 4), 2)
        assert "unpool.max_pool.default" in mode.names
    assert can_bypass_dispatcher(torch.ones(1))


def test_transforms_see_calls():
    """A function that torch.func maps over a batch calls through the dispatcher, whatever it hands on."""
    seen = []
    torch.vmap(lambda x: seen.append(can_bypass_dispatcher(torch.ones(1))) or x)(torch.ones(2))
    assert seen == [False]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_other_tensors_go_through_the_dispatcher():
    """Subclasses, tensors without memory, lazily negated and sparse ones, and all that jit traces."""
    x, seen = torch.ones(2, 2), []
    assert not can_bypass_dispatcher(x, x.as_subclass(Tagged))
    assert not can_bypass_dispatcher(x.to("meta"))
    assert not can_bypass_dispatcher(torch.complex(x, x).conj().imag)
    assert not can_bypass_dispatcher(x.to_sparse())
    torch.jit.trace(lambda x: seen.append(can_bypass_dispatcher(x)) or x + 1, x, check_trace=False)
    assert seen == [False]


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_both_ways_give_the_same(memory_format, dtype):
    """Values, indices, gradients and strides do not depend on whether the dispatcher was asked."""
    inputs = torch.randn(2, 4, 7, 9).to(dtype).to(memory_format=memory_format), torch.randn(4, 2, 2, 2).to(dtype)
    found = []
    for mode in (nullcontext(), Listed()):
        x, weight = (each.clone().requires_grad_() for each in inputs)
        with mode:
            y, indices = ours.max_pool2d(x, **SETTINGS, return_indices=True)
            back = ours.max_unpool2d(y, indices, **SETTINGS, output_size=(7, 9))
            z = ours.conv_transpose2d(ours.max_pool2d(back, 2), weight, None, 2, 1)
            found.append((y, indices, back, z, *torch.autograd.grad(z.square().sum(), (x, weight))))
    for direct, dispatched in zip(*found, strict=True):
        torch.testing.assert_close(direct, dispatched)
        assert direct.stride() == dispatched.stride()


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("case", GRADIENTS, ids=str)
def test_gradients_of_convolutions_are_those_of_torch(rank, case):
    """Whether they are products of matrices or torch's own: for groups, gaps, output padding, and batches."""
    case = dict(case)
    size, window = case.pop("size", 3), case.pop("window", 2)
    shapes = (2, 4, *[size] * rank), (4, 3, *[window] * rank), (3 * case.get("groups", 1),)
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    name, found = f"conv_transpose{rank}d", []
    for module in (ours, F):
        y = getattr(module, name)(*inputs, **case)
        weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
        found.append(torch.autograd.grad((y * weights).sum(), inputs))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_settings_that_change_do_not_find_each_other():
    """Calls on one shape differ by their settings, types and strides alone."""
    x = torch.randn(1, 2, 6, 6)
    for setting in (1, 2, (1, 2), [2, 1]):
        for each in (x, x.to(memory_format=torch.channels_last), x.double(), x.mT):
            assert torch.equal(ours.max_pool2d(each, 2, setting), F.max_pool2d(each, 2, setting))
