"""Exports with dynamo=False of what a model computes inside an autograd.Function."""

import io

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import nn
from torch.autograd import Function

import unpool
from tests.cases.exports import noise
from unpool.torch import export

pytestmark = pytest.mark.usefixtures("quiet")


class Unpool(Function):
    """An unpooling with a gradient of its own."""

    @staticmethod
    def forward(ctx, x, indices, size):
        ctx.save_for_backward(indices)
        ctx.needs_indices = ctx.needs_input_grad[0]
        return F.max_unpool2d(x, indices, 2, output_size=size)


class UnpoolWithSetup(Function):
    """The same in torch's newer form."""

    @staticmethod
    def forward(x, indices, size):
        return F.max_unpool2d(x, indices, 2, output_size=size)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])


class UnpoolOfOnePlane(Unpool):
    """With a symbolic that is right for one image of one channel."""

    @staticmethod
    def symbolic(g, x, indices, size):
        return g.op("MaxUnpool", x, indices, kernel_shape_i=[2, 2], strides_i=[2, 2])


class Cube(Function):
    """An operator of the caller, whose symbolic is not torch's."""

    @staticmethod
    def forward(ctx, x):
        return x * x * x

    @staticmethod
    def symbolic(g, x):
        return g.op("Pow", x, g.op("Constant", value_t=torch.tensor(3.0)))


class Net(nn.Module):
    """A pool and its unpooling by a Function."""

    def __init__(self, function, is_sized):
        super().__init__()
        self.function, self.is_sized = function, is_sized

    def forward(self, x):
        y, indices = F.max_pool2d(x, 2, return_indices=True)
        return self.function.apply(y, indices, x.shape if self.is_sized else None)


def model_of(module, x, **options):
    """The module, exported with dynamo=False."""
    file = io.BytesIO()
    export(module.eval(), (x,), file, dynamo=False, input_names=["x"], **options)
    return onnx.load_from_string(file.getvalue())


@pytest.mark.parametrize("function", [Unpool, UnpoolWithSetup, UnpoolOfOnePlane])
@pytest.mark.parametrize("is_sized", [False, True])
def test_unpoolings_are_written(function, is_sized):
    """An unpooling in a Function is one MaxUnpool for any batch and size, whatever its symbolic would write."""
    module = Net(function, is_sized)
    model = model_of(module, noise(2, 3, 6, 8), dynamic_axes={"x": {0: "batch", 2: "height", 3: "width"}})
    assert [node.op_type for node in model.graph.node].count("MaxUnpool") == 1
    session = unpool.InferenceSession(model.SerializeToString())
    for x in (noise(2, 3, 6, 8), noise(1, 3, 7, 9) if is_sized else noise(1, 3, 4, 10)):
        np.testing.assert_array_equal(session.run(None, {"x": x.numpy()})[0], module(x).numpy())


def test_symbolics_of_other_functions_are_used():
    """A symbolic of the caller, of a Function that does not unpool, writes its nodes as in torch."""

    class Cubed(nn.Module):
        def forward(self, x):
            return Cube.apply(F.max_pool2d(x, 2))

    assert [node.op_type for node in model_of(Cubed(), noise(1, 1, 4, 4)).graph.node][-1] == "Pow"


def test_functions_may_have_another_name():
    """An `apply` that the caller keeps under a name of its own is traced too, or refused from torch 2.14.1 on."""
    unpool_to = Unpool.apply

    class Named(nn.Module):
        def forward(self, x):
            return unpool_to(*F.max_pool2d(x, 2, return_indices=True), x.shape[2:])

    if not isinstance(vars(Function)["apply"], classmethod):  # it is compiled
        with pytest.raises(unpool.UnsupportedError, match=r"Call Unpool\.apply in forward"):
            model_of(Named(), noise(1, 1, 5, 4))
        return
    assert [node.op_type for node in model_of(Named(), noise(1, 1, 5, 4)).graph.node] == ["MaxPool", "MaxUnpool"]


def test_errors_of_other_python_operators_are_torchs():
    """A function that a script leaves to Python is no autograd.Function, so torch's own error stays."""

    @torch.jit.ignore
    def halve(x: torch.Tensor) -> torch.Tensor:
        return x / 2

    @torch.jit.script
    def halve_twice(x: torch.Tensor) -> torch.Tensor:
        return halve(halve(x))

    class Halved(nn.Module):
        def forward(self, x):
            return halve_twice(x)

    with pytest.raises(RuntimeError, match="Couldn't export Python operator halve") as caught:
        model_of(Halved(), noise(1, 1, 4, 4))
    assert not isinstance(caught.value, unpool.UnpoolError)


def test_functions_are_as_before_after_an_export():
    """The export leaves no trace in torch.autograd.Function."""
    members = [dict(vars(base)) for base in Function.__mro__]
    model_of(Net(Unpool, True), noise(1, 1, 4, 4))
    assert [dict(vars(base)) for base in Function.__mro__] == members
