"""Compiled models: in Python, and in a C program without Python, bit for bit as the model that they were made of."""

import ast
import shutil
import subprocess
import sys
from functools import partial
from importlib import import_module
from importlib.resources import as_file, files

import numpy as np
import onnx
import onnxruntime
import pytest

import unpool.onnxruntime
from tests.docs.blocks import blocks, check
from tests.support import models
from tests.support.c_program import assert_host_gives, needs_linux, needs_shipped_kernels, needs_zig
from tests.support.library_sessions import session_of
from unpool.errors import UnpoolError, UnsupportedError

PAGE = "docs/tasks/without-python.md"
RNG = np.random.default_rng(0)

pytestmark = needs_shipped_kernels


def array(*shape):
    return (RNG.standard_normal(shape) / np.prod(shape[1:]) ** 0.5).astype(np.float32)


model = partial(models.model, opset=16, imports=', "unpool" : 1')


def segnet():
    """Pools with indices, unpooling, and Convs."""
    return model(
        """test (float[1, 3, height, width] x) => (float[1, 3, h, w] y) {
        a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w1)
        b, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (a)
        c = Relu (b)
        d = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (c, i)
        y = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (d, w2) }""",
        w1=array(16, 3, 3, 3), w2=array(3, 16, 3, 3),
    )  # fmt: skip


def generator():
    """ConvTransposes by several algorithms, with and without a bias."""
    return model(
        """test (float[n, 100, 1, 1] x) => (float[n, 1, h, w] y) {
        a = ConvTranspose (x, w1)
        b = Relu (a)
        c = ConvTranspose <strides = [2, 2], pads = [1, 1, 1, 1]> (b, w2, b2)
        d = Relu (c)
        e = ConvTranspose <strides = [2, 2], pads = [1, 1, 1, 1]> (d, w3)
        y = ConvTranspose <strides = [2, 2]> (e, w4) }""",
        w1=array(100, 64, 4, 4), w2=array(64, 64, 4, 4), b2=array(64), w3=array(64, 8, 4, 4), w4=array(8, 1, 2, 2),
    )  # fmt: skip


def conversions():
    """ConvTransposes of 16 bits, of cropped points, channels last, and with weights that are no constants."""
    return model(
        """test (float[n, 24, 1, 1] x) => (float[n, 2, h, w] y) {
        a = ConvTranspose <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w1)
        s = ReduceMean <keepdims = 0> (x)
        w = Mul (w2, s)
        b = Mul (b2, s)
        c = ConvTranspose <strides = [2, 2], pads = [1, 1, 1, 1]> (a, w, b)
        d = Cast <to = 10> (c)
        e = ConvTranspose <strides = [3, 3]> (d, w3)
        f = ConvTranspose <strides = [2, 2]> (e, w4)
        g = Transpose <perm = [0, 2, 3, 1]> (f)
        h = unpool.ConvTranspose <channels_last = 1, opset = 16, activation = "Tanh"> (g, w4)
        i = Cast <to = 1> (h)
        y = Transpose <perm = [0, 3, 1, 2]> (i) }""",
        w1=array(24, 20, 4, 4), w2=array(20, 16, 4, 4), b2=array(16), w3=array(16, 2, 5, 5).astype(np.float16),
        w4=array(2, 2, 2, 2).astype(np.float16),
    )  # fmt: skip


def volumes():
    """Three spatial axes."""
    return model(
        """test (float[1, 8, 4, 8, 8] x) => (float[1, 4, d, h, w] y) {
        p = MaxPool <kernel_shape = [2, 2, 2], strides = [2, 2, 2]> (x)
        y = ConvTranspose <strides = [2, 2, 2]> (p, w1) }""",
        w1=array(8, 4, 2, 2, 2),
    )  # fmt: skip


def fused():
    """Operators of unpool's own: Conv, Snake, InstanceNormalization; and a ConvTranspose with an activation."""
    return model(
        """test (float[1, 6, length] x) => (float[1, 4, l] y) {
        a = unpool.Conv <pads = [3, 3], activation = "LeakyRelu", activation_params = [0.1]> (x, w1, b1)
        b, sum = unpool.Snake (a, factors, x)
        c = unpool.InstanceNormalization (b, scale, shift)
        d = Add (c, sum)
        y = unpool.ConvTranspose <strides = [2], activation = "Relu"> (d, w2) }""",
        w1=array(6, 6, 7), b1=array(6), factors=array(2, 6), scale=array(6), shift=array(6), w2=array(6, 4, 4),
    )  # fmt: skip


MODELS = {
    "segnet": (segnet, [(1, 3, 32, 48), (1, 3, 20, 20)]),
    "generator": (generator, [(1, 100, 1, 1), (3, 100, 1, 1)]),
    "conversions": (conversions, [(1, 24, 1, 1), (2, 24, 1, 1)]),
    "volumes": (volumes, [(1, 8, 4, 8, 8)]),
    "fused": (fused, [(1, 6, 300), (1, 6, 41)]),
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """By name the file of a compiled model, its inputs, and the outputs of the model that it was made of."""
    folder, found = tmp_path_factory.mktemp("compiled"), {}
    for name, (make, shapes) in MODELS.items():
        made, path = make(), folder / f"{name}.onnx"
        onnx.save(unpool.onnxruntime.compile(made, shapes=[{"x": shape} for shape in shapes]), path)
        inputs = [array(*shape) for shape in shapes]
        session = session_of(made)
        found[name] = path, inputs, [session.run(None, {"x": x})[0] for x in inputs]
    return found


@pytest.mark.parametrize("name", MODELS)
def test_equal_in_python(compiled, name):
    """A compiled model gives the same bits for all shapes that it was compiled for."""
    path, inputs, outputs = compiled[name]
    session = session_of(str(path), trust_plans=True)
    for x, expected in zip(inputs, outputs, strict=True):
        assert np.array_equal(session.run(None, {"x": x})[0], expected)


LOAD = """
import sys
import numpy, onnxruntime, unpool.onnxruntime
path, shapes, given = sys.argv[1], *map(eval, sys.argv[2:])
options = onnxruntime.SessionOptions()
unpool.onnxruntime.register(options, **given)
session = onnxruntime.InferenceSession(path, options)
print([session.run(None, {"x": numpy.ones(shape, numpy.float32)})[0].shape for shape in shapes])
print(sorted(name for name in sys.modules if name.startswith("unpool.")))
"""


def run_alone(path, shapes, **given):
    """Shapes of the outputs for inputs of these shapes, and the modules of unpool, in a process of its own."""
    command = [sys.executable, "-c", LOAD, path, repr(shapes), repr(given)]
    return map(ast.literal_eval, subprocess.check_output(command, text=True).splitlines())


def test_a_session_imports_only_what_registers_the_library(compiled):
    """Operators, kernels and their planner would take longer to import than a small model takes to load."""
    path, (x,), (y,) = compiled["volumes"]
    shapes, modules = run_alone(path, [x.shape], trust_plans=True)
    assert shapes == [y.shape]
    assert modules == [
        *("unpool.errors", "unpool.fork_safety", "unpool.lazy_names"),
        *("unpool.onnxruntime", "unpool.onnxruntime.callbacks", "unpool.onnxruntime.library"),
        "unpool.onnxruntime.register",
    ]


@needs_linux
@needs_zig
@pytest.mark.parametrize("name", MODELS)
def test_equal_in_a_c_program(compiled, host, name, tmp_path):
    """In eight threads on one session, in a process without Python."""
    path, inputs, outputs = compiled[name]
    for x, expected in zip(inputs, outputs, strict=True):
        assert_host_gives(host, path, x, expected, tmp_path, 5, 8)


def test_weights_of_another_shape_are_refused():
    """A plan is for the shapes of all inputs that are no constants."""
    text = "test (float[1, 3, 4, 4] x, float[3, m, 2, 2] w) => (float[n, m, h, v] y) { y = ConvTranspose (x, w) }"
    compiled = unpool.onnxruntime.compile(model(text), shapes={"w": (3, 2, 2, 2)})
    session = session_of(compiled, trust_plans=True)
    x, w = array(1, 3, 4, 4), array(3, 2, 2, 2)
    assert np.array_equal(session.run(None, {"x": x, "w": w})[0], unpool.conv_transpose(x, w))
    with pytest.raises(Exception, match="compiled for other shapes"):
        session.run(None, {"x": x, "w": array(3, 4, 2, 2)})


def test_plans_run_only_if_they_are_trusted_and_for_their_shapes(compiled):
    """A session without the entry says what it is, and a run of another shape which one came."""
    path, *_ = compiled["segnet"]
    with pytest.raises(Exception, match=r"plans, which are code\. If you trust the file"):
        session_of(str(path))
    with pytest.raises(Exception, match=r"compiled for other shapes than \[1, 16, 16, 8\] of this node's input"):
        session_of(str(path), trust_plans=True).run(None, {"x": array(1, 3, 16, 8)})


@pytest.mark.parametrize(("change", "words"), [
    (lambda blob: blob[:-8], "damaged"),
    (lambda blob: b"X" + blob[1:], "damaged"),
    (lambda blob: blob[:8] + b"\x07" + blob[9:], "another release of the library"),
    (lambda blob: blob[:24] + b"0" * 64 + blob[88:], "compiled by another release"),
    (lambda blob: blob[:88] + b"none.so".ljust(64, b"\0") + blob[152:], "none.so cannot be loaded"),
    (lambda blob: blob[:88] + b"../x.so".ljust(64, b"\0") + blob[152:], "names no library"),
])  # fmt: skip
def test_damaged_and_foreign_plans_are_refused(compiled, change, words):
    """Each with its sentence, when the session is created."""
    path, *_ = compiled["volumes"]
    made = onnx.load(path)
    (attribute,) = made.graph.node[-1].attribute
    attribute.s = change(attribute.s)
    with pytest.raises(Exception, match=words):
        session_of(made, trust_plans=True)


def test_a_kernel_that_is_not_shipped_is_refused(monkeypatch):
    """This process has compiled it, which the program that runs the model cannot."""
    monkeypatch.setattr(import_module("unpool.onnxruntime.compile_model"), "is_shipped", lambda name, args: False)
    with pytest.raises(UnsupportedError, match=r"MaxPool b needs the kernel unpool\.kernels\.cpu\..* lacks\. Install"):
        unpool.onnxruntime.compile(segnet(), shapes={"x": (1, 3, 8, 8)})


@pytest.mark.parametrize(("arguments", "words"), [
    ({}, "input x needs"),
    ({"shapes": {"z": (1,)}}, "has no input z; it has x"),
    ({"shapes": {"x": (1, 4, 8, 8)}}, r"input x needs \[1, 3, \?, \?\], got \[1, 4, 8, 8\]"),
    ({"shapes": [{"x": (1, 3, 8, 8)}] * 9}, "1 to 8 sets of shapes"),
])  # fmt: skip
def test_wrong_arguments(arguments, words):
    """One sentence each."""
    with pytest.raises(UnpoolError, match=words):
        unpool.onnxruntime.compile(segnet(), **arguments)


def assert_compiled(made, shape, *nodes):
    """The model compiles to nodes of these operators, each with plans, and gives what onnxruntime gives."""
    compiled, x = unpool.onnxruntime.compile(made), array(*shape)
    assert [(node.domain, node.op_type) for node in compiled.graph.node] == [("unpool", name) for name in nodes]
    assert all("plans" in [each.name for each in node.attribute] for node in compiled.graph.node)
    (expected,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": x})
    (y,) = session_of(compiled, trust_plans=True).run(None, {"x": x})
    assert np.allclose(y, expected, 1e-5, 1e-5)


def test_the_passes_of_a_session_run_first():
    """A function is inlined, and an activation becomes a part of the ConvTranspose before it."""
    made = model(
        """test (float[1, 4, 8, 8] x) => (float[1, 6, 16, 16] y) {
        a = local.double (x)
        y = Relu (a) }
        <domain: "local", opset_import: ["" : 16]>
        double (x) => (z) {
            w = Constant <value = float[4, 6, 2, 2] {WEIGHTS}> ()
            z = ConvTranspose <strides = [2, 2]> (x, w)
        }""".replace("WEIGHTS", ", ".join(map(str, array(4 * 6 * 4))))
    )
    made.opset_import.append(onnx.helper.make_opsetid("local", 1))
    assert_compiled(made, (1, 4, 8, 8), "ConvTranspose")


def test_what_passes_fuse_is_compiled():
    """A Snake that a model has as five nodes."""
    made = model(
        """test (float[1, 64, 1000] x) => (float[1, 64, 1000] y) {
        b = Mul (x, frequency)
        c = Sin (b)
        d = Pow (c, two)
        e = Mul (d, magnitude)
        y = Add (x, e) }""",
        frequency=np.abs(array(64, 1)), magnitude=array(64, 1), two=np.array(2, np.float32),
    )  # fmt: skip
    assert_compiled(made, (1, 64, 1000), "Snake")


def test_a_branch_that_is_not_taken_is_refused():
    """Its nodes have no plan, and would not run without Python."""
    made = model(
        """test (float[1, 1, 4, 4] x, bool condition) => (float[1, 1, h, w] y) {
        y = If (condition) <
            then_branch = a () => (float[1, 1, h, w] p) { p, i = MaxPool <kernel_shape = [2, 2]> (x) },
            else_branch = b () => (float[1, 1, h, w] q) { q = Identity (x) }> }"""
    )
    with pytest.raises(UnpoolError, match="MaxPool p did not run on zeros"):
        unpool.onnxruntime.compile(made)


def test_the_page_prints_what_it_says(tmp_path, monkeypatch):
    """tasks/without-python.md, on the model of the demo."""
    monkeypatch.chdir(tmp_path)
    with as_file(files("unpool") / "data" / "coins.onnx") as path:
        shutil.copy(path, "coins.onnx")
    check(PAGE, blocks(PAGE))
