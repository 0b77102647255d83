"""The translation table in torch's own exporter: one MaxPool and one MaxUnpool per level, and torch's numbers."""

import onnxruntime
import pytest
import torch

import unpool
from tests.cases.exports import CASES, ExportCase, RoundTrip, noise
from tests.support import networks
from tests.support.export_judge import difference_of, fault_of
from unpool.torch import translation_table

OPSET = 18
NAMES = (
    "1-D round trip", "1-D round trip, odd size", "2-D round trip, k3s2p1, output_size", "2-D round trip, k3s1p1",
    "2-D round trip, k3s2p1, ceil_mode", "2-D round trip, k2s1p1 grows", "2-D round trip without a batch",
    "3-D round trip, k3s2p1", "1-D round trip, any batch and size", "3-D round trip, any batch and size",
    "2-D round trip without output_size, any batch and size",
)  # fmt: skip
"""Of the cases of `unpool.torch.export`, which the matrix of docs/export.md has in all opsets."""


def check(case):
    """The file has the operators that the case counts, and onnxruntime and unpool give exactly what torch gives."""
    shapes = ({axis: f"d{axis}" for axis in case.dynamic},) if case.dynamic else None
    model = networks.export(case.module(), *case.inputs, opset=OPSET, dynamic_shapes=shapes)
    assert fault_of(case, model, OPSET) is None
    data = model.SerializeToString()
    for session in (onnxruntime.InferenceSession(data), unpool.InferenceSession(data)):
        assert difference_of(case, model, session) is None


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", NAMES)
def test_round_trip_is_one_max_pool_and_one_max_unpool(name):
    """A pool with indices is one MaxPool, an unpooling one MaxUnpool, whatever is open, and the results are torch's."""
    check(CASES[name])


def test_static_window_keeps_the_stride_of_the_pool():
    """A ceil_mode pool from 31 to 16 has stride 2, and so has its unpooling; only the window is fitted."""
    network = RoundTrip(2, True, 2, ceil_mode=True)
    model = networks.export(network, torch.zeros(1, 1, 31, 32))
    (node,) = (node for node in model.graph.node if node.op_type == "MaxUnpool")
    attributes = {attribute.name: list(attribute.ints) for attribute in node.attribute}
    assert attributes == {"kernel_shape": [1, 2], "strides": [2, 2], "pads": [0, 0, 0, 0]}


@pytest.mark.sample(4)
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, 2, 0), (3, 2, 1), (3, 3, 1), (2, 3, 0)])
def test_dynamic_sizes_under_ceil_mode(kernel, stride, padding):
    """The window never infers more than the pool's input, which onnxruntime would refuse."""
    x = noise(1, 2, 14, 17)
    others = tuple((x[:, :, :size, : size + 1],) for size in (8, 9, 10, 11))
    window = (kernel, stride, padding)
    check(ExportCase("", lambda: RoundTrip(2, True, *window, ceil_mode=True), (x,), 1, 1, 1, 0, (2, 3), others))


def test_opset_without_max_unpool_is_refused():
    """Below opset 9 there is no MaxUnpool to write."""
    with pytest.raises(unpool.errors.UnsupportedError, match=r"at least 9, .* got 8"):
        translation_table(8)
