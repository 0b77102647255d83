"""Sessions of onnxruntime with the library: every feature of a session, and its end."""

import gc
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import onnxruntime
import pytest

import unpool
import unpool.onnxruntime
from tests.support import models
from tests.support.library_sessions import plain_options
from tests.support.library_sessions import session_options as options
from tests.support.models import random as picture
from unpool.onnxruntime import planner

SEGMENT = """
g (float[n, 3, h, w] x) => (float[n, 3, h2, w2] z) {
    r = Relu (x)
    y, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
    s = Shape (r)
    z = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (y, i, s)
}"""
BRANCHES = """
g (float[n, 3, h, w] x, bool c) => (float[n, c2, h2, w2] z) {
    r = Relu (x)
    z = If (c) <
        then_branch = up () => (float[n, c3, h3, w3] a) { a = ConvTranspose <strides = [2, 2]> (r, weights) },
        else_branch = back () => (float[n, c4, h4, w4] b) {
            y, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
            b = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (y, i)
        }
    >
}"""
CONVS = """
g (float[1, 3, 32, 32] x) => (float[1, 32, 4, 4] z) {
    a1 = Conv <pads = [1, 1, 1, 1]> (x, w1)
    b1 = Relu (a1)
    c1 = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (b1)
    a2 = Conv <pads = [1, 1, 1, 1]> (c1, w2)
    b2 = Relu (a2)
    c2 = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (b2)
    a3 = Conv <pads = [1, 1, 1, 1]> (c2, w2)
    b3 = Relu (a3)
    z = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (b3)
}"""


def model(text, **weights):
    """The bytes of a model with these initializers."""
    return models.model(text, **weights).SerializeToString()


def unpooled(x):
    """What SEGMENT gives."""
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    y, indices = unpool.max_pool(np.maximum(x, 0), return_indices=True, **window)
    return unpool.max_unpool(y, indices, x.shape, **window)


def test_an_unmodified_model_of_any_size():
    """One session takes sizes of every kind, and gives the bits of the functions."""
    session = onnxruntime.InferenceSession(model(SEGMENT), options())
    for shape in ((1, 3, 8, 10), (2, 3, 7, 5), (1, 3, 300, 301), (0, 3, 4, 4)):
        x = picture(*shape)
        (z,) = session.run(None, {"x": x})
        assert np.array_equal(z, unpooled(x))


def test_nodes_of_branches_and_outer_weights():
    """Both branches of an If run here, one with weights of the outer graph."""
    weights = picture(3, 4, 2, 2)
    session = onnxruntime.InferenceSession(model(BRANCHES, weights=weights), options())
    x = picture(2, 3, 6, 8)
    (up,) = session.run(None, {"x": x, "c": np.array(True)})
    (back,) = session.run(None, {"x": x, "c": np.array(False)})
    assert np.array_equal(up, unpool.prepare_conv_transpose(weights, strides=[2, 2])(np.maximum(x, 0)))
    assert np.array_equal(back, unpooled(x))


@pytest.mark.parametrize(("operator", "attribute"), [
    ("MaxPool", "ceil_mode = 1.0"), ("MaxPool", "storage_order = [1]"), ("MaxPool", "auto_pad = 1"),
    ("MaxPool", "strides = 2"), ("ConvTranspose", "group = \"1\""), ("ConvTranspose", "auto_pad = [1.0]"),
])  # fmt: skip
def test_an_attribute_of_another_type_is_refused(operator, attribute):
    """It is not taken for one that is left out."""
    node = f"{operator} <kernel_shape = [2], {attribute}> ({'x' if operator == 'MaxPool' else 'x, w'})"
    text = f"g (float[1, 1, 4] x, float[1, 1, 2] w) => (z) {{ z = {node} }}"
    with pytest.raises(Exception, match=f"{operator}: {attribute.split()[0]} expects"):
        onnxruntime.InferenceSession(model(text), options())


def test_a_text_does_not_end_at_a_zero_byte():
    """Only the whole text of an attribute is compared."""
    made = models.model("g (float[1, 1, 4] x) => (z) { z = MaxPool <kernel_shape = [2]> (x) }")
    made.graph.node[0].attribute.append(onnx.helper.make_attribute("auto_pad", b"VALID\0x"))
    with pytest.raises(Exception, match="auto_pad is one of"):
        onnxruntime.InferenceSession(made.SerializeToString(), options())


@pytest.mark.parametrize(("size", "expected"), [(4, np.nan), (2, None)])
def test_exact_pools_are_all_of_the_library(size, expected):
    """In the blocked layout behind a Conv, onnxruntime's own loses NaN, and divides by zero where no window fits."""
    text = """g (float[1, 16, h, w] x) => (float[1, 16, h2, w2] z) {
        a = Conv (x, w1)
        z = MaxPool <kernel_shape = [3, 3]> (a)
    }"""
    weights = np.eye(16, dtype=np.float32)[:, :, np.newaxis, np.newaxis]
    x = np.zeros((1, 16, size, size), np.float32)
    x[:, :, 1, 1] = np.nan
    (z,) = onnxruntime.InferenceSession(model(text, w1=weights), options(exact=True)).run(None, {"x": x})
    assert z.size == 0 if expected is None else np.isnan(z).all()


def test_pools_leave_the_blocked_layout_as_it_is(tmp_path):
    """Shapes are inferred, so Convs and pools become the very nodes that onnxruntime alone makes of them."""

    def operators(given, path):
        given.optimized_model_filepath = str(path)
        onnxruntime.InferenceSession(model(CONVS, w1=picture(32, 3, 3, 3), w2=picture(32, 32, 3, 3)), given)
        return [node.op_type for node in onnx.load(path).graph.node]

    assert operators(options(), tmp_path / "unpool.onnx") == operators(plain_options(), tmp_path / "onnxruntime.onnx")


def test_threads_share_a_session():
    """Eight threads with other sizes each get their own results."""
    session = onnxruntime.InferenceSession(model(SEGMENT), options())

    def check(number):
        x = picture(1, 3, 64 + number, 100)
        return all(np.array_equal(session.run(None, {"x": x})[0], unpooled(x)) for _ in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(check, range(8)))


def test_nodes_of_ended_sessions_are_forgotten():
    """The planner keeps none of their calls, once another session is made."""
    before = len(planner._nodes)
    for _ in range(5):
        onnxruntime.InferenceSession(model(SEGMENT), options())
    gc.collect()
    session = onnxruntime.InferenceSession(model(SEGMENT), options())
    assert session.get_inputs()
    assert len(planner._nodes) <= before + 2


OUTLIVING = """
import sys, threading, numpy as np, onnxruntime, unpool.onnxruntime
options = onnxruntime.SessionOptions()
unpool.onnxruntime.register(options)
session = onnxruntime.InferenceSession(sys.stdin.buffer.read(), options)
x = np.ones((1, 3, 64, 64), np.float32)
threads = [threading.Thread(target=session.run, args=(None, {"x": x})) for _ in range(4)]
for thread in threads:
    thread.start()
session.run(None, {"x": x})
for thread in threads:
    thread.join()
print("done")
"""


def test_a_session_may_outlive_the_interpreter():
    """A session in a global variable, with threads that ran it, ends with the process."""
    command = [sys.executable, "-c", OUTLIVING]
    done = subprocess.run(command, input=model(SEGMENT), capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.split()) == (0, [b"done"]), done.stderr
