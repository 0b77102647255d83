"""Transposed convolutions to few maps, whose phases are computed together, against sums in float64."""

import pytest
import torch

import unpool
from tests.support.gpu import DEVICE, routed

pytestmark = pytest.mark.slow

CASES = {  # shape of x, maps, window, stride, padding, output padding, groups
    "one map": ((2, 9, 12), 1, 8, 4, 3, 2, 1),
    "three maps, as of an image": ((1, 16, 5, 4), 3, 4, 2, 1, 0, 1),
    "16 maps": ((2, 16, 5, 6), 16, 2, 2, 0, 0, 1),
    "groups": ((2, 16, 3, 5), 4, 4, 2, 1, 1, 2),
    "more padding than stride": ((1, 8, 5, 4), 3, 4, 2, 3, 0, 1),
    "windows that no two share": ((3, 12, 2, 1), 7, 4, 4, 0, 0, 1),
    "three axes": ((1, 8, 3, 3, 2), 2, 2, 2, 0, 0, 1),
    "long windows": ((1, 9, 4, 3), 5, 6, 3, 2, 0, 1),
}
TOLERANCE = {"float32": 1e-6, "float16": 2e-3, "bfloat16": 1e-2}


def arguments(case, kind):
    """Random tensors of a case, and its attributes."""
    shape, maps, window, stride, padding, more, groups = CASES[case]
    torch.manual_seed(0)
    dtype, rank = getattr(torch, kind), len(shape) - 2
    tensors = torch.randn(shape), torch.randn(shape[1], maps // groups, *[window] * rank), torch.randn(maps)
    settings = stride, padding, more, groups
    return [each.to(dtype).to(DEVICE) for each in tensors], settings


def both(tensors, settings, layout="NCHW"):
    """The result of unpool, and that of PyTorch in float64."""
    rank, (stride, padding, more, groups) = tensors[0].dim() - 2, settings
    lists = {"strides": [stride] * rank, "pads": [padding] * 2 * rank, "output_padding": [more] * rank}
    with routed():
        y = unpool.conv_transpose(*tensors, **lists, group=groups, layout=layout)
    x = tensors[0] if layout == "NCHW" else tensors[0].movedim(-1, 1)
    reference = getattr(torch.nn.functional, f"conv_transpose{rank}d")
    return y, reference(x.double(), *[each.double() for each in tensors[1:]], *settings)


@pytest.mark.parametrize("kind", TOLERANCE)
@pytest.mark.parametrize("case", CASES)
def test_sums(case, kind):
    """All positions of all phases, up to the edges of y."""
    y, expected = both(*arguments(case, kind))
    assert y.shape == expected.shape
    assert (y.double() - expected).abs().max() <= TOLERANCE[kind] * expected.abs().max()


def test_channels_last():
    """X is read, and y written, in this order of memory."""
    (x, *others), settings = arguments("16 maps", "float32")
    y, expected = both((x.movedim(1, -1).contiguous(), *others), settings, "NHWC")
    torch.testing.assert_close(y.movedim(-1, 1).double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_infinite_weights(case):
    """They meet no padding: what is finite in the sums stays finite."""
    (x, w, b), settings = arguments(case, "float32")
    w[0, 0].view(-1)[0] = float("inf")
    y, expected = both((x, w, b), settings)
    assert torch.equal(y.isfinite(), expected.isfinite())
