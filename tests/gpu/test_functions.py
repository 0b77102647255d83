"""Public functions on tensors of a GPU, or in Triton's interpreter, beside the operators themselves."""

import numpy as np
import pytest
import torch

import unpool
from tests.support.gpu import DEVICE
from unpool import IndicesError, UnpoolError

pytestmark = pytest.mark.usefixtures("on_gpu")


def test_indices_are_renumbered_on_the_device():
    """From planes to the whole tensor and back, as on the CPU; -1 stays."""
    planes = np.array([[[0, 3, -1], [5, 2, 4]], [[1, -1, 0], [5, 5, 3]]])
    on_device = torch.from_numpy(planes).to(DEVICE)
    whole = unpool.to_onnx_indices(on_device, [6])
    assert whole.device.type == DEVICE
    assert np.array_equal(whole.cpu().numpy(), unpool.to_onnx_indices(planes, [6]))
    assert torch.equal(unpool.to_torch_indices(whole, [6]), on_device)
    assert unpool.to_onnx_indices(on_device[:0], [6]).shape == (0, 2, 3)
    unpool.raise_pending()


@pytest.mark.parametrize(("name", "bad"), [("to_onnx_indices", 6), ("to_torch_indices", 18)])
def test_indices_outside_their_plane_are_told_later(name, bad):
    """The result has -1 there, and the error is the CPU's, once somebody waits."""
    indices = torch.tensor([[[0, bad]], [[6, 7]]] if name == "to_torch_indices" else [[[0, bad]]], device=DEVICE)
    with pytest.raises(IndicesError) as expected:
        getattr(unpool, name)(indices.cpu().numpy(), [6])
    assert getattr(unpool, name)(indices, [6])[0, 0].tolist() == [0, -1]
    with pytest.raises(IndicesError) as caught:
        unpool.raise_pending()
    assert str(caught.value) == str(expected.value)
    unpool.raise_pending()


def test_wrong_arguments_are_told_at_once():
    """What is wrong with type and rank needs no look at the device's memory."""
    with pytest.raises(UnpoolError, match="i expects int64"):
        unpool.to_onnx_indices(torch.zeros(1, 1, 2, device=DEVICE), [2])
    with pytest.raises(UnpoolError, match="i needs rank 3 or more"):
        unpool.to_torch_indices(torch.zeros(2, dtype=torch.int64, device=DEVICE), [2])


def test_prepared_weights(monkeypatch):
    """A prepared convolution gives what the plain one gives, packs its weights once, and owns them."""
    x, w = torch.rand(1, 8, 3, device=DEVICE), torch.rand(8, 4, 3, device=DEVICE)
    b = torch.rand(8, device=DEVICE)
    expected = unpool.conv_transpose(x, w, b, strides=[2], group=2)
    prepared = unpool.prepare_conv_transpose(w, strides=2, group=2)
    w.zero_()
    monkeypatch.setattr("unpool.execute.gpu.conv_kernels.packer", lambda *_: None)  # a second packing would fail
    assert torch.equal(prepared(x[..., :2], b)[..., :4], expected[..., :4])
    assert torch.equal(prepared(x[..., :1], b)[..., :2], expected[..., :2])


def test_a_second_call_is_not_resolved_again(monkeypatch):
    """Arguments of the same values, and tensors of the same shapes and types: only the kernels run."""
    x, w = torch.rand(1, 3, 6, 6, device=DEVICE), torch.rand(3, 2, 2, 2, device=DEVICE)

    def calls():
        y, indices = unpool.max_pool(x, kernel_shape=[2, 2], strides=[2, 2], return_indices=True)
        large = unpool.max_unpool(y, indices, [1, 3, 6, 6], kernel_shape=[2, 2], strides=[2, 2])
        return y, indices, large, unpool.conv_transpose(x, w, strides=[2, 2])

    first = calls()
    monkeypatch.setattr("unpool.calls.spec_of", lambda *_: pytest.fail("a call was resolved again"))
    assert all(map(torch.equal, calls(), first))


def test_a_known_call_still_checks_what_a_key_cannot():
    """Threads, the memory of `out`, gradients and wrong indices are errors in the second call, too."""
    x = torch.rand(1, 1, 4, device=DEVICE)
    pool = {"kernel_shape": [2], "strides": [2]}
    y = unpool.max_pool(x, **pool)
    unpool.max_unpool(y, torch.zeros(1, 1, 2, dtype=torch.int64, device=DEVICE), **pool)
    for given, more, says in (
        (x, {"threads": 0}, "threads is None or an int"),
        (x, {"out": torch.empty(1, 1, 3, device=DEVICE)}, "out for Y needs shape"),
        (x.clone().requires_grad_(), {}, "expects a tensor without gradient"),
    ):
        with pytest.raises(UnpoolError, match=says):
            unpool.max_pool(given, **pool, **more)
    wrong = torch.full((1, 1, 2), 9, device=DEVICE)
    with pytest.raises(IndicesError):
        unpool.max_unpool(y, wrong, **pool, check="now")
    unpool.max_unpool(y, wrong, **pool)
    with pytest.raises(IndicesError):
        unpool.raise_pending()
