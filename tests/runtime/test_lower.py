"""Models lowered for other runtimes: they run there alone, and give the bits that unpool and the oracle give."""

import json
import re
from functools import cache
from importlib.resources import files

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import unpool
from tests import oracle
from tests.cases import decomposed
from tests.support import models
from tests.support.command import invoke
from unpool.cli.errors import OK, USAGE
from unpool.errors import UnsupportedError
from unpool.graph.dynamic_dims import DimFlow
from unpool.graph.graph import Graph, unused_names
from unpool.graph.shape_inference import infer
from unpool.operators.semantics import Semantics
from unpool.runtime.lower import checks, emit_unpool
from unpool.runtime.lower import lower as lower_module
from unpool.runtime.lower.lower import lower
from unpool.runtime.lower.targets import TARGETS
from unpool.runtime.lower.unpooling import lower_unpoolings
from unpool.runtime.runtimes import runtimes

POOLS = {
    "side by side, odd sizes": ((2, 3, 7, 9), "kernel_shape = [2, 2], strides = [2, 2]"),
    "overlapping, padded, ceil": (
        (1, 2, 8, 7),
        "kernel_shape = [3, 3], strides = [2, 2], pads = [1, 0, 1, 1], ceil_mode = 1",
    ),
    "every cell in nine windows": ((1, 2, 5, 6), "kernel_shape = [3, 3], pads = [1, 1, 1, 1]"),
    "gaps between windows": ((1, 2, 8, 10), "kernel_shape = [2, 1], strides = [3, 2]"),
    "1-D, dilated": ((2, 3, 11), "kernel_shape = [3], strides = [2], dilations = [2], pads = [1, 2]"),
    "3-D": ((1, 2, 5, 6, 7), "kernel_shape = [3, 2, 2], strides = [2, 2, 2], pads = [1, 0, 0, 1, 0, 0]"),
}
POOLS["dilated, ceil"] = ((1, 2, 7, 8), "kernel_shape = [2, 2], strides = [2, 3], dilations = [2, 2], ceil_mode = 1")
FORMS = {"broadcast": "openvino", "resize": "any"}


def round_trip(name, *, is_open=False, opset=17):
    """A pool, sums along a row so that every window has a value of its own, and an unpooling to the size of x."""
    shape, window = POOLS[name]
    sizes = ", ".join(f"d{axis}" if is_open and axis > 1 else str(size) for axis, size in enumerate(shape))
    unpool_window = re.sub(r", (dilations = \[.*?\]|ceil_mode = 1)", "", window)
    dims = ", ".join(f"e{axis}" for axis in range(len(shape)))
    return models.model(
        f"""round_trip (float[{sizes}] x) => (float[{dims}] z) {{
            y, i = MaxPool <{window}> (x)
            v = CumSum (y, last)
            s = Shape (x)
            z = MaxUnpool <{unpool_window}> (v, i, s)
        }}""",
        opset=opset,
        last=np.int64(len(shape) - 1),
    )


def open_sizes(rank, window, unpool_window="", *, has_pool=True):
    """A pool and an unpooling of `rank` spatial axes whose sizes are open; without a pool, of indices that are fed."""
    axes = ", ".join(f"d{axis}" for axis in range(rank))
    shape = ", ".join("o" * (1 + axis) for axis in range(rank + 2))
    window = f"kernel_shape = {[window] * rank}, strides = {[2] * rank}"
    if not has_pool:
        inputs = f"float[n, 1, {axes}] x, int64[n, 1, {axes}] i"
        return models.model(f"g ({inputs}) => (float[{shape}] z) {{ z = MaxUnpool <{window}> (x, i) }}")
    return models.model(
        f"""g (float[n, 1, {axes}] x) => (float[{shape}] z) {{
            y, i = MaxPool <{window}{unpool_window}> (x)
            s = Shape (x)
            z = MaxUnpool <{window}> (y, i, s)
        }}"""
    )


@pytest.mark.parametrize("has_pool", [True, False])
@pytest.mark.parametrize("rank", [1, 2, 3, 4, 6])
def test_parts_are_checked_on_few_elements(rank, has_pool, monkeypatch):
    """A part of open sizes is run on few elements, whatever its rank; its outputs too."""
    made = []
    monkeypatch.setattr(lower_module, "check_lowering", lambda _, tests, __: made.extend(tests) or ())
    monkeypatch.setattr(lower_module, "_require_run", lambda _: None)
    lower(open_sizes(rank, 2, has_pool=has_pool), "any")
    (part,) = made
    sizes = [array.size for feed, output in part.cases for array in (*feed.values(), output)]
    assert max(sizes) <= 6 * checks.MAX_ELEMENTS


@pytest.mark.parametrize(
    ("rank", "window"), [(2, "dilations = [200, 200]"), (3, "dilations = [80, 1, 80]"), (1, "dilations = [70000]")]
)
def test_windows_that_reach_far_are_scattered(rank, window):
    """A window with large gaps would take thousands of nodes to follow, so its indices are scattered."""
    model = open_sizes(rank, 2, f", {window}")
    types = infer(Graph.from_model(model), Semantics()).types
    flow = DimFlow(Graph.from_model(model), types)
    (part,) = lower_unpoolings(flow, unused_names(flow.graph), 2, "output")
    assert part.pooling is None
    assert len(part.edit.nodes) < 20


@pytest.mark.parametrize("sizes", [[1, 1, 4, 4], [1, 1, 2, 2], [2, 1, 30, 40]])
def test_an_output_shape_that_is_smaller_than_open_sizes(sizes):
    """Where output_shape is constant and X is open, the part is checked on sizes that fit into it."""
    model = models.model(
        f"""g (float[{sizes[0]}, 1, h, w] x) => (float[a, b, c, d] z) {{
            t = Relu (x)
            k = Cast <to = 7> (x)
            i = Mul (k, none)
            z = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (t, i, s)
        }}""",
        s=np.int64(sizes),
        none=np.int64([0]),
    )
    done = lower(model, "any", index_space="output", sizes={"h": 2, "w": 2})
    assert [one.after for one in done.changes] == ["ScatterElements into zeros"]
    assert [one.reason for one in done.checks] == [""] * len(done.checks)


def whole_numbers(shape, seed=0):
    """Small integers, both zeros among them: many are equal, and sums of them are exact."""
    rng = np.random.default_rng((seed, *shape))
    return (rng.integers(-2, 3, shape) * rng.choice([-1.0, 1.0], shape)).astype(np.float32)


def by_oracle(name, x):
    """What the round trip of `x` gives by the slow loops."""
    attributes = helper_attributes(POOLS[name][1])
    y, i = oracle.max_pool(x, return_indices=True, **attributes)
    kept = {key: value for key, value in attributes.items() if key in ("kernel_shape", "strides", "pads")}
    v = np.cumsum(y, axis=-1, dtype=np.float32)
    return oracle.max_unpool(v, i, np.array(x.shape), index_space="output", **kept)


def helper_attributes(text):
    """Attributes of a node in ONNX's text form as Python values."""
    node = onnx.parser.parse_node(f"y = MaxPool <{text}> (x)")
    return {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}


@cache
def installed():
    """The runtimes in which lowered models are run."""
    return tuple(runtimes())


def assert_runs_alone(model, feed, expected, words=("onnxruntime", "openvino")):
    """Onnxruntime and OpenVINO give the expected outputs, bit for bit but for the sign of zeros."""
    for runtime in installed():
        if runtime.word not in words:
            continue
        got = runtime.open(model)(feed)
        for one, other in zip(expected, got, strict=True):
            assert bits(one) == bits(other), runtime.name


def bits(array):
    """Type, shape and bits, but for the sign of zeros, which onnxruntime's Where and MaxPool do not keep."""
    return array.dtype, array.shape, np.where(array == 0, np.zeros_like(array), array).tobytes()


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("name", "form", "is_open"),
    [(name, form, (at + of) % 2 == 1) for at, name in enumerate(POOLS) for of, form in enumerate(FORMS)],
)
def test_round_trips_give_the_bits_of_the_oracle(name, form, is_open):
    """Ties, overlapping windows, odd sizes, padding and gaps: equal to the slow loops in onnxruntime and OpenVINO."""
    x = whole_numbers(POOLS[name][0])
    expected = by_oracle(name, x)
    done = lower(round_trip(name, is_open=is_open), FORMS[form])
    operators = {node.op_type for node in done.model.graph.node}
    assert not operators & {"MaxUnpool", "ScatterElements"}
    assert ("Resize" in operators) == ((form == "resize" or name == "3-D") and "strides" in POOLS[name][1])
    assert [len(node.output) for node in done.model.graph.node if node.op_type == "MaxPool"] == [1]
    assert_runs_alone(done.model, {"x": x}, [expected])


@pytest.mark.parametrize("dtype", ["float", "float16", "uint8"])
def test_a_window_that_begins_in_the_padding_is_dropped_everywhere(dtype):
    """One lowered pool with open sizes, a Pad before it for its dilation, gives the values of the oracle at each.

    onnxruntime puts the Pad of integers into the pool, and then refuses the pads, so only OpenVINO gets it.
    """
    window = "kernel_shape = [2, 3], strides = [3, 2], dilations = [2, 1], pads = [0, 1, 1, 0], ceil_mode = 1"
    model = models.model(f"pool ({dtype}[1, 2, h, w] x) => ({dtype}[1, 2, p, q] y) {{ y = MaxPool <{window}> (x) }}")
    done = lower(model, "openvino")
    assert [node.op_type for node in done.model.graph.node] == ["Pad", "MaxPool"]
    assert done.changes
    assert not done.problems
    for size in ((5, 4), (6, 5), (7, 6)):
        x = np.abs(whole_numbers((1, 2, *size))).astype({"float": "float32"}.get(dtype, dtype))
        words = ("openvino",) if dtype == "uint8" else ("onnxruntime", "openvino")
        assert_runs_alone(done.model, {"x": x}, [oracle.max_pool(x, **helper_attributes(window))], words)
    for_all = [node.op_type for node in lower(model, "any").model.graph.node]
    assert for_all == (["MaxPool"] if dtype == "uint8" else ["Pad", "MaxPool"])


def test_indices_that_are_read_keep_ceil_mode():
    """A Pad would move them, so the pool stays as it is, and the report says what OpenVINO makes of it."""
    window = "kernel_shape = [2], strides = [2], dilations = [2], ceil_mode = 1"
    done = lower(
        models.model(
            f"pool (float[1, 1, w] x) => (float[1, 1, p] y, int64[1, 1, p] i) {{ y, i = MaxPool <{window}> (x) }}"
        ),
        "any",
    )
    assert [node.op_type for node in done.model.graph.node] == ["MaxPool"]
    assert done.problems


def halved(size):
    """A Conv and a pool, and an unpooling into a size that the graph computes from the size of x, as exporters do."""
    model = models.model(
        f"""halved (float[1, 1, h] x) => (float[1, 3, a] z) {{
            c = Conv <kernel_shape = [3], strides = [2], pads = [1, 1]> (x, w)
            r = Relu (c)
            y, i = MaxPool <kernel_shape = [2], strides = [2]> (r)
            s = Shape (x)
            h1 = Gather (s, last)
            size = {size}
            shape = Concat <axis = 0> (outer, size)
            z = MaxUnpool <kernel_shape = [2], strides = [2]> (y, i, shape)
        }}""",
        w=np.float32([[[1, 0, -1]], [[0, 2, 1]], [[-1, 1, 0]]]),
        last=np.int64([2]), outer=np.int64([1, 3]), one=np.int64([1]), two=np.int64([2]),
    )  # fmt: skip
    up = onnx.parser.parse_graph("up (int64[1] h1) => (int64[1] size) { more = Add (h1, one) size = Div (more, two) }")
    if size == "Div (more, two)":
        model.graph.node.insert(5, up.node[0])
    return model


def test_sizes_that_the_graph_computes_are_those_of_the_pool():
    """The Conv makes (h + 1) // 2 of h, so an unpooling into that size follows the pool; one into h // 2 may not."""
    done = lower(halved("Div (more, two)"), "openvino")
    assert not {"MaxUnpool", "ScatterElements"} & {node.op_type for node in done.model.graph.node}
    for size in (8, 11):
        x = whole_numbers((1, 1, size))
        assert_runs_alone(
            done.model, {"x": x}, unpool.InferenceSession(halved("Div (more, two)"), exact=True).run(None, {"x": x})
        )
    with pytest.raises(UnsupportedError, match="cannot tell which shape the indices refer to"):
        lower(halved("Div (h1, two)"), "openvino")
    with pytest.raises(UnsupportedError, match="not known to be the default output size, in which its indices count"):
        lower(halved("Div (h1, two)"), "openvino", index_space="inferred")


@pytest.mark.slow
def test_the_network_of_the_demo_is_lowered():
    """Its sizes are open and halved three times; OpenVINO finds the same coins alone."""
    path = files("unpool") / "data" / "coins.onnx"
    done = lower(path.read_bytes(), "openvino")
    assert not {"MaxUnpool", "ScatterElements", "Mod"} & {node.op_type for node in done.model.graph.node}
    assert [one.reason for one in done.checks] == [""] * len(installed())
    x = np.random.default_rng(2).uniform(0, 255, (1, 1, 45, 51)).astype(np.float32)
    (expected,) = unpool.InferenceSession(path.read_bytes()).run(None, {"image": x})
    for runtime in installed():
        (got,) = runtime.open(done.model)({"image": x})
        assert (got.argmax(1) == expected.argmax(1)).mean() > 0.99, runtime.name


def exact(model):
    """The model with small integers as weights, so that convolutions give the same bits wherever they run."""
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype.kind == "f":
            whole = np.ones_like(array) if tensor.name.endswith("v") else np.clip(np.round(array), -2, 2)
            tensor.CopyFrom(numpy_helper.from_array(whole, tensor.name))
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            node.attribute.append(helper.make_attribute("epsilon", 0.0))
    return model


@pytest.mark.sample(4)
@pytest.mark.parametrize("target", TARGETS)
def test_segnet_runs_alone_bit_for_bit(target):
    """Convolutions, two pools, two unpoolings, a skip and a ConvTranspose: the bits of unpool in other runtimes."""
    model = exact(models.segnet(opset=11))
    feed = {"image": whole_numbers((1, 3, 12, 10))}
    expected = unpool.InferenceSession(model, exact=True).run(None, feed)
    done = unpool.lower(model, target)
    assert next(one.version for one in done.model.opset_import if one.domain == "") == 13
    assert all(not one.reason for one in done.checks)
    assert_runs_alone(done.model, feed, expected)
    strangers = {node.op_type for node in done.model.graph.node} - TARGETS[target].operators
    assert bool(strangers) == bool(done.problems) == (target == "coreml")


def test_the_channels_last_domain_becomes_onnx():
    """NHWC nodes become ONNX's own between Transposes, with their activation behind them."""
    model = exact(models.nhwc())
    feed = {"x": whole_numbers((1, 2, 6, 6))}
    done = lower(model, "onnxruntime-web")
    assert {node.domain for node in done.model.graph.node} == {""}
    (expected,) = unpool.InferenceSession(model, exact=True).run(None, feed)
    (got,) = installed()[0].open(done.model)(feed)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_a_decomposed_unpooling_is_raised_first():
    """The ScatterND of torch's exporter and its second pool are gone, too."""
    done = lower(decomposed.by_hand(), "tensorrt")
    operators = [node.op_type for node in done.model.graph.node]
    assert operators.count("MaxPool") == 1
    assert "ScatterND" not in operators


def foreign(space="", opset=17):
    """A MaxUnpool whose indices are an input of the model."""
    return models.model(
        f"""foreign (float[1, 2, 3, 3] x, int64[1, 2, 3, 3] i) => (float[1, 2, a, b] z) {{
            z = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (x, i{space})
        }}""",
        opset=opset,
        **({"shape": np.int64([1, 2, 7, 6])} if space else {}),
    )


def test_indices_from_outside_are_scattered():
    """Without a pool there is nothing to compare with: the flat scatter gives the bits of MaxUnpool."""
    done = lower(foreign(), "openvino")
    assert "ScatterElements" in {node.op_type for node in done.model.graph.node}
    x, i = models.random(1, 2, 3, 3), np.random.default_rng(1).permutation(72)[:18].reshape(1, 2, 3, 3)
    expected = oracle.max_unpool(x, i, kernel_shape=[2, 2], strides=[2, 2])
    assert_runs_alone(done.model, {"x": x, "i": i}, [expected])


def test_a_scatter_has_to_know_where_indices_count():
    """With an output_shape of its own it is refused, until index_space says what is meant."""
    with pytest.raises(UnsupportedError, match="add --index-space output"):
        lower(foreign(", shape"), "openvino")
    assert lower(foreign(", shape"), "openvino", index_space="output").changes


@pytest.mark.parametrize("order", ["first", "last"])
def test_a_wrong_tie_is_noticed(monkeypatch, order):
    """The check before writing fails if the last of equal elements were taken instead of the first."""
    if order == "last":
        monkeypatch.setattr(emit_unpool, "reversed", list, raising=False)
        with pytest.raises(UnsupportedError, match="expected the bits"):
            lower(round_trip("side by side, odd sizes"), "any")
    else:
        lower(round_trip("side by side, odd sizes"), "any")


def test_bodies_and_unknown_targets_are_refused():
    """What cannot be lowered says so before any work is done."""
    inner = models.model(
        """inner (bool c, float[1, 1, 4] x, int64[1, 1, 2] i, float[1, 1, 2] v) => (float[1, 1, 4] y) {
            y = If (c) <
                then_branch = yes () => (float[1, 1, 4] a) { a = MaxUnpool <kernel_shape = [2], strides = [2]> (v, i) },
                else_branch = no () => (float[1, 1, 4] b) { b = Identity (x) }
            >
        }"""
    )
    with pytest.raises(UnsupportedError, match="Move it out"):
        lower(inner, "any")
    with pytest.raises(UnsupportedError, match="expected a target of openvino"):
        lower(inner, "caffe")


def test_the_command_writes_and_reports(tmp_path):
    """It writes a new file, says what changed and where it was checked, and never replaces its input unasked."""
    path, output = tmp_path / "trip.onnx", tmp_path / "lowered.onnx"
    onnx.save(round_trip("side by side, odd sizes"), path)
    before = path.read_bytes()
    refused = invoke("lower", path, "--for", "any", "-o", path)
    assert refused.exit_code == USAGE
    done = invoke("lower", path, "--for", "openvino", "-o", output)
    assert done.exit_code == OK
    said = "MaxUnpool->z: MaxUnpool-11 -> positions found again by comparing with the result of MaxPool->y"
    assert done.stdout.splitlines()[0] == said
    assert "onnxruntime" in done.stdout
    assert done.stdout.splitlines()[-1].startswith(f"{output}: 1 change, for OpenVINO")
    assert path.read_bytes() == before
    result = invoke("lower", path, "--for", "any", "-o", output, "--json")
    assert json.loads(result.stdout)["changes"][0]["node"] == "MaxUnpool->z"
