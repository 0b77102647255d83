"""What only a GPU can show: graphs, streams, torch.compile, tensors beyond 2**31 elements, other libraries' arrays."""

import pytest
import torch
from torch import nn

import unpool
import unpool.torch as ours
from unpool import IndicesError

theirs = nn.functional
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU and a CUDA build of torch")


def net():
    """A small SegNet on the GPU, its modules' own results for x, and x."""
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.pool = nn.Conv2d(3, 8, 3, padding=1), nn.MaxPool2d(2, return_indices=True)
            self.unpool, self.grow = nn.MaxUnpool2d(2), nn.ConvTranspose2d(8, 3, 2, stride=2)

        def forward(self, x):
            y, indices = self.pool(torch.relu(self.conv(x)))
            return self.grow(self.unpool(y, indices))

    made, x = Net().cuda(), torch.randn(2, 3, 32, 32, device="cuda")
    return made, x, made(x).detach()


def test_a_graph_is_captured_and_replayed():
    """All operators in one CUDA graph, which computes on what its input holds when it is replayed."""
    x, w = torch.randn(2, 8, 32, 32, device="cuda"), torch.randn(8, 8, 2, 2, device="cuda")

    def step():
        y, indices = ours.max_pool2d(x, 2, return_indices=True)
        return ours.conv_transpose2d(ours.max_unpool2d(y, indices, 2), w)

    with torch.cuda.stream(torch.cuda.Stream()):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = step()
    x.copy_(torch.randn_like(x))
    graph.replay()
    assert torch.equal(y, step())


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # by torch 2.11 itself
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")  # which torch captures first
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_torch_compile_has_no_breaks(mode):
    """One graph, also where torch.compile makes it a CUDA graph; gradients too."""
    model, x, expected = net()
    ours.accelerate(model)
    compiled = torch.compile(model, fullgraph=True, mode=mode)
    for _ in range(3):
        model.zero_grad()  # a gradient may be the output of a graph that is replayed
        y = compiled(x)
        torch.testing.assert_close(y, expected)
        y.sum().backward()
    assert model.conv.weight.grad is not None


def test_autocast():
    """Weights are cast as torch casts them."""
    model = nn.ConvTranspose2d(16, 16, 2, stride=2).cuda()
    x = torch.randn(2, 16, 8, 8, device="cuda")
    expected = model(x)
    ours.accelerate(model)
    with torch.autocast("cuda", torch.float16):
        y = model(x)
    assert y.dtype == torch.float16
    torch.testing.assert_close(y.float(), expected, rtol=2e-2, atol=2e-2)


def test_a_stream_of_the_caller():
    """Kernels start on the current stream."""
    x, stream = torch.randn(8, 64, 256, 256, device="cuda"), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = ours.max_pool2d(x, 2)
    stream.synchronize()
    assert torch.equal(y, theirs.max_pool2d(x, 2))


def test_wrong_indices_are_told_now_or_later():
    """Nothing waits unless it is asked to, the result is NaN, and the error is the same."""
    x, indices = torch.ones(1, 1, 2, 2, device="cuda"), torch.full((1, 1, 2, 2), 99, device="cuda")
    assert unpool.max_unpool(x, indices, kernel_shape=[2, 2], strides=[2, 2]).isnan().all()
    with pytest.raises(IndicesError, match=r"from 0 to 15, got another at \[0, 0, 0, 0\]"):
        unpool.raise_pending()
    with pytest.raises(IndicesError, match="from 0 to 15"):
        unpool.max_unpool(x, indices, kernel_shape=[2, 2], strides=[2, 2], check="now")


def test_arrays_of_cupy():
    """Arrays of another library go in and come out."""
    cupy = pytest.importorskip("cupy", reason="CuPy is no dependency; its arrays are taken where it is installed")
    x = cupy.random.rand(1, 2, 8, 8).astype(cupy.float32)
    y = unpool.max_pool(x, kernel_shape=[2, 2], strides=[2, 2])
    assert isinstance(y, cupy.ndarray)
    assert (y == x.reshape(1, 2, 4, 2, 4, 2).max((3, 5))).all()


def test_more_than_two_to_the_31_elements():
    """Pool, unpool and grow a tensor whose places need 64 bits, and compare strips of it with torch's own."""
    if torch.cuda.get_device_properties(0).total_memory < 40 << 30:
        pytest.skip("needs 40 GiB of GPU memory")
    side = 33000
    x = torch.randint(-100, 100, (2, 1, side, side), device="cuda", dtype=torch.int8).to(torch.float16)
    y, indices = ours.max_pool2d(x, 2, return_indices=True)
    large = ours.max_unpool2d(y, indices, 2)
    grown = ours.conv_transpose2d(y[:1], torch.ones(1, 1, 2, 2, device="cuda", dtype=torch.float16), stride=2)
    assert x.numel() > 2**31
    for first in (0, 8000, 16000):
        small, strip = slice(first, first + 500), slice(2 * first, 2 * first + 1000)
        expected, places = theirs.max_pool2d(x[1:, :, strip], 2, return_indices=True)
        assert torch.equal(y[1:, :, small], expected)
        assert torch.equal(large[1:, :, strip], theirs.max_unpool2d(expected, places, 2))
        assert torch.equal(grown[:, :, strip], y[:1, :, small].repeat_interleave(2, 2).repeat_interleave(2, 3))
