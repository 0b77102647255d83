"""Unmodified models whose nodes kernels plan: in Python without its planner, and in a C program without Python."""

import ast
import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import onnx
import pytest

import unpool.onnxruntime
from tests.onnxruntime.test_compile import array, generator, model, segnet, session_of
from tests.onnxruntime.test_compile import host as host
from unpool.kernels.cpu.machine.libraries import kernel_table
from unpool.onnxruntime.kernel_table import plan_by_kernels

pytestmark = pytest.mark.skipif(kernel_table() is None, reason="the kernels of this installation are not shipped")
linux = pytest.mark.skipif(sys.platform != "linux", reason="the example is built for Linux")
zig = pytest.mark.skipif(
    find_spec("ziglang") is None, reason="a wheel is tested without zig, which compiles the program"
)


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


MODELS = {
    "segnet": (segnet, [(1, 3, 32, 48), (1, 3, 20, 20)]),
    "one axis": (one_axis, [(1, 2, 300), (1, 2, 41)]),
    "volumes": (volumes, [(1, 4, 4, 8, 8), (2, 4, 6, 2, 4)]),
}


def by_python(made, x):
    """The output where Python plans."""
    plan_by_kernels(False)
    try:
        return session_of(made).run(None, {"x": x})[0]
    finally:
        plan_by_kernels(True)


def run(host, tmp_path, made, x, *options):
    """The program's result, and its output."""
    program, environment = host
    x.tofile(tmp_path / "x")
    onnx.save(made, tmp_path / "model.onnx")
    files = (tmp_path / "model.onnx", ",".join(map(str, x.shape)), tmp_path / "x", tmp_path / "y")
    command = [program, "-e", "unpool.trust_plans=0", unpool.onnxruntime.get_library_path(), *files, *options]
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, check=False)
    return done, np.fromfile(tmp_path / "y", np.float32) if done.returncode == 0 else None


@pytest.mark.parametrize("name", MODELS)
def test_equal_to_plans_of_python(name):
    """Bit for bit, for all sizes in one session."""
    make, shapes = MODELS[name]
    made = make()
    session = session_of(made)
    for x in [array(*shape) for shape in shapes]:
        assert np.array_equal(session.run(None, {"x": x})[0], by_python(made, x))


LOAD = """
import sys
import numpy, onnxruntime, unpool.onnxruntime
options = onnxruntime.SessionOptions()
unpool.onnxruntime.register(options)
session = onnxruntime.InferenceSession(sys.argv[1], options)
print([session.run(None, {"x": numpy.ones((1, 2, size), numpy.float32)})[0].shape for size in (32, 50)])
print(sorted(name for name in sys.modules if name.startswith("unpool.")))
"""


def test_a_session_does_not_import_the_planner(tmp_path):
    """Operators, and preparing calls of kernels, would take longer to import than a small model takes to load."""
    onnx.save(one_axis(), tmp_path / "model.onnx")
    command = [sys.executable, "-c", LOAD, tmp_path / "model.onnx"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    shapes, modules = map(ast.literal_eval, done.stdout.splitlines())
    assert shapes == [(1, 4, 32), (1, 4, 50)]
    assert not [name for name in modules if name.startswith(("unpool.onnxruntime.pl", "unpool.op", "unpool.execute"))]


@linux
@zig
@pytest.mark.parametrize("name", MODELS)
def test_equal_in_a_c_program(host, name, tmp_path):
    """In eight threads on one session, in a process without Python."""
    make, shapes = MODELS[name]
    made = make()
    for x in [array(*shape) for shape in shapes]:
        done, y = run(host, tmp_path, made, x, "5", "8")
        assert done.returncode == 0, done.stderr
        expected = by_python(made, x)
        assert np.array_equal(y.reshape(expected.shape), expected)


WRONG = {
    "an index": (
        "i = Constant <value = int64[1, 1, 1, 2] {0, 9}> () "
        "y = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (x, i)",
        "MaxUnpool: indices need values from 0 to 7, got 9 at [0, 0, 0, 1].",
    ),
    "a window": (
        "y = MaxPool <kernel_shape = [2147483647, 2147483647], pads = [9, 9, 2147483647, 2147483647]> (x)",
        "unpool: without Python this node cannot be planned.",
    ),
    "pads": (
        "y, i = MaxPool <kernel_shape = [1, 1], pads = [0, 0, 2147483647, 2147483647]> (x)",
        "unpool: without Python this node cannot be planned.",
    ),
    "a shape": (
        "i = Constant <value = int64[1, 1, 1, 2] {0, 1}> () "
        "s = Constant <value = int64[4] {1, 1, 9223372036854775807, 9223372036854775807}> () "
        "y = MaxUnpool <kernel_shape = [2, 2]> (x, i, s)",
        "unpool: without Python this node cannot be planned.",
    ),
    "no window": (
        "y, i = MaxPool <kernel_shape = [3, 3]> (x)", "unpool: without Python this node cannot be planned.",
    ),
}  # fmt: skip


@linux
@zig
@pytest.mark.parametrize("name", WRONG)
def test_bad_input_is_one_sentence(host, name, tmp_path):
    """A status of the session, or of its run."""
    text, words = WRONG[name]
    made = model(f"test (float[a, b, c, d] x) => (float[e, f, g, h] y) {{ {text} }}")
    done, _ = run(host, tmp_path, made, array(1, 1, 1, 2))
    assert done.returncode == 1, done.stderr
    assert words in done.stderr


@linux
@zig
def test_what_kernels_do_not_plan_needs_python(host, tmp_path):
    """A ConvTranspose ends the loading of the model."""
    done, _ = run(host, tmp_path, generator(), array(1, 100, 1, 1))
    assert done.returncode == 1
    assert "unpool: without Python this node cannot be planned. Compile the model, or register with" in done.stderr


def test_kernels_that_python_compiles_are_left_to_it():
    """With UNPOOL_KERNELS=compiled there is no table of kernels, and Python plans."""
    pytest.importorskip("numba")  # which compiles them
    code = LOAD.replace("sys.argv[1]", repr(one_axis().SerializeToString()))
    environment = os.environ | {"UNPOOL_KERNELS": "compiled"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "unpool.onnxruntime.planner" in done.stdout
