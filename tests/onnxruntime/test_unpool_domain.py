"""Nodes of the domain `unpool` in stock sessions: which names are whose, shapes, plans, and what is refused."""

from functools import partial

import numpy as np
import onnx
import onnxruntime
import pytest

import unpool
import unpool.onnxruntime
from tests.support import models
from tests.support.library_sessions import session_of as library_session
from tests.support.models import random
from unpool.execute.plans import library_file

WINDOW = "kernel_shape = [2, 2], strides = [2, 2]"
SEGMENT = f"""
g (float[n, 3, h, w] x) => (float[n, 3, h2, w2] z) {{
    r = Relu (x)
    y, i = unpool.MaxPool <{WINDOW}> (r)
    s = Shape (r)
    z = unpool.MaxUnpool <{WINDOW}> (y, i, s)
}}"""


def model(text, **weights):
    """A model with these initializers."""
    return models.model(text, imports=', "unpool" : 1', **weights)


session_of = partial(library_session, domains="unpool")
"""Makes a session in which the names of the standard are onnxruntime's."""


def test_nodes_of_any_size_without_stored_plans(calls):
    """Each asks Python once for a shape, and gives the bits of the functions."""
    session = session_of(model(SEGMENT))
    for shape in ((1, 3, 8, 10), (2, 3, 7, 5), (1, 3, 8, 10)):
        x = random(*shape)
        y, indices = unpool.max_pool(np.maximum(x, 0), return_indices=True, kernel_shape=[2, 2], strides=[2, 2])
        expected = unpool.max_unpool(y, indices, shape, kernel_shape=[2, 2], strides=[2, 2])
        assert np.array_equal(session.run(None, {"x": x})[0], expected)
    assert len(calls) == 4


def test_the_names_of_the_standard_stay_with_onnxruntime():
    """So MaxUnpool of float64, which it refuses, is refused beside a node of unpool that takes it."""
    text = "g (double[1, 1, 2] x, int64[1, 1, 2] i) => (z) {{ z = {}MaxUnpool <kernel_shape = [2]> (x, i) }}"
    session = session_of(model(text.format("unpool.")))
    x, i = np.float64([[[5, 6]]]), np.array([[[2, 0]]])
    assert session.run(None, {"x": x, "i": i})[0].tolist() == [[[6, 0, 5]]]
    with pytest.raises(Exception, match="MaxUnpool"):
        session_of(model(text.format("")))
    session_of(model(text.format("")), domains="all")


def test_another_word_for_the_domains_is_refused():
    """By `register`, and by the library where a program adds the entry itself."""
    options = onnxruntime.SessionOptions()
    with pytest.raises(unpool.UnpoolError, match="domains is one of all, unpool; got 'onnx'"):
        unpool.onnxruntime.register(options, domains="onnx")
    options.add_session_config_entry("unpool.domains", "onnx")
    with pytest.raises(Exception, match=r"the entry unpool\.domains is one of all, unpool"):
        options.register_custom_ops_library(unpool.onnxruntime.get_library_path())


def test_attributes_come_before_the_settings_of_the_session():
    """`compat` of a node, where the session says something else; a node without it takes the session's."""
    text = """g (float[1, 1, 4] x) => (a, b) {
        a = unpool.MaxPool <kernel_shape = [2], pads = [0, 2]> (x)
        b = unpool.MaxPool <kernel_shape = [2], pads = [0, 2], compat = "spec"> (x)
    }"""
    session = session_of(model(text))
    assert [each.shape for each in session.run(None, {"x": random(1, 1, 4)})] == [(1, 1, 5), (1, 1, 5)]
    with pytest.raises(Exception, match="compat='ort' needs pads below kernel_shape"):
        session_of(model(text), compat="ort")


def test_the_opset_of_a_node_is_its_own():
    """Half of what is cut lies elsewhere in ConvTranspose-1; and version 9 has no bfloat16."""
    weights = random(1, 1, 3)
    text = """g (float[1, 1, 4] x) => (a, b) {
        a = unpool.ConvTranspose <auto_pad = "SAME_UPPER", strides = [2], output_shape = [8], opset = 9> (x, w)
        b = unpool.ConvTranspose <auto_pad = "SAME_UPPER", strides = [2], output_shape = [8]> (x, w)
    }"""
    x = random(1, 1, 4)
    options = {"auto_pad": "SAME_UPPER", "strides": [2], "output_shape": [8]}
    for given in ({}, {"opset": 9}):
        a, b = session_of(model(text, w=weights), **given).run(None, {"x": x})
        assert np.array_equal(a, unpool.conv_transpose(x, weights, opset=9, **options))
        assert np.array_equal(b, unpool.conv_transpose(x, weights, **{"opset": 11, **given}, **options))


SHAPES = [
    (f"unpool.MaxPool <{WINDOW}> (x)", [1, 4, 4, 5]),
    ("unpool.MaxPool <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1> (x)", [1, 4, 4, 5]),
    (f"unpool.MaxPool <{WINDOW}, channels_last = 1> (x)", [1, 2, 4, 10]),
    (f"unpool.MaxUnpool <{WINDOW}> (x, i)", [1, 4, 16, 20]),
    ("unpool.ConvTranspose <strides = [2, 2]> (x, w)", [1, 6, 17, 21]),
    ("unpool.ConvTranspose <strides = [2, 2], group = 2, pads = [1, 1, 1, 1]> (x, w, b)", [1, 12, 15, 19]),
    ('unpool.ConvTranspose <auto_pad = "SAME_UPPER", strides = [2, 2], activation = "Relu"> (x, w)', [1, 6, 16, 20]),
]


@pytest.mark.parametrize(("node", "expected"), SHAPES)
def test_sizes_of_outputs_are_inferred(node, expected):
    """They are known before anything runs, and a run gives them."""
    text = f"g (float[1, 4, 8, 10] x, int64[1, 4, 8, 10] i) => (y) {{ y = {node} }}"
    session = session_of(model(text, w=random(4, 6, 3, 3), b=random(12)))
    assert session.get_outputs()[0].shape == expected
    feed = {"x": random(1, 4, 8, 10), "i": np.zeros((1, 4, 8, 10), np.int64)}
    assert list(session.run(None, {each.name: feed[each.name] for each in session.get_inputs()})[0].shape) == expected


def test_unknown_sizes_keep_their_names():
    """Those of batch and channels; others follow from the stated types of the model's values."""
    made = model(SEGMENT.replace("(float[n, 3, h2, w2] z)", "(z)"))
    made.graph.value_info.append(onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 3, "a", "b"]))
    n, c, *_ = session_of(made).get_outputs()[0].shape
    assert (n, c) == ("n", 3)


DAMAGED = [
    ("MaxPool <kernel_shape = [2, 2], channels_last = 2> (x)", "MaxPool: channels_last is 0 or 1, got 2"),
    ("MaxPool <kernel_shape = [2, 2], channels_last = [1]> (x)", "MaxPool: channels_last expects integers"),
    ("MaxPool <kernel_shape = [2, 2], opset = 0> (x)", "MaxPool: exists from opset 1 on"),
    ('MaxPool <kernel_shape = [2, 2], opset = "22"> (x)', "MaxPool: opset expects integers"),
    ('MaxPool <kernel_shape = [2, 2], compat = "onnx"> (x)', "compat is one of spec, ort; got 'onnx'"),
    ("MaxPool <kernel_shape = [2, 2], compat = 1> (x)", "MaxPool: compat expects a string"),
    ('MaxUnpool <kernel_shape = [2, 2], index_space = "plane"> (x, i)', "index_space is one of auto, output, inferred"),
    ("ConvTranspose <exact = 7> (x, w)", "ConvTranspose: exact is 0 or 1, got 7"),
    ('ConvTranspose <activation = "Elu"> (x, w)', "activation is one of .*; got 'Elu'"),
    ("ConvTranspose <strides = [2]> (x, w)", "ConvTranspose: strides needs 2 values"),
    ("MaxPool (x)", "MaxPool: attribute kernel_shape is missing"),
    ('MaxPool <kernel_shape = [2, 2], plans = ""> (x)', "plans, which are code"),
    ("MaxPool <kernel_shape = [2, 2], plans = 1> (x)", "plans, which are code"),
]


@pytest.mark.parametrize(("node", "words"), DAMAGED)
def test_a_wrong_attribute_is_one_sentence(node, words):
    """When the model is loaded, or at the first run where only the shapes show it."""
    text = f"g (float[1, 4, 8, 10] x, int64[1, 4, 8, 10] i) => (y) {{ y = unpool.{node} }}"
    with pytest.raises(Exception, match=words):
        session_of(model(text, w=random(4, 6, 3, 3))).run(
            None, {"x": random(1, 4, 8, 10), "i": np.zeros((1, 4, 8, 10), np.int64)}
        )


@pytest.mark.skipif(library_file() is None, reason="the kernels of this installation are not shipped")
def test_such_nodes_can_be_compiled():
    """They get plans, and the same results."""
    made, x = model(SEGMENT), random(1, 3, 8, 10)
    compiled = unpool.onnxruntime.compile(made, shapes={"x": x.shape})
    (plain,) = session_of(made).run(None, {"x": x})
    (y,) = session_of(compiled, domains="all", trust_plans=True).run(None, {"x": x})
    assert np.array_equal(y, plain)
