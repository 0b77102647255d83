"""Accelerated models in TorchScript: a recorded model holds operators of torch alone."""

import io
import subprocess
import sys

import pytest
import torch
from torch import nn

from tests.cases.exports import RoundTrip
from unpool.torch import accelerate, max_unpool1d, max_unpool3d

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore::torch.jit.TracerWarning")

LOADS_ALONE = """
import io, sys, torch
sys.modules["unpool"] = None
scripted = torch.jit.load(io.BytesIO(sys.stdin.buffer.read()))
assert scripted(torch.ones(1, 2, 11, 14)).shape == (1, 2, 12, 14)
"""


def grown():
    """A network of a pool and a transposed convolution, which torch can script."""
    layers = nn.MaxPool2d(3, 2, 1), nn.ConvTranspose2d(2, 2, 3, 2, 1), nn.ConvTranspose2d(2, 2, 2, 1)
    return nn.Sequential(*layers).eval()


def accelerated(model):
    assert all(swap.reason is None for swap in accelerate(model))
    return model


@pytest.mark.slow
@pytest.mark.parametrize("record", [lambda model: torch.jit.trace(model, torch.ones(1, 2, 9, 8)), torch.jit.script])
def test_recorded_models_do_not_need_unpool(record):
    """A traced or scripted model has its own result at other sizes too, and loads where unpool is not installed."""
    model = accelerated(grown())
    recorded = record(model)
    x = torch.rand(1, 2, 11, 14)
    torch.testing.assert_close(recorded(x), model(x))
    file = io.BytesIO()
    torch.jit.save(recorded, file)
    done = subprocess.run([sys.executable, "-c", LOADS_ALONE], input=file.getvalue(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_scripting_leaves_the_model_accelerated():
    """The scripted model is another one: the modules of the original still run on unpool."""
    model = accelerated(grown())
    torch.jit.script(model)
    assert {swap.reason for swap in accelerate(model)} == {"it already runs on unpool"}


@pytest.mark.parametrize("is_sized", [True, False])
def test_unpoolings_are_traced(is_sized):
    """A traced unpooling takes other sizes than the example's, and is torch's operator."""
    model = accelerated(RoundTrip(2, is_sized, 2))
    traced = torch.jit.trace(model, torch.rand(1, 2, 6, 8))
    assert "aten::max_unpool2d" in str(traced.inlined_graph)
    assert "unpool::" not in str(traced.inlined_graph)
    x = torch.rand(3, 2, 9 if is_sized else 10, 12)
    torch.testing.assert_close(traced(x), model(x), rtol=0, atol=0)


@pytest.mark.parametrize(("unpool", "rank"), [(max_unpool1d, 1), (max_unpool3d, 3)])
def test_unpoolings_of_other_ranks_are_traced(unpool, rank):
    """The functions are traced as the modules are, over one axis and over three, without a batch too."""
    for is_batched in (True, False):
        x = torch.rand(*[2][:is_batched], 3, *[4] * rank)
        indices = torch.arange(4**rank).view(*[4] * rank).expand(x.shape).contiguous()
        traced = torch.jit.trace(lambda x, indices: unpool(x, indices, 3, 2, 1), (x, indices))
        assert "unpool::" not in str(traced.inlined_graph)
        torch.testing.assert_close(traced(x, indices), unpool(x, indices, 3, 2, 1), rtol=0, atol=0)
