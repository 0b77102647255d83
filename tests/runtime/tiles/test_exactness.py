"""Tiled is untiled: random graphs, networks, several inputs, indices; and the nodes that forbid it are named."""

import re

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import unpool
from tests.support import models
from tests.support.tiled_models import tiled_models
from tests.support.tiled_networks import segnets, u_nets
from tools.campaigns.tiled_graphs import Tally, assert_exact
from unpool import tiles

SAMPLE = settings(derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
"""Few of the models that `python -m tools.campaigns.tiled_graphs` goes through."""


@settings(SAMPLE, max_examples=20)
@given(tiled_models(), st.data())
def test_random_graphs_give_the_same_bits(drawn, data):
    """Whatever the layers, their pads, the inputs and the sizes: all outputs of all tiles are those of the image."""
    assert_exact(drawn, data, Tally())


@settings(SAMPLE, max_examples=6)
@given(segnets(), st.data())
def test_segnets_give_the_same_bits(drawn, data):
    """Pools with indices and their unpools, of which none leaves its tile, and skips."""
    assert_exact(drawn, data, Tally())


@pytest.mark.slow
@settings(SAMPLE, max_examples=6)
@given(u_nets(), st.data())
def test_u_nets_over_three_axes_give_the_same_bits(drawn, data):
    """Levels that shrink and grow, joined with skips, of which each sees another distance."""
    assert_exact(drawn, data, Tally())


def test_a_tile_to_which_nothing_is_left_gives_nothing():
    """One output ends before the image along one axis, the other along the other axis: their last corner is empty."""
    model = models.model(
        """corner (float[1, 1, h, w] x) => (float[1, 1, a, w] high, float[1, 1, h, b] wide) {
            low = Slice (x, zero, short, rows)
            high = Neg (low)
            left = Slice (x, zero, short, columns)
            wide = Neg (left)
        }""",
        zero=np.int64([0]),
        short=np.int64([-8]),
        rows=np.int64([2]),
        columns=np.int64([3]),
    )
    assert_same(model, {"x": whole_numbers(1, 1, 16, 16)}, (4, 4))


def assert_same(model, feed, tile, **options):
    """Tiled gives the bits of the untiled run, for all outputs."""
    session = unpool.InferenceSession(model, exact=True)
    made = tiles.run(session, feed, tile, **options)
    for value, whole in zip(session.get_outputs(), session.run(None, feed), strict=True):
        assert made[value.name].dtype == whole.dtype
        np.testing.assert_array_equal(made[value.name], whole)


def whole_numbers(*shape):
    """Numbers whose sums are exact in any order."""
    return np.random.default_rng(shape).integers(-2, 3, shape).astype(np.float32)


def test_inputs_and_outputs_of_different_strides():
    """An input at half the size meets the image behind a stride; outputs are at a half, a quarter and the full size."""
    model = models.model(
        """many (float[1, 1, h, w] x, float[1, 1, hh, hw] mask, float gain) => (float[1, 1, hh, hw] half,
                float[1, 1, qh, qw] quarter, float[1, 1, h, w] full) {
            s = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w)
            m = Add (s, mask)
            half = Mul (m, gain)
            quarter = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (half)
            full = ConvTranspose <strides = [2, 2]> (half, g)
        }""",
        w=whole_numbers(1, 1, 3, 3),
        g=whole_numbers(1, 1, 2, 2),
    )
    feed = {"x": whole_numbers(1, 1, 37, 50), "mask": whole_numbers(1, 1, 19, 25), "gain": np.array(3, np.float32)}
    assert_same(model, feed, (8, 12))


def test_indices_that_leave_the_model_count_in_the_image():
    """MaxPool's second output counts in the tile, and is counted anew in the image; -1 stays."""
    model = models.model(
        """pool (float[2, 2, h, w] x) => (float[2, 2, a, b] y, int64[2, 2, a, b] i) {
            y, i = MaxPool <kernel_shape = [3, 1], strides = [2, 2], pads = [3, 0, 3, 1]> (x)
        }"""
    )
    assert_same(model, {"x": whole_numbers(2, 2, 21, 26)}, (4, 6))


def test_channels_last():
    """A model that takes and gives channels last is tiled along its second axis and third."""
    model = models.model(
        """last (float[1, h, w, 2] x) => (float[1, h, w, 3] y) {
            t = Transpose <perm = [0, 3, 1, 2]> (x)
            c = Conv <auto_pad = "SAME_LOWER"> (t, w)
            b = Transpose <perm = [0, 2, 3, 1]> (c)
            y = MatMul (b, m)
        }""",
        w=whole_numbers(2, 2, 2, 2),
        m=whole_numbers(2, 3),
    )
    assert_same(model, {"x": whole_numbers(1, 30, 22, 2)}, (7, 9), layout="NHWC")


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax"])
def test_a_softmax_of_channels(operator):
    """Which the session reshapes, but tiles see as it was written."""
    model = models.model(
        f"""classes (float[1, 2, h, w] x) => (float[1, 5, h, w] y) {{
            c = Conv <pads = [1, 1, 1, 1]> (x, w)
            y = {operator} <axis = 1> (c)
        }}""",
        w=whole_numbers(5, 2, 3, 3),
    )
    session = unpool.InferenceSession(model)
    operators = [node.op_type for node in session.prepared_graph(has_own_nodes=True).graph.nodes]
    assert "Reshape" in operators
    assert_same(model, {"x": whole_numbers(1, 2, 64, 48)}, (16, 24))


def of_any_rank(model):
    """The model without the shapes of its outputs."""
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    return model


FORBIDDEN = {
    "GlobalAveragePool": ("g = GlobalAveragePool (x) y = Mul (x, g)", "pools the whole image"),
    "InstanceNormalization": ("y = InstanceNormalization (x, two, two)", "normalises over the image"),
    "Softmax": ("y = Softmax <axis = 2> (x)", "all positions of the image at once"),
    "ReduceMax": ("m = ReduceMax <axes = [2, 3]> (x) y = Sub (x, m)", "all positions of the image at once"),
    "MatMul": ("y = MatMul (x, x)", "multiplies positions of the image"),
    "Add": ("y = Add (x, grid)", "'grid', which has 40 numbers along the image"),
    "Resize": (
        'y = Resize <coordinate_transformation_mode = "align_corners"> (x, , twice)',
        "by the size of the image",
    ),
    "Reshape": ("y = Reshape (x, flat)", "joins a spatial axis of the image"),
    "Div": ("s = Shape <start = 2, end = 3> (x) f = Cast <to = 1> (s) y = Div (x, f)", "with the size of the image"),
    "Slice": ("y = Slice (x, zero, ten, axis)", "the size does not follow the image's"),
    "MaxUnpool": (
        "p, i = MaxPool <kernel_shape = [1, 3], strides = [1, 3]> (x) "
        "y = MaxUnpool <kernel_shape = [1, 3], strides = [1, 3]> (p, i)",
        "of what was pooled from",
    ),
    "Relu": ("p, i = MaxPool <kernel_shape = [1, 2]> (x) f = Cast <to = 1> (i) y = Relu (f)", "computes with indices"),
    "ConvTranspose": ("y = ConvTranspose <output_shape = [50, 50]> (x, k)", "the size does not follow the image's"),
}
CONSTANTS = {
    "two": np.ones(2, np.float32),
    "grid": np.zeros((1, 1, 40, 40), np.float32),
    "twice": np.float32([1, 1, 2, 2]),
    "flat": np.int64([1, 2, -1]),
    "zero": np.int64([0]),
    "ten": np.int64([10]),
    "axis": np.int64([2]),
    "k": np.ones((2, 2, 2, 2), np.float32),
}


@pytest.mark.parametrize("operator", FORBIDDEN)
def test_what_forbids_exact_tiles_is_named(operator):
    """A node that does not treat every position alike is refused before anything runs: its name, and why."""
    body, why = FORBIDDEN[operator]
    used = {name: array for name, array in CONSTANTS.items() if re.search(rf"\b{name}\b", body)}
    model = of_any_rank(models.model(f"refused (float[1, 2, h, w] x) => (float y) {{ {body} }}", **used))
    session = unpool.InferenceSession(model)
    with pytest.raises(unpool.UnsupportedError, match=f"node '?.*cannot be tiled exactly: it .*{re.escape(why)}"):
        tiles.run(session, {"x": np.zeros((1, 2, 40, 40), np.float32)}, (8, 8))


def test_arguments_that_do_not_fit_are_refused():
    """Tiles of the wrong rank, unknown names and inputs that are no images are one error each."""
    session = unpool.InferenceSession(
        models.model("same (float[1, 1, h, w] x) => (float[1, 1, h, w] y) { y = Relu (x) }")
    )
    image = {"x": np.zeros((1, 1, 8, 8), np.float32)}
    for feed, tile, options, says in (
        (image, (8,), {}, "expected 2 sizes"),
        (image, "large", {}, 'expected "auto"'),
        (image, (8, 8), {"outputs": ["z"]}, "outputs among y; got 'z'"),
        (image, (8, 8), {"inputs": ["z"]}, "inputs among x; got 'z'"),
        (image, (8, 8), {"layout": "HWC"}, "layout: expected one of"),
        (image, "auto", {"max_memory": 1 << 20}, "max_memory 1MiB is too small"),
        ({"x": np.zeros((1, 1, 1, 1), np.float32)}, (8, 8), {}, "batch, channels and one spatial axis"),
    ):
        with pytest.raises(unpool.UnpoolError, match=re.escape(says)):
            tiles.run(session, feed, tile, **options)


def test_indices_that_are_counted_anew_in_planes():
    """Mod and Add, as torch's exporter writes them for dynamic sizes, give indices of a tile for the tile again."""
    model = models.model(
        """planes (float[1, 2, h, w] x) => (float[1, 2, h, w] y) {
            p, i = MaxPool <kernel_shape = [2, 3], strides = [2, 2]> (x)
            shape = Shape (x)
            sizes = Shape <start = 2> (x)
            plane = ReduceProd <keepdims = 0> (sizes)
            inside = Mod (i, plane)
            offsets = Mul (counted, plane)
            whole = Add (offsets, inside)
            y = MaxUnpool <kernel_shape = [2, 3], strides = [2, 2]> (p, whole, shape)
        }""",
        opset=15,
        counted=np.arange(2).reshape(1, 2, 1, 1),
    )
    assert_same(model, {"x": whole_numbers(1, 2, 22, 31)}, (4, 8))
