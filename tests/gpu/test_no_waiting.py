"""Nothing on the way to a kernel waits for the device or asks it for a number, as CUDA graphs need it."""

from collections import deque

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import unpool
import unpool.torch as ours
from tests.support.gpu import DEVICE
from unpool.execute.gpu import index_checks

WAITING = {"_local_scalar_dense", "item", "equal", "nonzero", "masked_select", "unique_dim", "_unique2", "is_nonzero"}
"""Operators of torch whose result, or the size of it, the host has to wait for."""

pytestmark = pytest.mark.usefixtures("on_gpu")


class NothingWaits(TorchDispatchMode):
    """Refuses operators that wait, and copies from the device to the host."""

    def __torch_dispatch__(self, operator, types, arguments=(), named=None):
        name = operator.overloadpacket.__name__
        assert name not in WAITING, f"{name} waits for the device"
        assert not (name == "_to_copy" and torch.device((named or {}).get("device") or DEVICE).type != DEVICE)
        return operator(*arguments, **(named or {}))


def step():
    x = torch.rand(1, 8, 4, 4, device=DEVICE, requires_grad=True)
    w = torch.rand(8, 8, 2, 2, device=DEVICE, requires_grad=True)
    y, indices = ours.max_pool2d(x, 2, return_indices=True)
    large = ours.conv_transpose2d(ours.max_unpool2d(y, indices, 2), w)
    large.backward(torch.ones_like(large))


def calls():
    x = torch.rand(1, 2, 4, device=DEVICE)
    y, indices = unpool.max_pool(x, kernel_shape=[2], strides=[2], return_indices=True)
    whole = unpool.to_onnx_indices(unpool.to_torch_indices(indices, [4]), [4])
    unpool.max_unpool(y, whole, list(x.shape), kernel_shape=[2], strides=[2])
    unpool.conv_transpose(x, torch.rand(2, 2, 2, device=DEVICE))


@pytest.mark.parametrize("work", [step, calls])
def test_nothing_waits(work, monkeypatch):
    """No operator that waits is called, by the functions of torch or by our own; results of checks are not read."""
    for module in ("gpu", "gpu.gradients", "gpu.index_checks"):
        monkeypatch.setattr(f"unpool.execute.{module}.raise_or_defer", lambda *_: None)
    for name in ("item", "cpu", "tolist", "numpy"):
        monkeypatch.setattr(torch.Tensor, name, lambda *_, name=name: pytest.fail(f"{name} waits for the device"))
    for name in ("synchronize", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, lambda *_, name=name: pytest.fail(f"torch.cuda.{name} was called"))
    with NothingWaits():
        work()


def test_what_waits_is_seen():
    """The mode above refuses what it is there to refuse."""
    x = torch.ones(1, device=DEVICE)
    with pytest.raises(AssertionError, match="_local_scalar_dense waits"), NothingWaits():
        x.item()


def test_no_event_is_asked_while_a_graph_is_captured(monkeypatch):
    """CUDA ends a capture where anybody asks about an event: results of earlier calls are awaited later."""

    class Event:
        def query(self):
            pytest.fail("an event was asked")

    earlier = index_checks._PendingCheck(torch.zeros(1), Event(), lambda _: None)
    monkeypatch.setattr(index_checks, "_pending", deque([earlier]))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    index_checks.raise_known()
    assert list(index_checks._pending) == [earlier]
