"""Small calls are torch's own: of which both give the same, and with our errors."""

import io

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

import unpool.torch as ours
from unpool.torch.ops import conv_transpose
from unpool.torch.ops.arguments import ArgumentError, TensorIndicesError
from unpool.torch.ops.eager_fallback import Thresholds


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
    assert {made_by(each) for each in others} == {"KernelCallBackward"}


@pytest.fixture
def _no_call_is_too_small(monkeypatch):
    """The choice by shape, for calls of any size."""
    monkeypatch.setattr(conv_transpose, "DISJOINT_WINDOWS", Thresholds(0, 0))
    monkeypatch.setattr(conv_transpose, "LARGE_WINDOWS", Thresholds(0, 0))


WEIGHTS_LARGER_THAN_WINDOWS = {
    "overlapping": ((2, 64, 2, 3), (64, 4, 4, 4), (2, 1, 0, 1, 1)),
    "output padding": ((1, 32, 3, 3), (32, 4, 3, 3), ((2, 1), (1, 0), (1, 0), 1, 1)),
    "disjoint": ((2, 64, 3, 3), (64, 4, 2, 2), (2, 0, 0, 1, 1)),
    "groups": ((1, 64, 3, 3), (64, 4, 5, 4), (2, 1, 0, 2, 1)),
    "one axis": ((1, 64, 9), (64, 2, 16), (4, 3, 0, 1, 1)),
    "a volume": ((1, 64, 2, 3, 3), (64, 2, 3, 3, 2), (2, 1, 0, 1, 1)),
}


@pytest.mark.usefixtures("_no_call_is_too_small")
@pytest.mark.parametrize("case", WEIGHTS_LARGER_THAN_WINDOWS)
@pytest.mark.parametrize("needed", [(True, True), (True, False), (False, True)])
def test_training_with_weights_larger_than_windows(case, needed):
    """The result is torch's, bit by bit; the gradients are products, and can be differentiated again."""
    shape, weights, settings = WEIGHTS_LARGER_THAN_WINDOWS[case]
    x = torch.randn(shape, dtype=torch.float64, requires_grad=needed[0])
    weight = torch.randn(weights, dtype=torch.float64, requires_grad=needed[1])
    bias = torch.randn(weights[1] * settings[3], dtype=torch.float64, requires_grad=True)
    name, leaves = f"conv_transpose{x.dim() - 2}d", [each for each in (x, weight, bias) if each.requires_grad]
    y, expected = (getattr(module, name)(x, weight, bias, *settings) for module in (ours, F))
    assert made_by(y) == "KernelCallBackward"
    torch.testing.assert_close(y, expected, rtol=0, atol=0)
    grad = torch.randn_like(y)
    found, wanted = (torch.autograd.grad(each, leaves, grad, create_graph=True) for each in (y, expected))
    torch.testing.assert_close(found, wanted)
    if all(needed):
        second = [torch.autograd.grad(each[0].square().sum(), weight)[0] for each in (found, wanted)]
        torch.testing.assert_close(*second)


@pytest.mark.usefixtures("_no_call_is_too_small")
def test_other_training_by_shape():
    """Torch computes all of a layer whose windows overlap and outnumber its weights, unpool's kernel large windows."""

    def maker(x, weight, *settings):
        return made_by(ours.conv_transpose2d(torch.randn(x, requires_grad=True), torch.randn(weight), None, *settings))

    assert maker((1, 8, 6, 6), (8, 8, 4, 4), 2, 1) == "ConvolutionBackward0"
    assert maker((1, 64, 2, 2), (64, 8, 2, 2), 1, 0, 0, 1, 2) == "ConvolutionBackward0"  # dilated
    assert maker((1, 8, 6, 6), (8, 8, 16, 16), 8, 4) == "KernelCallBackward"
    assert maker((1, 8, 6, 6), (8, 8, 2, 2), 2) == "KernelCallBackward"


@pytest.mark.usefixtures("_no_call_is_too_small")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [((None, 1, 0, 0, 3), "groups"), ((torch.ones(5),), "bias needs the shape"), ((None, 2, 0, 2), "output_padding")],
)
def test_errors_of_training_are_ours(arguments, says):
    """Also where torch computes the result."""
    x, weight = torch.randn(1, 64, 2, 2, requires_grad=True), torch.randn(64, 4, 4, 4)
    with pytest.raises(ArgumentError, match=says):
        ours.conv_transpose2d(x, weight, *arguments)


def test_errors_of_small_calls_are_ours():
    """Whatever is wrong is said as for larger calls; `test_wrong_arguments` has more."""
    x = torch.randn(1, 4, 6, 6)
    y, indices = F.max_pool2d(x, 2, return_indices=True)
    ours.max_pool2d(x, 2)
    with pytest.raises(ArgumentError, match=r"kernel_size needs an int or 2 ints, got 2\.0"):
        ours.max_pool2d(x, 2.0)  # which equals the size of the call before
    with pytest.raises(TensorIndicesError, match="0 to 35"):
        ours.max_unpool2d(y, indices + 30, 2)


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


FAMILIES = [f"{family}{rank}d" for family in ("max_pool", "max_unpool", "conv_transpose") for rank in (1, 2, 3)]


@pytest.fixture
def _ours_in_torch(monkeypatch):
    """Every function of ours has the place of torch's."""
    for name in FAMILIES:
        monkeypatch.setattr(F, name, getattr(ours, name))


@pytest.mark.usefixtures("_ours_in_torch")
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_functions_of_torch_may_be_replaced_by_ours(rank):
    """With ours in torch.nn.functional, small calls compute as before: by function, and by module."""
    x = torch.randn(2, 2, *[4] * rank)
    aten = torch.ops.aten
    pool = getattr(aten, f"max_pool{max(rank, 2)}d_with_indices")
    expected = pool(x, [2] * rank, [2] * rank) if rank > 1 else pool(x.unsqueeze(2), [1, 2], [1, 2])
    y, indices = getattr(F, f"max_pool{rank}d")(x, 2, return_indices=True)
    torch.testing.assert_close((y, indices), tuple(each.view_as(y) for each in expected), rtol=0, atol=0)
    back = getattr(F, f"max_unpool{rank}d")(y, indices, 2)
    assert torch.equal(back, getattr(torch.nn, f"MaxUnpool{rank}d")(2)(y, indices))
    assert torch.equal(y, getattr(torch.nn, f"MaxPool{rank}d")(2)(x))
    grown = getattr(torch.nn, f"ConvTranspose{rank}d")(2, 2, 2, 2)
    expected = aten.convolution(x, grown.weight, grown.bias, [2] * rank, [0] * rank, [1] * rank, True, [0] * rank, 1)
    torch.testing.assert_close(grown(x), expected)


@pytest.mark.usefixtures("_ours_in_torch")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_export_with_functions_of_torch_replaced():
    """The exporter without dynamo sees torch's operators then, too."""
    content = io.BytesIO()
    torch.onnx.export(torch.nn.MaxPool2d(2), (torch.randn(1, 1, 4, 4),), content, dynamo=False)
    assert b"MaxPool" in content.getvalue()
