"""Unmodified models whose nodes kernels plan: in Python without its planner, and in a C program without Python."""

import os
import subprocess
import sys

import numpy as np
import onnx
import pytest

import unpool.onnxruntime
from tests.onnxruntime.test_compile import array, generator, model, run_alone, segnet, session_of
from tests.support.c_program import assert_host_gives, needs_linux, needs_zig, run_host
from unpool.kernels.cpu.machine.libraries import kernel_table
from unpool.memory import rss
from unpool.onnxruntime.kernel_table import plan_by_kernels

pytestmark = pytest.mark.skipif(kernel_table() is None, reason="the kernels of this installation are not shipped")
UNTRUSTED = {"entry": "unpool.trust_plans=0"}


def one_axis():
    """A SegNet over one axis of any length, which asks for the sizes that it had."""
    return model(
        """test (float[1, 2, length] x) => (float[1, 4, l] y) {
        s = Shape (x)
        a = Conv <kernel_shape = [3], pads = [1, 1]> (x, w1)
        sa = Shape (a)
        b, i = MaxPool <kernel_shape = [2], strides = [2]> (a)
        sb = Shape (b)
        c, j = MaxPool <kernel_shape = [3], strides = [2], pads = [1, 1]> (b)
        d = MaxUnpool <kernel_shape = [3], strides = [2], pads = [1, 1]> (c, j, sb)
        e = MaxUnpool <kernel_shape = [2], strides = [2]> (d, i, sa)
        y = Conv <kernel_shape = [3], pads = [1, 1]> (e, w2) }""",
        w1=array(8, 2, 3), w2=array(4, 8, 3),
    )  # fmt: skip


def volumes():
    """Three axes, pools with overlap, with and without indices, in column-major order."""
    return model(
        """test (float[n, 4, d, h, w] x) => (float[n, 4, e, f, g] y) {
        b, i = MaxPool <kernel_shape = [2, 2, 2], strides = [2, 2, 2]> (x)
        c = MaxUnpool <kernel_shape = [2, 2, 2], strides = [2, 2, 2]> (b, i)
        p, k = MaxPool <kernel_shape = [3, 3, 3], ceil_mode = 1, auto_pad = "SAME_LOWER", storage_order = 1> (c)
        q = Cast <to = 1> (k)
        y = Add (p, q) }"""
    )


def enet():
    """Pools with indices, unpooling, and ConvTransposes that double the sizes."""
    return model(
        """test (float[n, 3, height, width] x) => (float[n, 5, h, w] y) {
        a = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x, w1)
        b = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
        c = Concat <axis = 1> (a, b)
        d = PRelu (c, s1)
        p, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (d)
        q = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (p, w2)
        u = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (q, i)
        r = ConvTranspose <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], output_padding = [1, 1]>
            (q, w3, b3)
        t = Add (u, r)
        y = ConvTranspose <strides = [2, 2], pads = [1, 1, 1, 1], output_padding = [1, 1]> (t, w4) }""",
        w1=array(13, 3, 3, 3), s1=array(16, 1, 1), w2=array(16, 16, 3, 3), w3=array(16, 16, 3, 3), b3=array(16),
        w4=array(16, 5, 3, 3),
    )  # fmt: skip


def u_net():
    """Two levels, whose ConvTransposes have windows without overlap."""
    return model(
        """test (float[n, 1, height, width] x) => (float[n, 2, h, w] y) {
        a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w1)
        ar = Relu (a)
        ap = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (ar)
        b = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (ap, w2)
        br = Relu (b)
        bp = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (br)
        c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (bp, w3)
        cu = ConvTranspose <strides = [2, 2]> (c, w4, b4)
        d = Concat <axis = 1> (br, cu)
        e = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (d, w5)
        eu = ConvTranspose <strides = [2, 2]> (e, w6, b6)
        f = Concat <axis = 1> (ar, eu)
        y = Conv (f, w7) }""",
        w1=array(8, 1, 3, 3), w2=array(16, 8, 3, 3), w3=array(32, 16, 3, 3), w4=array(32, 16, 2, 2), b4=array(16),
        w5=array(16, 32, 3, 3), w6=array(16, 8, 2, 2), b6=array(8), w7=array(2, 16, 1, 1),
    )  # fmt: skip


def vocoder():
    """One axis, long windows and large strides, with weights of two inputs of their norm."""
    return model(
        """test (float[n, 20, length] x) => (float[n, 1, l] y) {
        a = Conv <kernel_shape = [7], pads = [3, 3]> (x, w1)
        b = LeakyRelu (a)
        c = ConvTranspose <strides = [8], pads = [4, 4]> (b, w2, b2)
        d = LeakyRelu (c)
        v = Mul (v3, g3)
        e = ConvTranspose <strides = [2], pads = [1, 1]> (d, v, b3)
        f = LeakyRelu (e)
        g = Conv <kernel_shape = [7], pads = [3, 3]> (f, w4)
        y = Tanh (g) }""",
        w1=array(32, 20, 7), w2=array(32, 16, 16), b2=array(16), v3=array(16, 8, 4), g3=array(16, 1, 1), b3=array(8),
        w4=array(1, 8, 7),
    )  # fmt: skip


def every_form():
    """ConvTransposes of 16 and 64 bits, of groups, channels last, of stated sizes, with weights of a run and a NaN."""
    weights = array(4, 4, 3, 3)
    weights[0, 0, 0, 0] = np.nan
    return model(
        """test (float[n, 8, height, width] x) => (float[n, 4, h, w] y) {
        a = ConvTranspose <strides = [3, 2], dilations = [2, 1], auto_pad = "SAME_UPPER"> (x, w1)
        s = ReduceMean <keepdims = 0> (x)
        w = Mul (w2, s)
        b = Mul (b2, s)
        c = ConvTranspose <strides = [2, 2], group = 2, output_padding = [1, 0]> (a, w, b)
        d = Cast <to = 10> (c)
        e = ConvTranspose <strides = [2, 2], pads = [1, 1, 1, 1]> (d, w3)
        f = Cast <to = 11> (e)
        g = ConvTranspose <pads = [2, 0, 1, 1]> (f, w4)
        k = Transpose <perm = [0, 2, 3, 1]> (g)
        l = unpool.ConvTranspose <channels_last = 1, opset = 16> (k, w5)
        m = Transpose <perm = [0, 3, 1, 2]> (l)
        o = Cast <to = 1> (m)
        p = Clip (o, low, high)
        y = ConvTranspose <strides = [2, 1], output_shape = [400, 160]> (p, w6) }""",
        w1=array(8, 6, 3, 4), w2=array(6, 4, 3, 3), b2=array(8), w3=array(8, 6, 4, 4).astype(np.float16),
        w4=array(6, 4, 3, 3).astype(np.float64), w5=array(4, 4, 2, 2).astype(np.float64), w6=weights,
        low=np.float32(-2), high=np.float32(2),
    )  # fmt: skip


MODELS = {
    "segnet": (segnet, [(1, 3, 32, 48), (1, 3, 20, 20)]),
    "one axis": (one_axis, [(1, 2, 300), (1, 2, 41)]),
    "volumes": (volumes, [(1, 4, 4, 8, 8), (2, 4, 6, 2, 4)]),
    "enet": (enet, [(1, 3, 32, 48), (2, 3, 20, 20)]),
    "u-net": (u_net, [(1, 1, 32, 48), (2, 1, 20, 20)]),
    "generator": (generator, [(1, 100, 1, 1), (3, 100, 1, 1)]),
    "vocoder": (vocoder, [(1, 20, 33), (2, 20, 300)]),
    "every form": (every_form, [(1, 8, 5, 7), (2, 8, 9, 4)]),
}


def by_python(made, x, **options):
    """The output where Python plans."""
    plan_by_kernels(False)
    try:
        return session_of(made, **options).run(None, {"x": x})[0]
    finally:
        plan_by_kernels(True)


def saved(made, folder):
    """The path of a model."""
    onnx.save(made, folder / "model.onnx")
    return folder / "model.onnx"


@pytest.mark.parametrize("name", MODELS)
def test_equal_to_plans_of_python(name):
    """Bit for bit, for all sizes in one session."""
    make, shapes = MODELS[name]
    made = make()
    session = session_of(made)
    for x in [array(*shape) for shape in shapes]:
        assert np.array_equal(session.run(None, {"x": x})[0], by_python(made, x), equal_nan=True)


def test_a_session_does_not_import_the_planner(tmp_path):
    """Operators, and preparing calls of kernels, would take longer to import than a small model takes to load."""
    shapes, modules = run_alone(saved(one_axis(), tmp_path), [(1, 2, 32), (1, 2, 50)])
    assert shapes == [(1, 4, 32), (1, 4, 50)]
    assert not [name for name in modules if name.startswith(("unpool.onnxruntime.pl", "unpool.op", "unpool.execute"))]


@needs_linux
@needs_zig
@pytest.mark.parametrize("name", MODELS)
def test_equal_in_a_c_program(host, name, tmp_path):
    """In eight threads on one session, in a process without Python."""
    make, shapes = MODELS[name]
    made = make()
    for x in [array(*shape) for shape in shapes]:
        assert_host_gives(host, saved(made, tmp_path), x, by_python(made, x), tmp_path, 5, 8, **UNTRUSTED)


@needs_linux
@needs_zig
def test_where_winograds_algorithm_would_win(host, tmp_path):
    """A C program has the bits of a session with exact=True, which goes without it."""
    text = """test (float[1, 64, height, width] x) => (float[1, 64, h, w] y) {
        y = ConvTranspose <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w1) }"""
    made, x = model(text, w1=array(64, 64, 4, 4)), array(1, 64, 40, 40)
    exact = by_python(made, x, exact=True)
    assert_host_gives(host, saved(made, tmp_path), x, exact, tmp_path, 5, 8, **UNTRUSTED)
    assert not np.array_equal(by_python(made, x), exact)


NO_PLAN = "unpool: without Python this node cannot be planned."
WRONG = {
    "an index": (
        "i = Constant <value = int64[1, 1, 1, 2] {0, 9}> () "
        "y = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (x, i)",
        "MaxUnpool: indices need values from 0 to 7, got 9 at [0, 0, 0, 1].",
    ),
    "a window": (
        "y = MaxPool <kernel_shape = [2147483647, 2147483647], pads = [9, 9, 2147483647, 2147483647]> (x)", NO_PLAN,
    ),
    "pads": ("y, i = MaxPool <kernel_shape = [1, 1], pads = [0, 0, 2147483647, 2147483647]> (x)", NO_PLAN),
    "a shape": (
        "i = Constant <value = int64[1, 1, 1, 2] {0, 1}> () "
        "s = Constant <value = int64[4] {1, 1, 9223372036854775807, 9223372036854775807}> () "
        "y = MaxUnpool <kernel_shape = [2, 2]> (x, i, s)",
        NO_PLAN,
    ),
    "no window": ("y, i = MaxPool <kernel_shape = [3, 3]> (x)", NO_PLAN),
    "an activation that kernels do not form": (
        'w = Constant <value = float[1, 1, 1, 1] {2}> () y = unpool.ConvTranspose <activation = "Tanh"> (x, w)',
        f"{NO_PLAN} Compile the model, or register with",
    ),
}  # fmt: skip


@needs_linux
@needs_zig
@pytest.mark.parametrize(("text", "words"), WRONG.values(), ids=WRONG)
def test_bad_input_is_one_sentence(host, text, words, tmp_path):
    """A status of the session, or of its run."""
    made = model(f"test (float[a, b, c, d] x) => (float[e, f, g, h] y) {{ {text} }}")
    done, _ = run_host(host, saved(made, tmp_path), array(1, 1, 1, 2), tmp_path, **UNTRUSTED)
    assert done.returncode == 1, done.stderr
    assert words in done.stderr


@pytest.mark.slow
def test_random_calls_without_python():
    """Calls of every version, type and layout give the bits of the functions, or are refused."""
    command = [sys.executable, "-m", "tools.campaigns.onnxruntime_calls", "--without-python", "--count", "300"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_weights_are_packed_once_for_batches_of_any_size():
    """Memory does not grow by packed weights for each shape that a node keeps a plan for."""
    text = "test (float[n, 1024, h, w] x) => (float[n, 512, i, v] y) { y = ConvTranspose <strides = [2, 2]> (x, w1) }"
    session, sizes = session_of(model(text, w1=array(1024, 512, 2, 2))), []
    for batch in (1, 2, 3, 4, 5):
        session.run(None, {"x": array(batch, 1024, 4, 4)})
        sizes.append(rss())
    assert sizes[-1] < sizes[0] + (8 << 20)  # of weights of 8 MiB


WITHOUT_MEMORY = """
import resource, sys, numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
options.register_custom_ops_library(sys.argv[2])
session = onnxruntime.InferenceSession(sys.argv[1], options)
with open("/proc/self/statm") as file:
    size = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (16 << 20), -1))
try:
    session.run(None, {"x": numpy.ones((1, 1024, 1, 1), numpy.float32)})
except Exception as error:
    print(error)
"""


@needs_linux
def test_no_memory_for_packed_weights_is_one_sentence(tmp_path):
    """The error does not ask for Python, which the process lacks, too."""
    text = "test (float[n, 1024, h, w] x) => (float[n, 4096, i, v] y) { y = ConvTranspose <strides = [2, 2]> (x, w1) }"
    onnx.save(model(text, w1=np.ones((1024, 4096, 2, 2), np.float32)), tmp_path / "model.onnx")
    library = unpool.onnxruntime.get_library_path()
    command = [sys.executable, "-c", WITHOUT_MEMORY, tmp_path / "model.onnx", library]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "unpool: out of memory: the packed weights take 65 MiB. Free memory, or" in done.stdout


def test_kernels_that_python_compiles_are_left_to_it():
    """With UNPOOL_KERNELS=compiled there is no table of kernels that could plan: Python does, as `by_python` here."""
    pytest.importorskip("numba")  # which compiles them
    code = "from unpool.kernels.cpu.machine.libraries import kernel_table; print(kernel_table())"
    environment = os.environ | {"UNPOOL_KERNELS": "compiled"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"
