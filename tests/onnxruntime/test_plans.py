"""Plans: the operators in a session compute without Python, bit for bit as the functions."""

import subprocess
import sys
from itertools import product

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

import unpool
import unpool.onnxruntime
from tests.support.c_program import needs_zig
from tests.support.library_sessions import node_model
from tests.support.library_sessions import session_of as library_session
from tests.support.models import NHWC, random
from tests.support.ort_values import run_values
from tests.support.runners import bits
from tools.campaigns import plans
from unpool import execute
from unpool.onnxruntime import planner

OPSET = 22


def session_of(operator, inputs, constants=(), outputs=("y",), **attributes):
    """A session of one node; `inputs` and `constants` are arrays."""
    given = {f"x{number}": x for number, x in enumerate(inputs)}
    fixed = {f"c{number}": constant for number, constant in enumerate(constants)}
    node = onnx.helper.make_node(operator, [*given, *fixed], outputs, **attributes)
    return library_session(node_model([node], given, fixed, outputs, [None] * inputs[0].ndim), opset=OPSET)


def run(session, *inputs):
    return session.run(None, {f"x{number}": x for number, x in enumerate(inputs)})


def transposed(x, w, b=None, **attributes):
    """The function, with weights that are constants."""
    return unpool.conv_transpose(x, execute.own_weights(w), b, opset=OPSET, **attributes)


def test_a_shape_is_planned_once(calls):
    """Later runs, of earlier shapes too, call nothing of Python."""
    session = session_of("MaxPool", [random(1, 2, 8, 8)], kernel_shape=[2, 2], strides=[2, 2], outputs=("y", "i"))
    for size in (8, 6, 8, 6, 8):
        x = random(1, 2, size, 8)
        y, i = run(session, x)
        expected = unpool.max_pool(x, kernel_shape=(2, 2), strides=(2, 2), return_indices=True)
        assert np.array_equal(y, expected[0])
        assert np.array_equal(i, expected[1])
    assert len(calls) == 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("special", [0.0, np.nan, np.inf, 1e30])
@pytest.mark.parametrize("share", ["none", "some", "all"])
@pytest.mark.parametrize(("sizes", "window", "stride"), [((24, 20), 3, 1), ((12, 16), 4, 2), ((5, 12, 12), 3, 1)])
def test_inaccurate_tiles_are_those_of_the_function(calls, dtype, special, share, sizes, window, stride):
    """Winograd's tiles that are inaccurate are computed again as small images, or the whole call in another way."""
    if special == 1e30 and dtype is np.float16:
        special = 6e4
    rank = len(sizes)
    x, w = random(2, 64, *sizes, dtype=dtype), random(64, 40, *[window] * rank, dtype=dtype, seed=1) / 32
    if share == "some":
        x[1, :, ..., 4:8, 3:9] = special
    elif share == "all":
        x[:, :, ..., ::3, ::2] = special
    options = {"strides": [stride] * rank, "pads": [1] * 2 * rank}
    spec = unpool.operators.resolve.spec("ConvTranspose", options, opset=OPSET)
    algorithm = execute.kernel_of(spec, ((x.shape, np.dtype(dtype)), (w.shape, np.dtype(dtype))))
    session = session_of("ConvTranspose", [x], [w], **options)
    (y,) = run(session, x)
    assert np.array_equal(y, transposed(x, w, **options), equal_nan=True)
    assert algorithm in ("winograd", "phases")
    asked = len(calls)
    run(session, x)
    assert len(calls) == asked


@pytest.mark.parametrize(("share", "least", "most"), [("none", 1.7, 1.9), ("some", 2.7, 3.0), ("all", 3.7, 4.2)])
@pytest.mark.parametrize("sizes", [(24, 20), (5, 12, 12)])
def test_weights_are_packed_for_what_runs_need(calls, monkeypatch, sizes, share, least, most):
    """Winograd's weights take 16/9 of the originals' memory, and each fallback once as much, when a run needs it."""
    monkeypatch.setattr(planner, "_plans", {})
    x, w = random(2, 64, *sizes), random(64, 48, *[3] * len(sizes), seed=1) / 32
    pads = [1] * 2 * len(sizes)
    session = session_of("ConvTranspose", [x], [w], pads=pads)
    for other in (x, inaccurate(x, share), np.concatenate([x, inaccurate(x, share)])):
        assert np.array_equal(run(session, other)[0], transposed(other, w, pads=pads))
    packed = {id(array): array.nbytes for constants, *_ in planner._plans.values() for array in constants}
    assert least * w.nbytes < sum(packed.values()) < most * w.nbytes


def test_a_new_shape_is_planned_with_the_fallbacks_of_others(calls):
    """A node asks Python for each fallback that it needs, and for a further shape once."""
    x, w = random(2, 64, 24, 20), random(64, 40, 3, 3, seed=1) / 32
    session = session_of("ConvTranspose", [x], [w], pads=[1] * 4)
    asked = []
    for other in (x, inaccurate(x, "some"), inaccurate(x, "all"), inaccurate(x[1:], "all"), x):
        run(session, other)
        asked.append(len(calls))
    assert asked == [1, 2, 3, 4, 4]


def inaccurate(x, share):
    """Values for which none, some or all of Winograd's tiles are inaccurate."""
    x = x.copy()
    if share == "some":
        x[1, :, ..., 3:6, 3:6] = 0
    elif share == "all":
        x[:, :, ..., ::3, ::2] = 1e30
    return x


CALLS = {
    "rows": ((2, 2, 2, 2), (2, 3, 5, 5), {"strides": [3, 3]}),
    "phases": ((2, 16, 5, 4), (16, 9, 3, 3), {"strides": [2, 2], "pads": [1] * 4}),
    "phases of few channels": ((1, 16, 5, 4), (16, 3, 4, 4), {"strides": [2, 2], "pads": [1] * 4}),
    "groups": ((2, 4, 5, 6), (4, 2, 3, 2), {"strides": [2, 1], "group": 2}),
    "direct": ((2, 3, 9, 8), (3, 1, 2, 2), {"strides": [2, 2]}),
    "winograd": ((1, 64, 16, 12), (64, 40, 4, 4), {"strides": [2, 2], "pads": [1] * 4}),
    "winograd in slices": ((1, 64, 4, 12, 12), (64, 40, 3, 3, 3), {"pads": [1] * 6}),
    "points": ((3, 24, 1, 1), (24, 70, 3, 3), {}),
    "points of few outputs": ((3, 24, 1, 1), (24, 3, 2, 2), {}),
    "points, cropped": ((1, 24, 1, 1), (24, 20, 4, 4), {"strides": [2, 2], "pads": [1] * 4}),
    "points, of which little is wanted": ((40, 2, 1, 1), (2, 3, 31, 33), {"output_shape": [2, 3]}),
    "points, none of which is met": ((2, 2, 1, 1), (2, 3, 1, 2), {"strides": [4, 4], "output_shape": [4, 4]}),
    "without positions": ((2, 3, 0, 4), (3, 2, 3, 3), {"strides": [2, 2], "output_shape": [2, 3]}),
    "without channels": ((1, 0, 3, 4), (0, 2, 2, 2), {}),
    "to nothing": ((0, 3, 3, 4), (3, 2, 3, 3), {}),
}
"""Shapes of x and w, and attributes."""

FORMS = {
    "channels first": {}, "channels last": {"layout": "NHWC"}, "Tanh": {"layout": "NHWC", "activation": "Tanh"},
    "LeakyRelu": {"layout": "NHWC", "activation": "LeakyRelu", "activation_params": [0.25]},
}  # fmt: skip
"""Layouts and activations."""


def results(arrays, given, layout="NCHW", **attributes):
    """What a session gives for a ConvTranspose of arrays by name, in two runs that pass those that are given."""
    domain = NHWC if layout == "NHWC" else ""
    node = onnx.helper.make_node("ConvTranspose", list(arrays), ["y"], domain=domain, **attributes)
    inputs = {name: arrays[name] for name in given}
    constants = {name: x for name, x in arrays.items() if name not in given}
    session = library_session(node_model([node], inputs, constants), opset=OPSET)
    return [run_values(session, inputs)[0] for _ in range(2)]


@pytest.mark.sample(5)
@pytest.mark.parametrize(("form", "dtype"), [
    ("channels first", ml_dtypes.bfloat16), *product(FORMS, (np.float32, np.float64, np.float16))
])  # fmt: skip
@pytest.mark.parametrize("given", ["x", "xb", "xw"])
@pytest.mark.parametrize("call", CALLS)
def test_every_transposed_convolution_has_a_plan(calls, dtype, given, form, call):
    """Of every algorithm, type and layout, with weights and biases that are constants or inputs, and with NaN."""
    shape, weights, attributes = CALLS[call]
    x, w = random(*shape, dtype=dtype), (random(*weights, seed=1) / 16).astype(dtype)
    b = random(weights[1] * attributes.get("group", 1), dtype=dtype, seed=2)
    options = attributes | FORMS[form]
    if "layout" in options:
        x = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    for turn, special in enumerate((None, np.nan, np.inf)):
        if special is not None:
            w.reshape(-1)[w.size // 2 : w.size // 2 + 1] = special
        expected = unpool.conv_transpose(x, w if "w" in given else execute.own_weights(w), b, opset=OPSET, **options)
        for y in results({"x": x, "w": w, "b": b}, given, **options):
            assert bits(y) == bits(expected)
        assert len(calls) == turn + 1


@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_a_maximum_that_equals_padding(calls, dtype):
    """Where a maximum may be padding, windows are walked one by one."""
    lowest = -np.inf if dtype is np.float32 else -128
    x = random(2, 3, 40, 40).astype(dtype)
    x[1, :, 10:30, 5:35] = lowest
    options = {"kernel_shape": [7, 7], "strides": [1, 1], "pads": [3] * 4}
    y, i = run(session_of("MaxPool", [x], outputs=("y", "i"), **options), x)
    expected = unpool.max_pool(x, return_indices=True, **options)
    assert np.array_equal(y, expected[0])
    assert np.array_equal(i, expected[1])
    assert len(calls) == 1


def test_equal_nodes_share_a_plan(calls):
    """Python plans a pool once, and again for another window or shape."""
    x, small = random(2, 3, 16, 16), random(2, 3, 8, 16)
    for window, value in ((2, x), (2, x), (3, x), (2, small), (3, x)):
        options = {"kernel_shape": [window, window]}
        (y,) = run(session_of("MaxPool", [value], **options), value)
        assert np.array_equal(y, unpool.max_pool(value, **options))
    assert len(calls) == 3


@pytest.mark.parametrize("move", [0, 1, 64, 100])
def test_indices_outside_their_windows_and_planes(calls, move):
    """The stream fails, and elements are scattered: inside their planes, or anywhere."""
    x = random(2, 3, 16, 16)
    y, indices = unpool.max_pool(x, kernel_shape=(2, 2), strides=(2, 2), return_indices=True)
    indices = (indices + move) % x.size
    options = {"kernel_shape": [2, 2], "strides": [2, 2]}
    (z,) = run(session_of("MaxUnpool", [y, indices], **options), y, indices)
    assert np.array_equal(z, unpool.max_unpool(y, indices, **options))
    assert len(calls) == 1


def test_a_wrong_index_is_refused():
    """The status has the sentence of the function, with the value and the place."""
    y, indices = random(1, 2, 4, 4), np.arange(32).reshape(1, 2, 4, 4)
    indices[0, 1, 2, 3] = 128
    session = session_of("MaxUnpool", [y, indices], kernel_shape=[2, 2], strides=[2, 2])
    with pytest.raises(
        InvalidArgument, match=r"need values from 0 to 127, got 128 at \[0, 1, 2, 3\]\. Pass the indices"
    ):
        run(session, y, indices)


def test_plans_of_many_shapes_are_dropped():
    """A node keeps the last few; what they refer to is forgotten when another one is asked for."""
    session = session_of("MaxPool", [random(1, 1, 8, 8)], kernel_shape=[2, 2])
    run(session, random(1, 1, 8, 8))
    before = len(planner._plans)
    for size in range(3, 60):
        run(session, random(1, 1, size, 8))
    assert len(planner._plans) <= before + 9


@needs_zig
def test_damaged_plans_are_refused_or_run(tmp_path):
    """A short campaign, with zig's checks of undefined behaviour."""
    plans.compile_reader([sys.executable, "-m", "ziglang", "cc"], tmp_path / "reader")
    plans.write_plans(tmp_path / "plans")
    done = subprocess.run(
        [tmp_path / "reader", tmp_path / "plans", "1000", "1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    refused, _, ran, _ = done.stdout.split()
    assert int(refused) > 200
    assert int(ran) > 200
