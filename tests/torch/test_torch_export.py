"""The translation table: one MaxPool and one MaxUnpool per level, and torch's numbers in every runtime."""

from collections import Counter
from functools import cache

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

import unpool
from tests.cases.exports import RoundTrip
from tests.support import networks
from unpool.torch import translation_table


class Indices(nn.Module):
    """The indices of a pool alone."""

    def __init__(self, rank):
        super().__init__()
        self.pool = getattr(nn, f"MaxPool{rank}d")(3, 2, 1, return_indices=True)

    def forward(self, x):
        return self.pool(x)[1]


CASES = {
    "1-D": (RoundTrip(1, False, 2), (2, 3, 8)),
    "1-D odd, sized": (RoundTrip(1, True, 2), (2, 3, 7)),
    "1-D k3s2p1": (RoundTrip(1, True, 3, 2, 1), (2, 3, 7)),
    "2-D": (RoundTrip(2, False, 2), (2, 3, 8, 6)),
    "2-D odd, sized": (RoundTrip(2, True, 2), (2, 3, 7, 9)),
    "2-D k3s2p1": (RoundTrip(2, True, 3, 2, 1), (2, 3, 7, 9)),
    "2-D k3s1p1": (RoundTrip(2, True, 3, 1, 1), (2, 3, 5, 7)),
    "2-D k3s2p1 ceil": (RoundTrip(2, True, 3, 2, 1, ceil_mode=True), (2, 3, 8, 9)),
    "2-D ceil": (RoundTrip(2, True, 2, ceil_mode=True), (2, 3, 5, 7)),
    "2-D grown by padding": (RoundTrip(2, True, 2, 1, 1), (2, 3, 5, 7)),
    "2-D without a batch": (RoundTrip(2, True, 2), (3, 7, 9)),
    "3-D": (RoundTrip(3, False, 2), (2, 3, 4, 6, 8)),
    "3-D odd, sized": (RoundTrip(3, True, 2), (2, 3, 5, 7, 9)),
    "3-D k3s2p1": (RoundTrip(3, True, 3, 2, 1), (2, 3, 5, 7, 9)),
    "1-D indices": (Indices(1), (2, 3, 7)),
    "2-D indices": (Indices(2), (2, 3, 7, 5)),
    "3-D indices": (Indices(3), (2, 3, 5, 7, 3)),
}


@cache
def exported(case):
    """The network of a case, its input, its model."""
    network, shape = CASES[case]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    return network, x, networks.export(network, x)


def assert_runtimes_agree(model, network, x):
    """Onnxruntime and unpool give exactly what torch gives."""
    expected = network(x).numpy()
    data = model.SerializeToString()
    for session in (onnxruntime.InferenceSession(data), unpool.InferenceSession(data)):
        (y,) = session.run(None, {"x": x.numpy()})
        np.testing.assert_array_equal(y, expected)


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", CASES)
def test_round_trip_is_one_max_pool_and_one_max_unpool(case):
    """A pool with indices is one MaxPool, an unpooling one MaxUnpool, and the results are torch's."""
    network, x, model = exported(case)
    onnx.checker.check_model(model, full_check=True)
    counts = Counter(node.op_type for node in model.graph.node)
    assert counts["MaxPool"] == 1
    assert counts["MaxUnpool"] == isinstance(network, RoundTrip)
    assert not counts.keys() & {"ScatterND", "Slice", "Loop"}
    assert_runtimes_agree(model, network, x)


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", [name for name in CASES if "indices" not in name])
def test_static_window_infers_the_output_shape(case):
    """With static sizes MaxUnpool needs no output_shape: its window says it, and onnx infers it."""
    _, _, model = exported(case)
    (node,) = (node for node in model.graph.node if node.op_type == "MaxUnpool")
    assert len(node.input) == 2
    bare = onnx.helper.make_graph(model.graph.node, "bare", model.graph.input, [onnx.ValueInfoProto(name="y")])
    bare.initializer.extend(model.graph.initializer)
    inferred = onnx.shape_inference.infer_shapes(onnx.helper.make_model(bare, opset_imports=model.opset_import))
    assert inferred.graph.output[0].type.tensor_type.shape == model.graph.output[0].type.tensor_type.shape


def test_static_window_keeps_the_stride_of_the_pool():
    """A ceil_mode pool from 31 to 16 has stride 2, and so has its unpooling; only the window is fitted."""
    network = RoundTrip(2, True, 2, ceil_mode=True)
    model = networks.export(network, torch.zeros(1, 1, 31, 32))
    (node,) = (node for node in model.graph.node if node.op_type == "MaxUnpool")
    attributes = {attribute.name: list(attribute.ints) for attribute in node.attribute}
    assert attributes == {"kernel_shape": [1, 2], "strides": [2, 2], "pads": [0, 0, 0, 0]}


@pytest.mark.sample(3)
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("sized", [False, True])
def test_dynamic_batch_and_sizes(rank, sized):
    """One file serves every batch and size; the window is the pool's, output_shape says the size."""
    network = RoundTrip(rank, sized, 2)
    x = torch.randn(2, 3, *[8, 6, 10][:rank])
    model = networks.export(network, x, dynamic_shapes=({axis: f"d{axis}" for axis in (0, *range(2, rank + 2))},))
    assert sum(node.op_type == "MaxUnpool" for node in model.graph.node) == 1
    assert_runtimes_agree(model, network, x)
    larger = [11, 7, 13] if sized else [12, 8, 14]
    assert_runtimes_agree(model, network, torch.randn(3, 3, *larger[:rank]))


@pytest.mark.sample(4)
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, 2, 0), (3, 2, 1), (3, 3, 1), (2, 3, 0)])
def test_dynamic_sizes_under_ceil_mode(kernel, stride, padding):
    """The window never infers more than the pool's input, which onnxruntime would refuse."""
    network = RoundTrip(2, True, kernel, stride, padding, ceil_mode=True)
    x = torch.randn(1, 2, 14, 17, generator=torch.Generator().manual_seed(3))
    model = networks.export(network, x, dynamic_shapes=({2: "height", 3: "width"},))
    for size in (8, 9, 10, 11):
        assert_runtimes_agree(model, network, x[:, :, :size, : size + 1])


def test_opset_without_max_unpool_is_refused():
    """Below opset 9 there is no MaxUnpool to write."""
    with pytest.raises(unpool.errors.UnsupportedError, match=r"at least 9, .* got 8"):
        translation_table(8)
