"""Files that `unpool.torch.export` writes are lowered for every target, with torch's numbers.

All cells of the matrix: `python -m tools.campaigns.lower_matrix`.
"""

import numpy as np
import pytest
import torch

import unpool
import unpool.torch
from tests.cases.exports import CASES, RoundTrip
from tests.support import models
from tests.support.export_judge import exported
from tools.campaigns.lower_matrix import Cell, fault

CELLS = [
    Cell(1, 2, "both", True, 18, "openvino"),
    Cell(2, 1, "both", False, 13, "any"),
    Cell(1, 1, "width", False, 9, "tensorrt"),
    Cell(1, 0, "height", True, 9, "tflite"),
    Cell(1, 2, "none", False, 11, "coreml"),
]


@pytest.mark.sample(5)
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_what_export_writes_is_lowered_by_comparing(cell):
    """No scatter, nothing for `unpool check` to find, and torch's bits in other runtimes at odd sizes."""
    assert fault(cell) == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dynamo", "opset"), [("1-D round trip, any batch and size", True, 18), ("ENet", False, 18)]
)
def test_sizes_are_followed_through_more_operators(name, dynamo, opset):
    """An unpooling of torch in one dimension is one in two; the older exporter writes a Pad with seven nodes."""
    lowered = unpool.lower(exported(CASES[name], dynamo, opset), "openvino")
    operators = {node.op_type for node in lowered.model.graph.node}
    assert not operators & {"MaxUnpool", "ScatterElements"}
    assert [one.reason for one in lowered.checks] == [""] * len(lowered.checks)


def test_multiples_of_a_dim_need_no_output_size(tmp_path):
    """With sizes 2 * half the default size of an unpooling is the size that was pooled."""
    half = torch.export.Dim("half", min=2)
    path, x = tmp_path / "even.onnx", torch.rand(1, 1, 6, 8)
    module = RoundTrip(2, False, 2).eval()
    unpool.torch.export(module, (x,), path, dynamic_shapes=({2: 2 * half},), verbose=False)
    (change,) = unpool.lower(path, "any").changes
    assert "found again by comparing" in change.after


@pytest.mark.slow
def test_offsets_of_the_output_say_where_indices_count():
    """Without output_size, odd sizes are unpooled into smaller planes: a scatter, and no question to the user."""
    case = CASES["2-D round trip without output_size, any batch and size"]
    lowered = unpool.lower(exported(case, True, 18), "any")
    assert [one.after for one in lowered.changes] == ["ScatterElements into zeros"]


@pytest.mark.slow
def test_fix_agrees_that_nothing_is_wrong(tmp_path):
    """`unpool fix` has nothing to change in a file with open sizes and a fixed batch."""
    path = tmp_path / "open.onnx"
    sizes = ({2: torch.export.Dim("height", min=2), 3: torch.export.Dim("width", min=2)},)
    module, x = RoundTrip(2, True, 2).eval(), torch.rand(2, 1, 7, 8)
    unpool.torch.export(module, (x,), path, dynamic_shapes=sizes, verbose=False)
    assert str(unpool.fix(path)) == "nothing to change"
    assert not unpool.check(path)


def test_a_vector_of_other_numbers_is_no_offset():
    """0, 2, 1 times the size of a plane are not the offsets of three planes, so where the indices count is unknown."""
    text = """planes (float[1, 3, h, w] x) => (float[1, 3, a, b] z) {
        y, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
        s = Shape (x)
        h0 = Gather (s, two) w0 = Gather (s, three)
        plane = Mul (h0, w0)
        p = Mod (i, plane)
        scaled = Mul (count, plane)
        offsets = Reshape (scaled, per_plane)
        whole = Add (p, offsets)
        z = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (y, whole, s)
    }"""

    def model(*count):
        constants = {"two": [2], "three": [3], "count": count, "per_plane": [1, 3, 1, 1]}
        return models.model(text, **{name: np.int64(numbers) for name, numbers in constants.items()})

    assert "comparing" in unpool.lower(model(0, 1, 2), "any").changes[0].after
    with pytest.raises(unpool.UnsupportedError, match="cannot tell which shape the indices refer to"):
        unpool.lower(model(0, 2, 1), "any")
