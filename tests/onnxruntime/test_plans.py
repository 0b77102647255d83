"""Plans: the operators in a session compute without Python, bit for bit as the functions."""

import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import onnx
import onnxruntime
import pytest

import unpool
import unpool.onnxruntime
from tests.campaigns import plans
from unpool import execute
from unpool.onnxruntime import planner

OPSET = 22


def session_of(operator, inputs, constants=(), **attributes):
    """A session of one node; `inputs` and `constants` are arrays."""
    names, values = [f"x{number}" for number in range(len(inputs))], {}
    for number, constant in enumerate(constants):
        values[f"c{number}"] = constant
    outputs = ["y", "i"] if attributes.pop("has_indices", False) else ["y"]
    node = onnx.helper.make_node(operator, [*names, *values], outputs, **attributes)
    graph = onnx.helper.make_graph(
        [node],
        "test",
        [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(x.dtype), [None] * x.ndim)
            for name, x in zip(names, inputs, strict=True)
        ],
        [onnx.helper.make_value_info(name, onnx.TypeProto()) for name in outputs],
        [onnx.numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    for name, output in zip(outputs, graph.output, strict=True):
        kind = np.dtype(np.int64) if name == "i" else inputs[0].dtype
        output.type.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype(kind)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    unpool.onnxruntime.register(options, opset=OPSET)
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def run(session, *inputs):
    return session.run(None, {f"x{number}": x for number, x in enumerate(inputs)})


@pytest.fixture
def without_python(monkeypatch):
    """Fails where a node calls Python to compute: only plans may run."""
    calls = []
    monkeypatch.setattr(planner, "_shared", {})  # of earlier tests
    monkeypatch.setattr(planner, "_inputs", lambda *args, old=planner._inputs: calls.append(1) or old(*args))
    return calls


def random(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def transposed(x, w, b=None, **attributes):
    """The function, with weights that are constants."""
    return unpool.conv_transpose(x, execute.own_weights(w), b, opset=OPSET, **attributes)


def test_a_shape_is_planned_once(without_python):
    """Later runs, of earlier shapes too, call nothing of Python."""
    session = session_of("MaxPool", [random(1, 2, 8, 8)], kernel_shape=[2, 2], strides=[2, 2], has_indices=True)
    for size in (8, 6, 8, 6, 8):
        x = random(1, 2, size, 8)
        y, i = run(session, x)
        expected = unpool.max_pool(x, kernel_shape=(2, 2), strides=(2, 2), return_indices=True)
        assert np.array_equal(y, expected[0])
        assert np.array_equal(i, expected[1])
    assert len(without_python) == 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("special", [0.0, np.nan, np.inf, 1e30])
@pytest.mark.parametrize("share", ["none", "some", "all"])
@pytest.mark.parametrize(("sizes", "window", "stride"), [((24, 20), 3, 1), ((12, 16), 4, 2), ((5, 12, 12), 3, 1)])
def test_inaccurate_tiles_are_those_of_the_function(without_python, dtype, special, share, sizes, window, stride):
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
    spec_uses_winograd = execute.conv_transpose_algorithm(
        unpool.operators.resolve.spec("ConvTranspose", options, opset=OPSET), x.shape, w.shape, np.dtype(dtype)
    )
    session = session_of("ConvTranspose", [x], [w], **options)
    (y,) = run(session, x)
    assert np.array_equal(y, transposed(x, w, **options), equal_nan=True)
    assert spec_uses_winograd in ("winograd", "phases")
    asked = len(without_python)
    run(session, x)
    assert len(without_python) == asked


@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_a_maximum_that_equals_padding(without_python, dtype):
    """Where a maximum may be padding, windows are walked one by one."""
    lowest = -np.inf if dtype is np.float32 else -128
    x = random(2, 3, 40, 40).astype(dtype)
    x[1, :, 10:30, 5:35] = lowest
    options = {"kernel_shape": [7, 7], "strides": [1, 1], "pads": [3] * 4}
    y, i = run(session_of("MaxPool", [x], has_indices=True, **options), x)
    expected = unpool.max_pool(x, return_indices=True, **options)
    assert np.array_equal(y, expected[0])
    assert np.array_equal(i, expected[1])
    assert len(without_python) == 1


def test_equal_nodes_share_a_plan(without_python):
    """Python plans a pool once, and again for another window or shape."""
    x, small = random(2, 3, 16, 16), random(2, 3, 8, 16)
    for window, value in ((2, x), (2, x), (3, x), (2, small), (3, x)):
        options = {"kernel_shape": [window, window]}
        (y,) = run(session_of("MaxPool", [value], **options), value)
        assert np.array_equal(y, unpool.max_pool(value, **options))
    assert len(without_python) == 3


@pytest.mark.parametrize("move", [0, 1, 64, 100])
def test_indices_outside_their_windows_and_planes(without_python, move):
    """The stream fails, and elements are scattered: inside their planes, or anywhere."""
    x = random(2, 3, 16, 16)
    y, indices = unpool.max_pool(x, kernel_shape=(2, 2), strides=(2, 2), return_indices=True)
    indices = (indices + move) % x.size
    options = {"kernel_shape": [2, 2], "strides": [2, 2]}
    (z,) = run(session_of("MaxUnpool", [y, indices], **options), y, indices)
    assert np.array_equal(z, unpool.max_unpool(y, indices, **options))
    assert len(without_python) == 1


def test_a_wrong_index_is_refused():
    """The status has the sentence of the function, with the value and the place."""
    y, indices = random(1, 2, 4, 4), np.arange(32).reshape(1, 2, 4, 4)
    indices[0, 1, 2, 3] = 128
    session = session_of("MaxUnpool", [y, indices], kernel_shape=[2, 2], strides=[2, 2])
    with pytest.raises(Exception, match=r"need values from 0 to 127, got 128 at \[0, 1, 2, 3\]\. Pass the indices"):
        run(session, y, indices)


def test_plans_of_many_shapes_are_dropped():
    """A node keeps the last few; what they refer to is forgotten when another one is asked for."""
    session = session_of("MaxPool", [random(1, 1, 8, 8)], kernel_shape=[2, 2])
    run(session, random(1, 1, 8, 8))
    before = len(planner._plans)
    for size in range(3, 60):
        run(session, random(1, 1, size, 8))
    assert len(planner._plans) <= before + 9


@pytest.mark.skipif(find_spec("ziglang") is None, reason="a wheel is tested without zig, which compiles the program")
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
