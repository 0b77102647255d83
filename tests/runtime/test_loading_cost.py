"""What loading costs grows with the size of a model, counted and not timed; what could grow faster is bounded."""

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import unpool
from tests.support import models
from unpool.runtime.backends import build
from unpool.runtime.graph import shape_inference
from unpool.runtime.graph.nodes import with_subgraph_nodes

LEVELS = 30


def levels(count):
    """Pools with another node behind each: data passes through unpool so many times."""
    lines = "\n".join(
        f"p{one}, i{one} = MaxPool <kernel_shape = [1]> (v{one})\nv{one + 1} = Relu (p{one})" for one in range(count)
    )
    text = f"g (float[1, 1, 4] x) => (float[1, 1, 4] y) {{ v0 = Abs (x)\n{lines}\ny = Neg (v{count}) }}"
    return models.model(text)


def loop(count):
    """A Loop with so many pools in its body, another node behind each."""
    lines = "\n".join(
        f"p{one} = MaxPool <kernel_shape = [1]> (v{one})\nv{one + 1} = Relu (p{one})" for one in range(count)
    )
    body = f"(int64 i, bool on, float[1, 1, 4] v0) => (bool off, float[1, 1, 4] v{count})"
    return models.model(
        f"""g (float[1, 1, 4] x, int64 n, bool go) => (float[1, 1, 4] y) {{
            y = Loop (n, go, x) <body = b {body} {{ off = Identity (on)\n{lines} }}>
        }}"""
    )


@pytest.fixture
def looked_at(monkeypatch):
    """The number of nodes of every graph that onnx infers."""
    numbers, original = [], onnx.shape_inference.infer_shapes

    def counted(model, *rest, **named):
        numbers.append(sum(1 for _ in with_subgraph_nodes(model.graph.node)))
        return original(model, *rest, **named)

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", counted)
    return numbers


def test_every_node_is_inferred_once(looked_at):
    """However often data passes through unpool, onnx looks at each other node once."""
    unpool.InferenceSession(levels(LEVELS))
    assert sum(looked_at) == LEVELS + 2


def test_a_body_of_many_pools_is_refused(monkeypatch):
    """Bodies are gone through once per pool on the way; beyond a number of nodes the model is refused by name."""
    unpool.InferenceSession(loop(3))
    monkeypatch.setattr(shape_inference, "MAX_VISITED_NODES", 50)
    with pytest.raises(unpool.UnsupportedError, match=r"Loop node 'Loop->y': expected subgraphs in which few .*Move"):
        unpool.InferenceSession(loop(12))


def test_threads_do_not_grow_with_partitions(monkeypatch):
    """Only the first partitions have threads of their own."""
    threads, original = [], build.OrtPartition

    def noted(model, where, options, *rest):
        threads.append(options.copy.intra_op_num_threads)
        return original(model, where, options, *rest)

    monkeypatch.setattr(build, "OrtPartition", noted)
    monkeypatch.setattr(build, "MAX_THREAD_POOLS", 2)
    unpool.InferenceSession(levels(4), threads=3)
    assert threads == [3, 3, 1, 1, 1]


def test_many_outputs_and_branches_load():
    """A model all of whose values are outputs, and one of many branches, have their plans."""
    names = [f"v{one}" for one in range(200)]
    nodes = [helper.make_node("Neg", ["x"], [name]) for name in names]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", *names)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    (step,) = unpool.InferenceSession(model).plan.steps
    assert step.outputs == tuple(names)


SIDE = 3000  # of square weights of 36 MB
RESIDENT = """
import sys
import unpool
from unpool.memory import rss
from unpool.runtime.graph import graph

if sys.argv[2] == "parts":
    graph.detach = lambda message: message
unpool.InferenceSession
before = rss()
session = unpool.InferenceSession(sys.argv[1])
print(rss() - before)
"""


@pytest.mark.slow
def test_a_session_does_not_keep_the_model(tmp_path):
    """A node that is still a part of the model keeps the memory of all its weights, which are lists of numbers here."""
    nodes = "y, i = MaxPool <kernel_shape = [1]> (x) z = MatMul (y, w)"
    model = models.model(f"g (float[1, 1, {SIDE}] x) => (float[1, 1, {SIDE}] z) {{ {nodes} }}")
    ones = np.ones(SIDE * SIDE, np.float32)
    model.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [SIDE, SIDE], ones))
    onnx.save(model, tmp_path / "large.onnx")
    (tmp_path / "resident.py").write_text(RESIDENT, encoding="utf-8")

    def resident(kind):
        command = [sys.executable, tmp_path / "resident.py", tmp_path / "large.onnx", kind]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    assert resident("copies") < resident("parts") - 2 * SIDE * SIDE
