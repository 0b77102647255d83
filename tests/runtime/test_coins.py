"""The network that ships in the package."""

from collections import Counter
from importlib.resources import files

import numpy as np
import onnx
import onnxruntime
import pytest

import unpool
from examples.coins.labels import HELD_OUT_FROM, coin_mask, intersection_over_union, photograph

LEVELS = 3


@pytest.fixture(scope="module")
def shipped():
    """The bytes of the file."""
    return (files("unpool") / "data" / "coins.onnx").read_bytes()


@pytest.fixture(scope="module")
def image():
    """The photograph as the network takes it: float32 (1, 1, 303, 384), 0..255."""
    return photograph()[None, None].astype(np.float32)


def test_file_is_small_and_standard(shipped):
    """Below 1 MB, a valid model in standard operators alone, that a runtime of two years ago can load."""
    model = onnx.load_from_string(shipped)
    onnx.checker.check_model(model, full_check=True)
    assert len(shipped) < 1_000_000
    assert {node.domain for node in model.graph.node} == {""}
    assert [entry.domain for entry in model.opset_import] == [""]
    assert not model.functions
    assert model.ir_version <= 10


def test_file_keeps_every_unpooling(shipped):
    """One MaxUnpool with output_shape per level, one MaxPool per pool, and a ConvTranspose."""
    model = onnx.load_from_string(shipped)
    counts = Counter(node.op_type for node in model.graph.node)
    assert counts["MaxUnpool"] == counts["MaxPool"] == LEVELS
    assert counts["ConvTranspose"] >= 1
    assert all(len(node.input) == 3 for node in model.graph.node if node.op_type == "MaxUnpool")


def test_file_says_what_it_is_and_nothing_of_where_it_was_made(shipped):
    """Metadata names input, classes and origin; no stack traces or local paths of the exporter."""
    model = onnx.load_from_string(shipped)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert metadata["classes"] == "background,coin"
    assert metadata.keys() == {"input", "output", "classes", "source"}
    assert [value.name for value in (*model.graph.input, *model.graph.output)] == ["image", "logits"]
    for trace in (b"site-packages", b"stack_trace", b'.py", line', b"/home/", b"/root/"):
        assert trace not in shipped


def test_mask_is_that_of_onnxruntime(shipped, image):
    """Every pixel of the photograph gets the class that onnxruntime gives it."""
    masks = [
        session.run(["logits"], {"image": image})[0].argmax(axis=1)
        for session in (onnxruntime.InferenceSession(shipped), unpool.InferenceSession(shipped))
    ]
    assert masks[0].shape == (1, 303, 384)
    np.testing.assert_array_equal(masks[0], masks[1])


def test_coins_of_the_held_out_part_are_found(shipped, image):
    """On the columns that training never saw, IoU with the classical segmentation is at least 0.85."""
    (logits,) = unpool.InferenceSession(shipped).run(None, {"image": image})
    found = logits[0].argmax(axis=0) == 1
    expected = coin_mask(photograph())
    assert expected[:, HELD_OUT_FROM:].any()
    assert intersection_over_union(found[:, HELD_OUT_FROM:], expected[:, HELD_OUT_FROM:]) >= 0.85


def test_any_size_and_batch_run(shipped):
    """Sizes that are odd at every level, and more than one image, give logits of the same size."""
    x = np.random.default_rng(5).uniform(0, 255, (2, 1, 61, 47)).astype(np.float32)
    (ours,) = unpool.InferenceSession(shipped).run(None, {"image": x})
    (theirs,) = onnxruntime.InferenceSession(shipped).run(None, {"image": x})
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * np.abs(theirs).max())
