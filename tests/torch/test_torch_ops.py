"""Operators on tensors: registered as PyTorch wants them, differentiable, traceable, and torch's own answers."""

import copy
import io
import logging

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
from torch import nn
from torch.library import opcheck

import unpool
import unpool.torch as ours
from unpool import per_plane

OPS = torch.ops.unpool
SHAPES = {1: (2, 3, 9), 2: (2, 3, 7, 9), 3: (2, 2, 5, 4, 5)}
POOL = {
    1: ([3], [2], [1], [1], False),
    2: ([3, 2], [2, 1], [1, 1], [1, 2], True),
    3: ([2, 3, 2], [2, 2, 1], [1, 1, 1], [1, 1, 2], False),
}
NAN = float("nan")

NOT_A_LEAF = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
"""What opcheck reads, which torch 2.14 warns of."""


def tensors(rank):
    """A row-major and, where torch has the format, a channels-last tensor; and an empty batch."""
    x = torch.randn(SHAPES[rank])
    formats = {2: torch.channels_last, 3: torch.channels_last_3d}
    last = [x.to(memory_format=formats[rank]).requires_grad_()] if rank in formats else []
    return [x.clone().requires_grad_(), *last, x[:0]]


@pytest.mark.sample(3)
@NOT_A_LEAF
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_opcheck_of_pools_and_unpoolings(rank):
    """Schema, gradient registration, fake kernel (strides too) and dynamic shapes are what PyTorch asks for."""
    for x in tensors(rank):
        opcheck(OPS.max_pool, (x, *POOL[rank]))
        opcheck(OPS.max_pool_with_indices, (x, *POOL[rank]))
        y, indices = OPS.max_pool_with_indices(x.detach(), *POOL[rank])
        opcheck(OPS.max_pool_backward, (torch.randn_like(y).requires_grad_(), indices, list(x.shape[2:]), []))
        opcheck(OPS.max_unpool, (y.requires_grad_(), indices, list(x.shape[2:])))
        opcheck(OPS.max_unpool_backward, (x, indices))


@pytest.mark.sample(3)
@NOT_A_LEAF
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_opcheck_of_transposed_convolutions(rank):
    """As above, with and without bias and groups."""
    two, one = [2] * rank, [1] * rank
    for x in tensors(rank):
        channels = x.shape[1]
        w = torch.randn(channels, 2, *two, requires_grad=True)
        opcheck(OPS.conv_transpose, (x, w, torch.randn(2, requires_grad=True), two, one, one, 1, one))
        opcheck(OPS.conv_transpose, (x, w, None, two, one, one, channels, one))


@NOT_A_LEAF
def test_opcheck_of_gradients_of_transposed_convolutions():
    """As above, for the two operators that a GPU's gradients are made of; here they are torch's."""
    one, two = [1, 1], [2, 2]
    settings = two, one, one, 1, one
    x, w = tensors(2)[-2], torch.randn(SHAPES[2][1], 2, 2, 2, requires_grad=True)
    grad = torch.randn_like(OPS.conv_transpose(x, w, None, *settings), requires_grad=True)
    opcheck(OPS.conv_transpose_input_gradient, (grad, w, list(x.shape[2:]), *settings))
    opcheck(OPS.conv_transpose_weight_gradient, (x, grad, two, *settings))


def test_only_wanted_gradients_of_a_convolution():
    """A frozen weight or bias costs nothing and stays without gradient."""
    x, w, b = torch.randn(1, 2, 4), torch.randn(2, 3, 2, requires_grad=True), torch.randn(3)
    ours.conv_transpose1d(x, w, b).sum().backward()
    assert x.grad is None
    assert b.grad is None
    assert torch.equal(w.grad, torch.autograd.grad(F.conv_transpose1d(x, w, b).sum(), w)[0])


@pytest.mark.parametrize("kernel", [2, 3])
def test_the_last_nan_and_the_first_of_equals(kernel):
    """Indices of NaN are torch's, the last in the window; of equal elements the first is found."""
    x = torch.tensor([[[NAN, 1, NAN, 2, 9], [3, 4, 5, 5, 5], [5, 1, NAN, NAN, 5.0]]])
    mine, theirs = (module.max_pool2d(x, kernel, 1, return_indices=True) for module in (ours, F))
    torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)


def test_windows_that_see_only_padding():
    """Where torch reads outside its input, a pool gives minus infinity, index -1 and no gradient."""
    x = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]], requires_grad=True)
    y, indices = ours.max_pool2d(x, 2, 1, 1, 3, return_indices=True)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert y.item() == -float("inf")
    assert indices.item() == -1
    assert not gradient.any()
    assert ours.max_pool2d(x.detach().short(), 2, 1, 1, 3).item() == -(2**15)


def test_integers_beyond_float64():
    """int64 elements that float64 cannot tell apart are pooled exactly."""
    x = torch.tensor([[2**53 + 1, 2**53, -(2**63), 2**63 - 1, 2**63 - 2, -1]])
    mine, theirs = (module.max_pool1d(x, 2, 1, return_indices=True) for module in (ours, F))
    torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    last = torch.randint(-9, 9, SHAPES[2]).to(memory_format=torch.channels_last)
    opcheck(OPS.max_pool_with_indices, (last, *POOL[2]))


def test_overlapping_indices():
    """Of equal indices the last wins, and every one of them gets the gradient of the place, as in torch."""
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]], requires_grad=True)
    indices, weights = torch.tensor([[5, 5, 0, 5]]), torch.arange(8.0)
    found = [unpooling(x, indices, 2) for unpooling in (ours.max_unpool1d, F.max_unpool1d)]
    pulled = [torch.autograd.grad((y * weights).sum(), x)[0] for y in found]
    assert found[0].tolist() == [[3.0, 0, 0, 0, 0, 4.0, 0, 0]]
    assert torch.equal(*found)
    assert torch.equal(*pulled)


@pytest.mark.parametrize("value", [-1, 8])
def test_indices_outside_their_plane(value):
    """An index outside its own plane is an error before anything is written, in every direction."""
    indices = torch.tensor([[[0, 1], [2, value]]])
    x = torch.ones(1, 2, 2)
    with pytest.raises(unpool.IndicesError, match=rf"max_unpool1d: .* {value} at \[0, 1, 1\]") as caught:
        ours.max_unpool1d(x, indices, 4)
    assert isinstance(caught.value, RuntimeError)
    if value > 0:
        with pytest.raises(unpool.IndicesError, match="max_pool_backward"):
            OPS.max_pool_backward(x, indices, [8], [])
        with pytest.raises(unpool.IndicesError, match="max_unpool_backward"):
            OPS.max_unpool_backward(torch.ones(1, 2, 8), indices)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_nothing_is_copied(caplog, memory_format):
    """Row-major and channels-last tensors are pooled and unpooled where they lie, and results keep the format."""
    x = torch.randn(2, 3, 8, 6).to(memory_format=memory_format)
    with caplog.at_level(logging.INFO, "unpool"):
        y, indices = ours.max_pool2d(x, 2, return_indices=True)
        gradient, back = OPS.max_pool_backward(y, indices, [8, 6], []), ours.max_unpool2d(y, indices, 2)
        if memory_format is torch.contiguous_format:
            ours.conv_transpose2d(back, torch.randn(3, 2, 2, 2))
    assert caplog.records == []
    assert all(each.is_contiguous(memory_format=memory_format) for each in (y, indices, gradient, back))


@pytest.mark.sample(4)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_unpooling_beyond_one_job(memory_format, dtype):
    """The last of equal indices wins on two threads too, bits of a NaN included, as in torch on one."""
    x = torch.randn(3, 70, 33, 35).to(dtype).to(memory_format=memory_format)
    y, indices = ours.max_pool2d(x, 3, 1, 1, return_indices=True)
    z = torch.randn(y.shape).to(dtype).to(memory_format=memory_format)
    z[1, 3] = NAN
    expected = F.max_unpool2d(z, indices, 1, output_size=(33, 35))
    torch.set_num_threads(2)  # on which torch itself lets equal indices race
    found = ours.max_unpool2d(z, indices, 1, output_size=(33, 35))
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    assert torch.equal(found.view(bits), expected.view(bits))
    assert found.is_contiguous(memory_format=memory_format)


def test_the_first_wrong_index_is_named():
    """Of several wrong indices the first is named, whoever meets it, and nothing is read or written there."""
    indices = torch.zeros(4, 40, 50, 50, dtype=torch.int64)
    indices[2, 7, 3, 9], indices[3, 1, 0, 0] = 2500, -7
    torch.set_num_threads(2)
    for call in (
        lambda: ours.max_unpool2d(torch.ones(4, 40, 50, 50), indices, 1),
        lambda: OPS.max_pool_backward(torch.ones(4, 40, 50, 50), indices, [50, 50], []),
        lambda: OPS.max_unpool_backward(torch.ones(4, 40, 50, 50), indices),
    ):
        with pytest.raises(unpool.IndicesError, match=r" 2500 at \[2, 7, 3, 9\]"):
            call()


def test_threads_do_not_change_gradients():
    """Sums of a gradient have one order, whatever torch.set_num_threads says."""
    x = torch.randn(3, 70, 33, 35).to(memory_format=torch.channels_last)
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        y, indices = ours.max_pool2d(x, 3, 1, 1, return_indices=True)
        found.append(OPS.max_pool_backward(y, indices, [33, 35], []))
    assert torch.equal(*found)


class Net(nn.Module):
    """Pool with indices, unpooling to the input size, transposed convolution."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 2, 2, 2))

    def forward(self, x):
        y, indices = ours.max_pool2d(x, 3, 2, 1, return_indices=True)
        z = ours.max_unpool2d(y, indices, 3, 2, 1, output_size=x.shape[-2:])
        return ours.conv_transpose2d(z + ours.max_pool2d(x, 3, 1, 1), self.weight, None, 2)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile(backend):
    """torch.compile traces the operators without a graph break, and again for other sizes, gradients included.

    Those of a convolution are torch's where they are traced, which round otherwise than products of matrices.
    """
    net = Net()
    compiled = torch.compile(net, backend=backend, fullgraph=True)
    for shape in ((2, 3, 7, 9), (3, 3, 9, 11), (1, 3, 8, 12)):
        x = torch.randn(shape, requires_grad=True)
        whole, graph = net(x), compiled(x)
        assert torch.equal(graph, whole)
        torch.testing.assert_close(*(torch.autograd.grad(y.square().sum(), x)[0] for y in (whole, graph)))
    torch._dynamo.reset()


def test_export():
    """torch.export keeps each operator as one node and runs for other sizes."""
    net, dynamic = Net(), torch.export.Dim.AUTO
    program = torch.export.export(
        net, (torch.randn(2, 3, 7, 9),), dynamic_shapes=({0: dynamic, 2: dynamic, 3: dynamic},)
    )
    kept = {str(node.target) for node in program.graph.nodes if str(node.target).startswith("unpool.")}
    x = torch.randn(3, 3, 10, 8)
    names = ("conv_transpose", "max_pool_with_indices", "max_pool", "max_unpool")
    assert kept == {f"unpool.{name}.default" for name in names}
    assert torch.equal(program.module()(x), net(x))


def test_autocast():
    """Under autocast results have the types of torch's own operators."""
    x, w = torch.randn(1, 3, 4, 4), torch.randn(3, 2, 2, 2)
    indices, narrow = torch.zeros(1, 3, 4, 4, dtype=torch.int64), x.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for name, *inputs in (
            ("conv_transpose2d", x, w), ("conv_transpose2d", x.double(), w.double()), ("max_pool2d", narrow, 2),
            ("max_pool3d", narrow, 2), ("max_unpool2d", narrow, indices, 2),
        ):  # fmt: skip
            assert getattr(ours, name)(*inputs).dtype == getattr(F, name)(*inputs).dtype


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ours.max_pool2d(x.bool(), 2), "max_pool2d: input expects one of float16"),
        (lambda x: ours.max_pool2d(x, 0), "kernel_size must be greater than zero"),
        (lambda x: ours.max_pool2d(x, (2, 2, 2)), r"kernel_size needs an int or 2 ints, got \[2, 2, 2\]"),
        (lambda x: ours.max_pool2d(x[0, 0], 2), r"input needs 3 axes, or 4 with a batch, got shape \[4, 4\]"),
        (lambda x: ours.max_unpool2d(x.long(), x.long(), 2), "max_unpool2d: input expects one of float16"),
        (lambda x: ours.max_unpool2d(x, x.int(), 2), "indices expects one of int64; got int32"),
        (lambda x: ours.max_unpool2d(x, x[..., 1:].long(), 2), "indices to be same as that of the input"),
        (lambda x: ours.max_unpool2d(x, x.long(), 2, output_size=(8, 10)), "less than stride 2 away from 8 .* axis 1"),
        (lambda x: ours.max_unpool2d(x, x.long(), 2, output_size=(8,)), "output_size needs 2 or 4 sizes"),
        (lambda x: ours.conv_transpose2d(x, x.double()), "weight expects one of float32; got float64"),
        (lambda x: ours.conv_transpose2d(x, torch.ones(2, 1, 2, 2)), r"weight needs the shape \(3, M/groups"),
        (lambda x: ours.conv_transpose2d(x, torch.ones(3, 1, 2, 2), groups=2), "groups needs to divide the 3 channels"),
        (lambda x: ours.conv_transpose2d(x, torch.ones(3, 1, 2, 2), torch.ones(3)), r"bias needs the shape \[1\]"),
        (lambda x: ours.conv_transpose2d(x, torch.ones(3, 1, 2, 2), output_padding=1), "smaller than either stride 1"),
        (lambda x: ours.conv_transpose2d(x, torch.ones(3, 1, 2, 2), padding=-1), "padding must be non-negative"),
        (lambda x: ours.conv_transpose2d(x, torch.ones(3, 1, 2, 2), padding=3), r"sizes \[4, 4\] give \[-1, -1\]"),
        (lambda x: ours.conv_transpose2d(x, torch.ones(3, 1, 2, 2), stride=0), "stride must be greater than zero"),
    ],
)
def test_wrong_arguments(call, message, monkeypatch):
    """What torch refuses is refused before anything runs, as a RuntimeError and an UnpoolError."""
    for _ in range(2):
        with pytest.raises(RuntimeError, match=message) as caught:
            call(torch.ones(1, 3, 4, 4))
        assert isinstance(caught.value, unpool.UnpoolError)
        monkeypatch.undo()  # of conftest.py: then torch computes calls of this size


def _refused_calls(functions):
    """Wrong calls by the words that torch's own tests look for in their errors."""
    x, volume, line = torch.ones(1, 3, 20, 20), torch.ones(1, 3, 8, 8, 8), torch.ones(1, 3, 20)
    y, indices = F.max_pool2d(x, 2, return_indices=True)
    w = torch.ones(3, 2, 3, 3)
    small, places = F.max_pool3d(volume, 2, return_indices=True)
    return [
        ("Expected", lambda: functions.max_pool2d(x[:, :0], 2)),
        ("Expected", lambda: functions.max_pool3d(volume[:, :, :0], 2)),
        ("Expected", lambda: functions.max_unpool2d(y[:, :, :0], indices[:, :, :0], 2)),
        ("must be greater than zero", lambda: functions.max_pool1d(line, 2, stride=0)),
        ("must be greater than zero", lambda: functions.max_pool1d(line, 0)),
        ("must be greater than zero", lambda: functions.max_pool1d(line, 2, dilation=0)),
        ("should not be zero|must be greater than zero", lambda: functions.max_pool2d(x, 2, stride=0)),
        ("should not be zero|must be greater than zero", lambda: functions.max_pool3d(volume, 2, stride=0)),
        ("greater than zero", lambda: functions.max_unpool3d(small, places, 2, 0)),
        ("greater than zero", lambda: functions.conv_transpose2d(x, w, dilation=0)),
        ("must be non-negative", lambda: functions.max_pool2d(x, 2, padding=-1)),
        ("should be at most half of", lambda: functions.max_pool2d(x, 2, padding=2)),
        ("Output size is too small", lambda: functions.max_pool2d(x, 30)),
        ("Output size is too small", lambda: functions.max_pool3d(volume, 9)),
        ("Output size is too small", lambda: functions.conv_transpose2d(x[:, :, :1, :1], w, padding=5)),
        ("must be smaller than either stride", lambda: functions.conv_transpose2d(x, w, output_padding=3)),
        ("Expected shape of indices to be same", lambda: functions.max_unpool2d(y, indices[:, :, :5], 2)),
        ("Found an invalid max index", lambda: functions.max_unpool2d(y, indices + 1000, 2)),
    ]


@pytest.mark.sample(5)
@pytest.mark.parametrize("position", range(18))
@pytest.mark.parametrize("functions", [F, ours], ids=["torch", "unpool"])
def test_errors_have_the_words_of_torch(functions, position):
    """A program or a test that looks for words in torch's errors finds them in ours."""
    words, call = _refused_calls(functions)[position]
    with pytest.raises(RuntimeError, match=words) as caught:
        call()
    assert functions is F or isinstance(caught.value, unpool.UnpoolError)


def test_gradients_refuse_what_does_not_fit():
    """The functions on arrays name a wrong type or shape."""
    grad, indices = np.ones((1, 1, 2), np.float32), np.zeros((1, 1, 2), np.int64)
    with pytest.raises(unpool.UnpoolError, match="max_pool_backward: expected a float type, got int8"):
        per_plane.max_pool_backward(grad.astype(np.int8), indices, (4,))
    with pytest.raises(unpool.ShapeError, match="one shape of 3 axes"):
        per_plane.max_pool_backward(grad, indices[..., :1], (4,))
    with pytest.raises(unpool.ShapeError, match="one rank, N and C"):
        per_plane.max_unpool_backward(grad, indices[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_gradients_round_once(dtype):
    """A sum of 16-bit gradients is formed in float32: thousands of small terms are not lost one by one."""
    grad, indices = torch.full((1, 1, 5000), 1.0, dtype=dtype), torch.zeros(1, 1, 5000, dtype=torch.int64)
    total = float(torch.tensor(5000.0).to(dtype))
    assert OPS.max_pool_backward(grad, indices, [3], []).flatten().tolist() == [total, 0, 0]


def model():
    """Every module that can be swapped, and some that cannot."""

    class Own(nn.MaxPool2d):
        pass

    return nn.ModuleDict(
        {
            "pool": nn.MaxPool2d(2, return_indices=True),
            "conv": nn.Conv2d(2, 2, 3),
            "inner": nn.Sequential(nn.MaxUnpool3d(2), nn.ConvTranspose1d(2, 3, 2, stride=2)),
            "own": Own(2),
            "adaptive": nn.AdaptiveMaxPool1d(3),
            "elsewhere": nn.ConvTranspose2d(2, 2, 2, device="meta"),
        }
    )


def test_accelerate_says_what_it_did():
    """Every module of the families has a record: swapped, or left with the reason."""
    assert [str(swap) for swap in ours.accelerate(model())] == [
        "pool: MaxPool2d runs on unpool",
        "inner.0: MaxUnpool3d runs on unpool",
        "inner.1: ConvTranspose1d runs on unpool",
        "own: Own left: it is a subclass, whose forward may differ",
        "adaptive: AdaptiveMaxPool1d left: its windows differ from place to place",
        "elsewhere: ConvTranspose2d left: its parameters are on meta, not on the CPU or a CUDA device",
    ]


def test_accelerate_keeps_everything_else():
    """Parameters, state_dict, hooks, copies and pickles survive; a second call finds nothing to do."""
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.ConvTranspose2d(2, 1, 2, stride=2))
    seen, parameters = [], list(net.parameters())
    net[1].register_forward_hook(lambda *_: seen.append("hook"))
    x, before = torch.randn(1, 1, 7, 7), {key: value.clone() for key, value in net.state_dict().items()}
    expected = net(x)
    ours.accelerate(net)
    buffer = io.BytesIO()
    torch.save(net[2], buffer)
    assert torch.allclose(net(x), expected, atol=1e-6)
    assert seen == ["hook", "hook"]
    assert all(mine is theirs for mine, theirs in zip(net.parameters(), parameters, strict=True))
    assert all(torch.equal(net.state_dict()[key], value) for key, value in before.items())
    assert [swap.reason for swap in ours.accelerate(copy.deepcopy(net))] == ["it already runs on unpool"] * 2
    buffer.seek(0)
    assert type(torch.load(buffer, weights_only=False)) is type(net[2])


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_accelerated_modules_equal_torch(rank):
    """Every module of every rank gives what torch's gives, gradients, settings and output_size included."""
    pool = getattr(nn, f"MaxPool{rank}d")(3, 2, 1, ceil_mode=True, return_indices=True)
    unpooling = getattr(nn, f"MaxUnpool{rank}d")(3, 2, 1)
    conv = getattr(nn, f"ConvTranspose{rank}d")(4, 4, 3, 2, 1, groups=2, dilation=2)
    x = torch.randn(2, 4, *[7] * rank, requires_grad=True)
    mine = [copy.deepcopy(module) for module in (pool, unpooling, conv)]
    assert all(swap.reason is None for module in mine for swap in ours.accelerate(module))
    y, indices = pool(x)
    assert torch.equal(mine[0](x)[1], indices)
    pairs = [(mine[0](x)[0], y)]
    pairs += [tuple(module(y, indices, output_size=list(x.shape[2:])) for module in (mine[1], unpooling))]
    assert all(torch.equal(*pair) for pair in pairs)
    pairs += [tuple(module(x, [16] * rank) for module in (mine[2], conv))]
    for pair in pairs:
        torch.testing.assert_close(*pair)
        torch.testing.assert_close(*(torch.autograd.grad(y.square().sum(), x, retain_graph=True) for y in pair))
    grown = zip(pairs[2], (mine[2], conv), strict=True)
    torch.testing.assert_close(*(torch.autograd.grad(y.sum(), module.weight) for y, module in grown))


@pytest.mark.parametrize("batch", [(), (2,)])
def test_accelerated_convolution_takes_the_output_sizes_that_torch_takes(batch):
    """Of every output_size, with and without the outer axes, our module makes what torch's makes, or both refuse it."""
    theirs = nn.ConvTranspose1d(3, 2, 3, stride=3, padding=1, dilation=2)
    mine = copy.deepcopy(theirs)
    x = torch.randn(*batch, 3, 4)
    ours.accelerate(mine)
    taken = []
    for size in range(8, 18):
        for asked in ([size], [*batch, 2, size], [2, 2, 2, size]):
            try:
                expected = theirs(x, asked)
            except ValueError:
                with pytest.raises(unpool.errors.UnpoolError, match="output_size needs"):
                    mine(x, asked)
            else:
                taken.append(size)
                torch.testing.assert_close(mine(x, asked), expected)
    assert taken == [12, 12, 13, 13, 14, 14]


NO_INTS = {
    "a float": lambda x, i: ours.max_pool2d(x, 2.0),
    "a float in a list": lambda x, i: ours.max_pool2d(x, (2, 2.0)),
    "a text": lambda x, i: ours.max_pool2d(x, "2"),
    "None in a list": lambda x, i: ours.max_unpool2d(x, i, (2, None)),
    "a stride": lambda x, i: ours.max_unpool2d(x, i, 2, stride=1.5),
    "a padding": lambda x, i: ours.conv_transpose2d(x, torch.ones(1, 1, 2, 2), padding=0.5),
}


@pytest.mark.parametrize("name", NO_INTS)
def test_sizes_that_are_no_ints(name):
    """They are refused by name, and as a TypeError, as torch does."""
    x = torch.rand(1, 1, 8, 8)
    with pytest.raises(TypeError, match=r"(kernel_size|stride|padding) needs an int or 2 ints, got ") as caught:
        NO_INTS[name](x, torch.zeros_like(x, dtype=torch.int64))
    assert isinstance(caught.value, unpool.UnpoolError)


def test_sizes_as_other_ints():
    """NumPy's ints, a tensor of one element and a torch.Size are sizes."""
    x = torch.rand(1, 1, 8, 8)
    expected = F.max_pool2d(x, 2)
    for size in (np.int64(2), torch.tensor(2), torch.Size([2, 2]), [np.int32(2), 2], np.array([2, 2])):
        assert torch.equal(ours.max_pool2d(x, size), expected)


def test_a_wrong_index_is_one_error():
    """The error in the words of torch shows no other one above it."""
    x = torch.rand(1, 1, 8, 8)
    with pytest.raises(unpool.IndicesError, match="invalid max index: 9999") as caught:
        ours.max_unpool2d(x, torch.full(x.shape, 9999), 2)
    assert caught.value.__context__ is None
