"""torch.fx and __torch_function__: our functions are seen as torch's own are, one node each."""

import copy

import pytest
import torch
from torch import nn
from torch.fx import symbolic_trace

import unpool.torch as ours


class Network(nn.Module):
    """Every kind of module, sizes that are traced, and a function called by itself."""

    def __init__(self):
        super().__init__()
        self.pool, self.unpool = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)
        self.grow, self.to_size = nn.ConvTranspose2d(3, 2, 1), nn.ConvTranspose2d(2, 3, 3, 2, 1)

    def forward(self, x):
        y, indices = self.pool(x)
        y = self.to_size(self.grow(y), output_size=x.shape[2:])
        y = self.unpool(y[:, :, ::2, ::2], indices, output_size=x.shape)
        return ours.max_pool2d(y, 3, 1, padding=1)


@pytest.fixture(scope="module")
def networks():
    """A network of torch's modules, an accelerated one, and what torch.fx makes of that."""
    torch.manual_seed(4)
    theirs = Network()
    mine = copy.deepcopy(theirs)
    assert all(swap.reason is None for swap in ours.accelerate(mine))
    return theirs, mine, symbolic_trace(mine)


def test_every_function_is_one_node(networks):
    """Of an accelerated network each pool, unpooling and convolution is a call of our function."""
    called = [node.target for node in networks[2].graph.nodes if node.op == "call_function"]
    found = [one for one in called if getattr(one, "__module__", "").startswith("unpool.torch.ops")]
    names = ("max_pool2d", "conv_transpose2d", "conv_transpose2d", "max_unpool2d", "max_pool2d")
    assert found == [getattr(ours, name) for name in names]


@pytest.mark.parametrize("size", [(8, 12), (10, 8)])
def test_a_traced_network_gives_the_same(networks, size):
    """Values and gradients of the traced network are those of the network, at any size, and compiled too."""
    theirs, _, traced = networks
    x = torch.randn(2, 3, *size)
    for module in (traced, torch.compile(traced, backend="eager", fullgraph=True), symbolic_trace(traced)):
        torch.testing.assert_close(module(x), theirs(x))
    expected, found = (torch.autograd.grad(net(x).square().sum(), net.grow.weight)[0] for net in (theirs, traced))
    torch.testing.assert_close(found, expected)
    torch._dynamo.reset()


def test_a_traced_network_is_exported(networks):
    """torch.export takes the traced network, and keeps the operators."""
    x = torch.randn(2, 3, 8, 12)
    program = torch.export.export(networks[2], (x,))
    kept = [str(node.target) for node in program.graph.nodes if str(node.target).startswith("unpool.")]
    assert len(kept) == 5
    torch.testing.assert_close(program.module()(x), networks[0](x))


class Tagged(torch.Tensor):
    """A subclass that only wants to be kept."""


def test_subclasses_and_modes():
    """A subclass of Tensor comes back, a function mode sees the call, and a default device changes nothing."""
    x, seen = torch.randn(1, 2, 4, 4), []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    y, indices = ours.max_pool2d(x.as_subclass(Tagged), 2, return_indices=True)
    assert type(y) is Tagged
    assert type(ours.max_unpool2d(y, indices, 2)) is Tagged
    with Mode():
        ours.conv_transpose2d(x, torch.ones(2, 1, 1, 1))
    assert ours.conv_transpose2d in seen
    with torch.device("cpu"):
        assert torch.equal(ours.max_pool2d(x, 2), y.as_subclass(torch.Tensor))
