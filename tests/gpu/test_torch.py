"""unpool.torch on a GPU, or in Triton's interpreter: values and gradients are torch's."""

import subprocess
import sys

import pytest
import torch

import unpool.torch as ours
from tests.support.gpu import DEVICE
from unpool import IndicesError
from unpool.execute.gpu import gradients as gpu_gradients
from unpool.execute.gpu import index_checks

theirs = torch.nn.functional
pytestmark = pytest.mark.usefixtures("on_gpu")


def leaf(*shape, dtype=torch.float32):
    """Small integers, which are added without rounding, so that the order of sums does not matter."""
    return torch.randint(-8, 9, shape, device=DEVICE).to(dtype).requires_grad_()


def gradients(y, *inputs):
    """The gradients of a weighted sum of y."""
    weights = torch.arange(y.numel(), device=DEVICE).view(y.shape) % 7 - 3.0
    return torch.autograd.grad((y * weights.to(y.dtype)).sum(), inputs, retain_graph=True)


@pytest.mark.sample(4)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("size", "stride", "padding", "dilation"), [(2, 2, 0, 1), (3, 2, 1, 1), (2, 1, 0, 3)])
def test_pools_and_their_gradients(size, stride, padding, dilation, memory_format):
    """Values, indices and gradients of a pool, windows side by side, overlapping and with gaps."""
    x = torch.randperm(2 * 3 * 9 * 10, device=DEVICE).view(2, 3, 9, 10).float()
    x = x.to(memory_format=memory_format).requires_grad_()
    window = (size, stride, padding, dilation)
    y, indices = ours.max_pool2d(x, *window, return_indices=True)
    expected, places = theirs.max_pool2d(x, *window, return_indices=True)
    assert torch.equal(y, expected)
    assert torch.equal(indices, places)
    assert y.stride() == expected.stride()
    assert torch.equal(*gradients(y, x), *gradients(expected, x))
    assert torch.equal(*gradients(ours.max_pool2d(x, *window), x), *gradients(expected, x))


def test_unpooling_and_its_gradients():
    """A round trip, differentiated twice; sums of the second gradient are sorted by index."""
    x = torch.randperm(2 * 2 * 8 * 6, device=DEVICE).view(2, 2, 8, 6).float()
    y, indices = theirs.max_pool2d(x, 2, return_indices=True)
    y.requires_grad_()
    results = []
    for module in (ours, theirs):
        large = module.max_unpool2d(y * y, indices, 2)
        (first,) = torch.autograd.grad((large * large).sum(), y, create_graph=True)
        results.append((large, first, *torch.autograd.grad(first.sum(), y)))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_the_last_of_equal_indices_wins():
    """Wherever indices point, the element that is last in row-major order stays; equal ones add their gradients."""
    x = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]], device=DEVICE)
    indices = torch.tensor([[[6, 0, 6, 0]]], device=DEVICE)
    assert gpu_gradients.max_unpool(x, indices, (8,)).flatten().tolist() == [4, 0, 0, 0, 0, 0, 3, 0]
    assert gpu_gradients.max_pool_backward(x, indices, (8,)).flatten().tolist() == [6, 0, 0, 0, 0, 0, 4, 0]
    assert gpu_gradients.max_unpool_backward(x, torch.tensor([[[3, -1]]], device=DEVICE)).tolist() == [[[4, 0]]]


def test_wrong_indices_are_reported_later_or_now():
    """Nothing outside is written, the result is NaN, and the error comes when it is asked for."""
    x = torch.ones(1, 1, 2, device=DEVICE)
    indices = torch.tensor([[[0, 4]]], device=DEVICE)
    assert gpu_gradients.max_unpool(x, indices, (4,)).isnan().all()
    with pytest.raises(IndicesError, match=r"from 0 to 3 in their own plane, got another at \[0, 0, 1\]"):
        index_checks.raise_pending()
    index_checks.raise_pending()
    with pytest.raises(IndicesError, match="max_unpool"):
        gpu_gradients.max_unpool(x, indices, (4,), check="now")


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_transposed_convolution(dtype):
    """Values and gradients of a convolution with groups of several channels."""
    x, w, b = leaf(2, 16, 3, 4, dtype=dtype), leaf(16, 9, 3, 3, dtype=dtype), leaf(9, dtype=dtype)
    setting = {"stride": 2, "padding": 1, "output_padding": 1}
    y, expected = (module.conv_transpose2d(x, w, b, **setting) for module in (ours, theirs))
    torch.testing.assert_close(y, expected.float().to(dtype), rtol=0, atol=0 if dtype == torch.float32 else 8)
    for got, wanted in zip(gradients(y, x, w, b), gradients(expected, x, w, b), strict=True):
        torch.testing.assert_close(got, wanted)


def test_modules_are_accelerated():
    """A network whose modules run on unpool gives what it gave."""
    net = torch.nn.Sequential(torch.nn.MaxPool2d(2), torch.nn.ConvTranspose2d(3, 2, 2, stride=2)).to(DEVICE)
    x = torch.rand(1, 3, 6, 6, device=DEVICE)
    expected = net(x)
    ours.accelerate(net)
    torch.testing.assert_close(net(x), expected)


def test_operators_have_kernels_for_cuda():
    """Every operator is registered for CUDA, so that a tensor there finds it."""
    for name in ("max_pool", "max_pool_with_indices", "max_pool_backward", "max_unpool", "conv_transpose"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"unpool::{name}", "CUDA")


def test_shapes_on_cuda_are_traced_without_it():
    """Fake tensors on CUDA go through all operators, as torch.compile needs it: shapes, types and devices."""
    with torch._subclasses.FakeTensorMode():
        x = torch.empty(2, 8, 9, 9, device="cuda", dtype=torch.float16)
        y, indices = ours.max_pool2d(x, 3, 2, return_indices=True)
        back = ours.max_unpool2d(y, indices, 3, 2)
        grown = ours.conv_transpose2d(y, torch.empty(8, 4, 2, 2, device="cuda", dtype=torch.float16), stride=2)
    assert (y.device.type, indices.dtype, back.shape, grown.shape) == (
        "cuda", torch.int64, (2, 8, 9, 9), (2, 4, 8, 8),
    )  # fmt: skip


@pytest.mark.parametrize("package", ["torch", "triton"])
def test_a_missing_package_is_named(package):
    """Without torch or Triton one error says what to install."""
    code = f"import sys; sys.modules[{package!r}] = None; import unpool.kernels.gpu"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"{package} is not installed. In a clone of unpool, run: pip install '.[gpu]'" in done.stderr


@pytest.mark.slow
def test_users_of_the_cpu_import_no_triton():
    """Calls on arrays load nothing of it, and those on tensors of the CPU none of our kernels; torch may load it."""
    code = (
        "import sys, numpy as np, unpool; x = np.ones((1, 1, 2, 2), np.float32);"
        "unpool.max_pool(x, kernel_shape=[2, 2]); early = 'triton' in sys.modules;"
        "import torch, unpool.torch; unpool.torch.max_pool2d(torch.from_numpy(x), 2);"
        "print(early, [name for name in sys.modules if name.startswith(('unpool.kernels.gpu', 'unpool.execute.gpu'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False []"
