"""The plan: who runs each node and why, and how the graph is cut."""

from unittest.mock import patch

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import unpool
from tests.support import models
from unpool.kernels.cpu import weights
from unpool.kernels.cpu.weights import Packings
from unpool.operators.contract import OPERATORS
from unpool.runtime.backends import build
from unpool.runtime.graph import shapes
from unpool.runtime.plan.plan import cut
from unpool.runtime.session.session import FallbackWarning


def runners(model, **options):
    """Node label to runner, `inside` nodes included."""
    return {one.node: one.runner for one in unpool.InferenceSession(model, **options).plan}


def runner_of_pool(*args, **options):
    """Who runs the plain pool of `models.plain_pools`."""
    return runners(models.plain_pools(*args, **options))["MaxPool->p"]


def test_segnet_is_cut_by_the_level_rule():
    """Ours are the indexed pools, the unpools and the ConvTranspose; between them lie as few partitions as levels."""
    plan = unpool.InferenceSession(models.segnet()).plan
    ours = [one.operator for one in plan if one.runner == "unpool"]
    assert ours == ["MaxPool", "MaxPool", "MaxUnpool", "ConvTranspose", "MaxUnpool"]
    partitions = [step for step in plan.steps if step.runner == "onnxruntime"]
    assert [step.level for step in partitions] == [0, 1, 3, 5]
    assert [len(step.nodes) for step in partitions] == [3, 2, 1, 1]
    assert {one.runner for one in plan} == {"unpool", "onnxruntime"}


@pytest.mark.parametrize(("x", "way"), [([1, 16, 9, 9], ", by phases"), ([1, 16, 1, 1], ", by gemm_1x1"), (None, "")])
def test_plan_says_how_a_conv_transpose_is_computed(x, way, monkeypatch):
    """Where the shape of X is known, and it packs the constant weights then."""
    w = np.ones((16, 8, 3, 3), np.float32)
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", x), ("y", None))]
    graph = helper.make_graph([node], "g", values[:1], values[1:], [onnx.numpy_helper.from_array(w, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    made = []
    monkeypatch.setattr(weights, "Packings", lambda: made.append(Packings()) or made[-1])
    session = unpool.InferenceSession(model)
    (record,) = session.plan
    assert record.reason == f"unpool runs every ConvTranspose{way}"
    assert [len(each) for each in made] == ["phases" in way]


def test_parallel_branches_share_a_partition():
    """Nodes of one level are one partition, connected or not."""
    plan = unpool.InferenceSession(models.branches()).plan
    partitions = [step for step in plan.steps if step.runner == "onnxruntime"]
    assert [len(step.nodes) for step in partitions] == [2, 2, 1]


def skip_model(outputs="float[1, 2, 8, 8] y"):
    """A branch past a pool, which an Add needs behind it."""
    return models.model(
        f"""skip (float[1, 2, 8, 8] x) => ({outputs}) {{
            a = Relu (x)
            p, i = MaxPool <{models.POOL}> (a)
            b = Neg (a)
            c = Sigmoid (b)
            u = MaxUnpool <{models.POOL}> (p, i)
            y = Add (u, c)
        }}"""
    )


def test_what_a_later_partition_needs_is_made_there():
    """A branch around our nodes runs in the partition that reads it, where onnxruntime may fuse it."""
    session = unpool.InferenceSession(skip_model())
    steps = {one.node: one.step for one in session.plan}
    assert steps["Relu->a"] < steps["MaxPool->p"] < steps["MaxUnpool->u"] < steps["Add->y"]
    assert steps["Neg->b"] == steps["Sigmoid->c"] == steps["Add->y"]


def test_an_output_does_not_wait_for_a_later_partition():
    """What the caller may ask for alone needs no more steps than it reads."""
    session = unpool.InferenceSession(skip_model("float[1, 2, 8, 8] y, float[1, 2, 8, 8] c"))
    steps = {one.node: one.step for one in session.plan}
    assert steps["Neg->b"] == steps["Sigmoid->c"] == steps["Relu->a"]
    assert len(session._model._loaded_plan.schedule(("c",))) == 1


def partition_inputs(model):
    """The sizes that each partition states of its inputs."""
    stated = {}

    def noted(*given):
        partition = cut(*given)
        stated.update({one.name: shapes.static_dims(one.type) for one in partition.graph.input})
        return partition

    with patch.object(build, "cut", noted):
        unpool.InferenceSession(model)
    return stated


def test_partitions_know_the_sizes_that_are_certain():
    """Behind our nodes and plain operators sizes are stated; behind any other one only the rank is."""
    stated = partition_inputs(skip_model())
    assert stated["u"] == stated["x"] == stated["a"] == (1, 2, 8, 8)
    other = models.model(
        f"""other (float[1, 2, 8, 8] x) => (float[1, 2, h, w] y) {{
            a = GlobalAveragePool (x)
            b = Add (a, x)
            p, i = MaxPool <{models.POOL}> (b)
            y = Relu (p)
        }}"""
    )
    assert partition_inputs(other)["p"] == (None,) * 4


def test_every_step_reads_what_was_made_before():
    """In plan order each step finds its inputs, and makes only what somebody reads."""
    for name in ("segnet", "branches", "conditional", "loop", "dynamic", "foreign_types"):
        model = getattr(models, name)()
        plan = unpool.InferenceSession(model).plan
        known = {value.name for value in model.graph.input}
        wanted = {value.name for value in model.graph.output}
        read = wanted.union(*(step.inputs for step in plan.steps))
        for step in plan.steps:
            assert known.issuperset(step.inputs)
            assert read.issuperset(step.outputs)
            known.update(step.outputs)
        assert known >= wanted


def test_a_plain_pool_stays_with_onnxruntime():
    """Where type and attributes agree, a pool without Indices is onnxruntime's, and the plan says what that means."""
    plan = unpool.InferenceSession(models.plain_pools()).plan
    (record,) = [one for one in plan if one.operator == "MaxPool"]
    assert record.runner == "onnxruntime"
    assert "NaN and all -inf windows are onnxruntime's" in record.reason


@pytest.mark.parametrize("opset", [8, 10, 11, 12, 22])
@pytest.mark.parametrize("kind", ["float", "float16", "double"])
def test_types_that_onnxruntime_pools(kind, opset):
    """float16, float32 and, from version 8 on, float64 have kernels there."""
    assert runner_of_pool(kind=kind, opset=opset) == "onnxruntime"


def test_a_double_pool_of_version_1_is_ours():
    """Onnxruntime has no float64 kernel before version 8."""
    assert runner_of_pool(kind="double", opset=7) == "unpool"


STATIC = "kernel_shape = [3, 3], strides = [2, 2]"
OURS = {
    "the window does not fit (3.1)": {"size": "2, 8", "attributes": STATIC},
    "nor perhaps with unknown sizes (3.1)": {"size": "h, w", "attributes": STATIC},
    "VALID with ceil_mode (3.3)": {"attributes": f'{STATIC}, auto_pad = "VALID", ceil_mode = 1'},
    "SAME with dilation (3.6)": {"attributes": 'kernel_shape = [3, 3], dilations = [1, 2], auto_pad = "SAME_UPPER"'},
    "SAME with a stride beyond the window (3.7)": {
        "attributes": 'kernel_shape = [1, 1], strides = [1, 2], auto_pad = "SAME_LOWER"'
    },
    "pads reach the kernel (3.10)": {"attributes": "kernel_shape = [2, 2], pads = [0, 0, 0, 2]"},
    "padding on both sides of a tap (3.10)": {
        "size": "2, 8",
        "attributes": "kernel_shape = [2, 2], dilations = [3, 1], pads = [1, 0, 1, 0]",
    },
    "bfloat16": {"kind": "bfloat16", "opset": 22},
    "an empty input": {"size": "0, 8", "attributes": "kernel_shape = [1, 1]"},
}
THEIRS = {
    "the window fits": {"size": "3, 8", "attributes": STATIC},
    "it fits with its padding, whatever the size": {
        "size": "h, w",
        "attributes": "kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]",
    },
    "a stride of 1 never differs": {"size": "h, w", "attributes": "kernel_shape = [3, 3]"},
    "VALID": {"attributes": f'{STATIC}, auto_pad = "VALID"'},
    "SAME": {"size": "h, w", "attributes": f'{STATIC}, auto_pad = "SAME_UPPER"'},
    "ceil_mode": {"attributes": f"{STATIC}, ceil_mode = 1"},
    "dilation without padding": {"attributes": "kernel_shape = [2, 2], dilations = [3, 3]"},
    "uneven pads": {"attributes": "kernel_shape = [3, 3], pads = [0, 1, 2, 0]"},
}


@pytest.mark.parametrize("name", OURS)
def test_plain_pools_that_could_differ_are_ours(name):
    """A combination that could silently differ in onnxruntime is taken, even if only for some shapes."""
    assert runner_of_pool(**OURS[name]) == "unpool"


@pytest.mark.parametrize("name", THEIRS)
def test_plain_pools_that_agree_are_not_taken(name):
    """Combinations that agree for every shape stay in onnxruntime's blocked layout."""
    assert runner_of_pool(**THEIRS[name]) == "onnxruntime"


def test_exact_takes_every_pool():
    """exact=True leaves no MaxPool to onnxruntime; nor does a graph of a single node."""
    assert runners(models.plain_pools(), exact=True)["MaxPool->p"] == "unpool"
    assert runners(models.only_pool())["MaxPool->y"] == "unpool"


def test_a_plain_pool_behind_ours_is_ours():
    """What unpool makes is not in onnxruntime's blocked layout; a pool behind a Relu there is onnxruntime's."""
    pool = "MaxPool <kernel_shape = [2, 2], strides = [2, 2]>"
    model = models.model(
        f"""b (float[1, 2, 6, 6] x) => (float[1, 2, 6, 6] y, float[1, 2, 6, 6] z) {{
            t = ConvTranspose <strides = [2, 2]> (x, w)
            y = {pool} (t)
            r = Abs (t)
            z = {pool} (r)
        }}""",
        w=models.random(2, 2, 2, 2),
    )
    assert runners(model) == {
        "ConvTranspose->t": "unpool", "MaxPool->y": "unpool", "Abs->r": "onnxruntime", "MaxPool->z": "onnxruntime",
    }  # fmt: skip


def test_channels_last_nodes_are_ours():
    """Nodes of com.ms.internal.nhwc are ours and carry their domain and version."""
    plan = unpool.InferenceSession(models.nhwc()).plan
    ours = [one.operator_version for one in plan if one.runner == "unpool"]
    assert ours == [f"{name}-11 ({models.NHWC})" for name in ("MaxPool", "MaxUnpool", "ConvTranspose")]


def test_an_unknown_type_makes_a_pool_ours():
    """Behind a node that onnx does not know, a pool is taken; partitions still learn the type from onnxruntime."""
    plan = unpool.InferenceSession(models.foreign_types()).plan
    assert [one.runner for one in plan] == ["onnxruntime", "unpool", "onnxruntime", "onnxruntime"]


@pytest.mark.parametrize(("name", "inner"), [("conditional", 2), ("loop", 1)])
def test_bodies_with_our_nodes_are_never_onnxruntimes(name, inner):
    """An If or Loop around our nodes is ours, and the plan lists those nodes as ours, with the plan of each body."""
    plan = unpool.InferenceSession(getattr(models, name)()).plan
    (outer,) = [one for one in plan if one.operator in ("If", "Loop") and not one.subgraph_steps]
    inside = [one for one in plan if outer.node in one.reason]
    ours = [one for one in inside if one.operator in OPERATORS]
    assert outer.runner == "unpool"
    assert len(ours) == inner
    assert all(one.subgraph_steps and one.reason.startswith("inside ") for one in inside)
    assert all(one.runner == "unpool" and one.node in outer.reason for one in ours)


def test_bodies_without_our_nodes_stay_with_onnxruntime():
    """An If that holds nothing of ours is one node of a partition, and its captured values reach it."""
    model = models.model(
        """plain_if (bool c, float[2] x) => (float[2] y) {
            r = Relu (x)
            y = If (c) <
                then_branch = a () => (float[2] p) { p = Neg (r) },
                else_branch = b () => (float[2] q) { q = Add (r, w) }
            >
        }""",
        w=models.random(2),
    )
    plan = unpool.InferenceSession(model).plan
    assert [one.runner for one in plan] == ["onnxruntime", "onnxruntime"]
    assert plan.steps[0].inputs == ("x", "c")


def test_only_refused_nodes_leave_onnxruntime():
    """In a float64 model the Conv nodes go to the ReferenceEvaluator with onnxruntime's words, the rest stays."""
    with pytest.warns(FallbackWarning) as caught:
        plan = unpool.InferenceSession(models.segnet(np.float64)).plan
    by_runner = {}
    for one in plan:
        by_runner.setdefault(one.runner, set()).add(one.operator)
    assert by_runner == {
        "reference": {"Conv"},
        "unpool": {"MaxPool", "MaxUnpool", "ConvTranspose"},
        "onnxruntime": {"BatchNormalization", "Relu", "Add"},
    }
    assert {one.reason for one in plan if one.runner == "reference"} == {
        "onnxruntime: Could not find an implementation for Conv(11)"
    }
    assert len(caught) == 1


def test_refused_neighbours_share_a_reference_partition():
    """Consecutive refused nodes are one step, not one each."""
    model = models.model(
        "d (double[1, 1, 6, 6] x) => (double[1, 1, 6, 6] y) { a = Relu (x) b = Conv (a, w) y = Conv (b, w) }",
        w=models.random(1, 1, 1, 1, dtype=float),
    )
    with pytest.warns(FallbackWarning, match="'Conv->b' and 1 more"):
        plan = unpool.InferenceSession(model).plan
    assert [(step.runner, len(step.nodes)) for step in plan.steps] == [("onnxruntime", 1), ("reference", 2)]


def test_bfloat16_without_refused_nodes_does_not_warn():
    """Casts to and from bfloat16 run in onnxruntime, so such a model stays quiet."""
    model = models.model(
        f"""b (float[1, 1, 4, 4] x) => (float[1, 1, 2, 2] y) {{
            b = Cast <to = 16> (x)
            p, i = MaxPool <{models.POOL}> (b)
            y = Cast <to = 1> (p)
        }}""",
        opset=22,
        ir=10,
    )
    assert runners(model) == {"Cast->b": "onnxruntime", "MaxPool->p": "unpool", "Cast->y": "onnxruntime"}


def test_what_no_output_needs_is_not_planned():
    """Dead nodes do not run, so they are not in the plan."""
    assert runners(models.unused_output()) == {"MaxPool->y": "unpool"}


def test_folded_nodes_are_named():
    """What was folded into a ConvTranspose stands in its reason."""
    (record,) = unpool.InferenceSession(models.weights_from_nodes()).plan
    folded = "; with BatchNormalization->n, Mul->y folded in"
    assert record.reason in {f"unpool runs every ConvTranspose, by {way}{folded}" for way in ("phases", "direct")}


def test_names_and_versions_of_records():
    """A node's own name is used where it has one; versions are the operators', not the opset's."""
    node = helper.make_node("MaxPool", ["x"], ["y"], name="my pool", kernel_shape=[2])
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1, size]) for name, size in (("x", 3), ("y", 2))
    ]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx", 13)], ir_version=8)
    (record,) = unpool.InferenceSession(model).plan
    assert (record.node, record.operator, record.domain, record.version) == ("my pool", "MaxPool", "", 12)
    assert record.operator_version == "MaxPool-12"


def test_the_plan_prints_as_a_table():
    """str(plan) has a title, a rule and one line per record."""
    plan = unpool.InferenceSession(models.branches()).plan
    lines = str(plan).splitlines()
    assert lines[0].split() == ["step", "node", "operator", "runs", "on", "why"]
    assert len(lines) == 2 + len(plan) == 2 + len(list(plan))
    assert lines[2].split()[:4] == ["0", "Relu->a", "Relu-14", "onnxruntime"]


def test_a_long_domain_name_is_the_short_one():
    """Nodes that spell ONNX's domain "ai.onnx" are ours too, in bodies as well."""
    model = models.conditional()
    model.opset_import[0].domain = "ai.onnx"
    for node in model.graph.node:
        node.domain = "ai.onnx"
    body = onnx.helper.get_attribute_value(model.graph.node[1].attribute[0])
    body.node[0].domain = "ai.onnx"
    assert runners(model)[f"{body.node[0].op_type}->{body.node[0].output[0]}"] == "unpool"
    assert model.graph.node[0].domain == "ai.onnx"


def test_a_newer_opset_than_onnxruntime_knows():
    """Partitions import the oldest opset that means the same, so the newest onnx and IR still run in onnxruntime."""
    model = models.branches()
    model.opset_import[0].version = onnx.defs.onnx_opset_version()
    model.ir_version = onnx.IR_VERSION
    session = unpool.InferenceSession(model)
    assert {one.runner for one in session.plan} == {"unpool", "onnxruntime"}
    feed = {"x": models.random(1, 2, 8, 8)}
    expected = unpool.InferenceSession(models.branches()).run(None, feed)[0]
    assert np.array_equal(session.run(None, feed)[0], expected)


def test_a_scan_over_a_pool():
    """A Scan whose body pools is ours with our pool, slice by slice."""
    model = models.model(
        """scan (float[3, 1, 1, 6] xs) => (float[3, 1, 1, 3] ys) {
            ys = Scan <num_scan_inputs = 1, body = b (float[1, 1, 6] x) => (float[1, 1, 3] y)
                { y = MaxPool <kernel_shape = [2], strides = [2]> (x) }> (xs)
        }"""
    )
    session = unpool.InferenceSession(model)
    xs = models.random(3, 1, 1, 6)
    assert [one.runner for one in session.plan] == ["unpool", "unpool"]
    assert np.array_equal(session.run(None, {"xs": xs})[0], np.maximum(xs[..., ::2], xs[..., 1::2]))


def test_channels_last_nodes_in_a_body():
    """A body may hold the channels-last domain, and the type behind it is still known."""
    model = models.model(
        f"""inside (bool c, float[1, 6, 6, 2] x) => (float[n, h, w, d] y) {{
            r = If (c) <
                then_branch = t () => (float[n, h, w, d] p) {{ p, i = {models.NHWC}.MaxPool <{models.POOL}> (x) }},
                else_branch = e () => (float[n, h, w, d] q) {{ q = Neg (x) }}
            >
            y = Neg (r)
        }}""",
        imports=f', "{models.NHWC}" : 11',
    )
    session = unpool.InferenceSession(model)
    assert [one.runner for one in session.plan] == ["unpool", "unpool", "onnxruntime", "onnxruntime"]
    x = models.random(1, 6, 6, 2)
    (got,) = session.run(None, {"c": np.array(True), "x": x})
    assert np.array_equal(got, -unpool.max_pool(x, kernel_shape=[2, 2], strides=[2, 2], layout="NHWC"))
