"""Small calls are torch's own: of which both give the same, and with our errors."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

import unpool.torch as ours
from unpool.torch.ops.arguments import ArgumentError, TensorIndicesError


@pytest.fixture(autouse=True)
def _calls_are_ours():
    """In this file they are whose they are."""


def made_by(y):
    """The operator that autograd recorded."""
    return y.grad_fn.name()


def test_small_calls_are_recorded_by_torch():
    """Of plain tensors; those that ours may answer otherwise, or faster, are ours, and so are larger ones."""
    x, weight = torch.randn(1, 4, 6, 6, requires_grad=True), torch.randn(4, 2, 2, 2, requires_grad=True)
    y, indices = ours.max_pool2d(x, [2, 2], return_indices=True)
    torch.testing.assert_close((y, indices), F.max_pool2d(x, 2, return_indices=True), rtol=0, atol=0)
    assert made_by(y) == "MaxPool2DWithIndicesBackward0"
    assert made_by(ours.max_unpool2d(y, indices, 2)) == "MaxUnpool2DBackward0"
    assert made_by(ours.conv_transpose2d(x, weight, None, 2)) == "ConvolutionBackward0"

    many = torch.randn(64, 8, 64, 64, requires_grad=True)
    others = [
        ours.max_pool2d(x, 2, padding=1),
        ours.max_pool2d(x, 2, ceil_mode=True),
        ours.max_pool2d(x.bfloat16(), 2),
        ours.max_pool2d(x.transpose(2, 3), 2),
        ours.max_pool2d(many, 2),
        ours.conv_transpose2d(many, torch.randn(8, 8, 2, 2), None, 2),
    ]
    assert {made_by(each) for each in others} == {"RecordedBackward"}


def test_errors_of_small_calls_are_ours():
    """Whatever is wrong is said as for larger calls."""
    x = torch.randn(1, 4, 6, 6)
    y, indices = F.max_pool2d(x, 2, return_indices=True)
    with pytest.raises(ArgumentError, match="kernel_size"):
        ours.max_pool2d(x, 0)
    with pytest.raises(TensorIndicesError, match="0 to 35"):
        ours.max_unpool2d(y, indices + 30, 2)
    with pytest.raises(ArgumentError, match="output_size"):
        ours.max_unpool2d(y, indices, 2, output_size=(12, 12))
    with pytest.raises(ArgumentError, match="groups"):
        ours.conv_transpose2d(x, torch.randn(4, 2, 2, 2), groups=3)


def test_unpooling_works_where_all_is_to_be_deterministic():
    """Torch's own refuses then."""
    y, indices = F.max_pool2d(torch.randn(1, 4, 6, 6), 2, return_indices=True)
    expected = F.max_unpool2d(y, indices, 2)
    torch.use_deterministic_algorithms(True)
    try:
        found = ours.max_unpool2d(y, indices, 2)
    finally:
        torch.use_deterministic_algorithms(False)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
