"""Plans of pools: every call of the contract computes without Python, bit for bit as the functions."""

import math
from unittest.mock import patch

import numpy as np
import onnx
import onnxruntime
import pytest

import unpool
import unpool.onnxruntime
from tests.support.ort_values import to_numpy, to_value
from unpool.kernels.cpu.max_pool import doubling
from unpool.onnxruntime import planner

NHWC = "com.ms.internal.nhwc"
ACTIVATIONS = {
    "Relu": [], "LeakyRelu": [0.25], "Tanh": [], "Sigmoid": [], "Clip": [-0.5, 0.75], "HardSigmoid": [0.25, 0.625],
    "HardSwish": [],
}  # fmt: skip


@pytest.fixture(autouse=True)
def without_python(monkeypatch):
    """No call may be computed by Python: only plans run."""

    def compute(*_):
        raise AssertionError("computed by Python")

    monkeypatch.setattr(planner, "use_pool", compute)


def run(operator, *inputs, layout="NCHW", outputs=1, index_space="auto", **attributes):
    """The outputs of a session of one node."""
    names, results = [f"x{number}" for number in range(len(inputs))], [f"y{number}" for number in range(outputs)]
    domain = NHWC if layout == "NHWC" else ""
    node = onnx.helper.make_node(operator, names, results, domain=domain, **attributes)
    kinds = [onnx.helper.np_dtype_to_tensor_dtype(x.dtype) for x in inputs]
    graph = onnx.helper.make_graph(
        [node],
        "test",
        [
            onnx.helper.make_tensor_value_info(name, kind, [None] * x.ndim)
            for name, kind, x in zip(names, kinds, inputs, strict=True)
        ],
        [
            onnx.helper.make_tensor_value_info(name, kind, None)
            for name, kind in zip(results, (kinds[0], onnx.TensorProto.INT64), strict=False)
        ],
    )
    imports = [onnx.helper.make_opsetid(each, 22) for each in {domain, ""}]
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    unpool.onnxruntime.register(options, opset=22, index_space=index_space)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    feeds = {name: to_value(x) for name, x in zip(names, inputs, strict=True)}
    return tuple(map(to_numpy, session.run_with_ort_values(results, feeds)))


def random(*shape, dtype=np.float32, seed=0):
    return (9 * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def assert_same(found, expected):
    """The same bits, of all outputs."""
    for y, right in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert (y.shape, y.dtype) == (right.shape, right.dtype)
        assert y.tobytes() == np.ascontiguousarray(right).tobytes()


def pooled(x, **options):
    return unpool.max_pool(x, return_indices=True, **options)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("storage_order", [0, 1])
@pytest.mark.parametrize("shape", [(2, 3, 9, 11), (1, 70, 5, 6), (2, 2, 3, 4, 5), (3, 2, 17)], ids=str)
@pytest.mark.parametrize("pads", [0, 1])
def test_indices_in_every_order(layout, storage_order, shape, pads):
    """Channels-last and column-major indices, also of windows without data, are those of the function."""
    x = random(*shape)
    x = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if layout == "NHWC" else x
    rank = len(shape) - 2
    options = {
        "kernel_shape": [3] * rank, "strides": [2] * rank, "pads": [4 * pads] * 2 * rank, "storage_order": storage_order
    }  # fmt: skip
    assert_same(run("MaxPool", x, layout=layout, outputs=2, **options), pooled(x, layout=layout, **options))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8, np.uint8])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(dtype, name):
    """A pool's output is activated in place; its indices stay."""
    x, params = random(2, 9, 8, 5, dtype=dtype), ACTIVATIONS[name]
    options = {"kernel_shape": [2, 3], "activation": name, **({"activation_params": params} if params else {})}
    if dtype in (np.int8, np.uint8) and name not in ("Relu", "Clip"):
        with pytest.raises(Exception, match="Use a float type"):
            run("MaxPool", x, layout="NHWC", outputs=2, **options)
        return
    assert_same(run("MaxPool", x, layout="NHWC", outputs=2, **options), pooled(x, layout="NHWC", **options))


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("move", [0, 1, 50])
def test_activations_of_zeros(name, move):
    """Whichever way an unpooled output is written, all of it is activated."""
    x, params = random(2, 8, 6, 5), ACTIVATIONS[name]
    y, indices = pooled(x, layout="NHWC", kernel_shape=[2, 2], strides=[2, 2])
    indices = (np.ascontiguousarray(indices) + move) % x.size
    options = {"kernel_shape": [2, 2], "strides": [2, 2], "activation": name}
    options |= {"activation_params": params} if params else {}
    expected = unpool.max_unpool(y, indices, layout="NHWC", **options)
    assert_same(run("MaxUnpool", y, indices, layout="NHWC", **options), expected)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("index_space", ["auto", "inferred", "output"])
@pytest.mark.parametrize("counts_in", ["inferred", "output", "neither"])
def test_index_spaces(layout, index_space, counts_in):
    """Indices count in the inferred shape or in the output, as the setting or the indices themselves say."""
    x = random(2, 3, 8, 10) if counts_in != "output" else random(2, 3, 9, 13)
    y, indices = pooled(x, kernel_shape=[2, 2], strides=[2, 2])
    y, indices = np.ascontiguousarray(y[..., :4, :5]), np.ascontiguousarray(indices[..., :4, :5])
    if counts_in == "neither":
        indices = np.random.default_rng(0).integers(0, x.size, indices.shape)
    if layout == "NHWC":
        y = np.ascontiguousarray(np.moveaxis(y, 1, -1))
    sizes, options = np.array((2, 3, 9, 13)), {"kernel_shape": [2, 2], "strides": [2, 2], "index_space": index_space}
    given = {key: value for key, value in options.items() if key != "index_space"}
    if index_space == "inferred" and counts_in == "output":
        with pytest.raises(unpool.IndicesError) as expected:
            unpool.max_unpool(y, indices, sizes, layout=layout, opset=22, **options)
        with pytest.raises(Exception, match="indices need values from 0 to 479") as refused:
            run("MaxUnpool", y, indices, sizes, layout=layout, index_space=index_space, **given)
        assert str(expected.value) in str(refused.value)
        return
    found = run("MaxUnpool", y, indices, sizes, layout=layout, index_space=index_space, **given)
    assert_same(found, unpool.max_unpool(y, indices, sizes, layout=layout, **options))


@pytest.mark.parametrize("shape", [(0, 2, 4, 4), (2, 0, 4, 4), (1, 2, 0, 4)], ids=str)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_empty_pools(shape, layout):
    """Nothing is pooled, or windows without data."""
    x = np.zeros(shape, np.float32)
    x = np.moveaxis(x, 1, -1) if layout == "NHWC" else x
    options = {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1]}
    assert_same(run("MaxPool", x, layout=layout, outputs=2, **options), pooled(x, layout=layout, **options))


@pytest.mark.parametrize("small", [(0, 2, 3, 3), (1, 2, 0, 3)], ids=str)
def test_nothing_is_unpooled(small):
    """All of the output is zero, or there is none."""
    sizes = np.array((*small[:2], 6, 7))
    x, indices = np.zeros(small, np.float32), np.zeros(small, np.int64)
    options = {"kernel_shape": [2, 2], "strides": [2, 2]}
    assert_same(run("MaxUnpool", x, indices, sizes, **options), unpool.max_unpool(x, indices, sizes, **options))


def test_no_index_is_right_in_an_empty_output():
    """Elements have no place in an output without elements."""
    x, indices = np.ones((1, 1, 2, 2), np.float32), np.zeros((1, 1, 2, 2), np.int64)
    with pytest.raises(Exception, match=r"indices need values from 0 to -1, got 0 at \[0, 0, 0, 0\]"):
        run("MaxUnpool", x, indices, np.array((1, 1, 0, 4)), kernel_shape=[2, 2], strides=[2, 2])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_windows_that_share_most_elements(layout):
    """Pooling by doubling is compiled."""
    x = random(1, 3, 12, 20) if layout == "NCHW" else random(1, 12, 20, 3)
    x.reshape(-1)[:: math.isqrt(x.size)] = np.nan
    options = {"kernel_shape": [9, 9], "dilations": [1, 2], "pads": [4] * 4, "layout": layout}
    expected = pooled(x, **options)
    unpool.execute.clear_cache()
    del options["layout"]
    with patch.object(doubling, "is_worthwhile", return_value=True):
        found = run("MaxPool", x, layout=layout, outputs=2, **options)
    unpool.execute.clear_cache()
    assert_same(found, expected)
