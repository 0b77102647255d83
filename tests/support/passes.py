"""The harness of passes: a model runs with a pass, without it, and in onnxruntime, on values that reveal a difference.

A pass states in its docstring what it keeps: bits, or values within a bound. A NaN may be any NaN.
"""

from typing import NamedTuple

import numpy as np
import onnxruntime
from onnx import helper

import unpool
from unpool.graph.nodes import node_name

LARGEST = np.finfo(np.float32).max
SPECIAL = np.float32(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 1e-38, -1e-38, 1e-30, -1e30, 1, -1, 3, -20, LARGEST, -LARGEST]
)


def special(*shape, seed=0):
    """Special values in random places, each of them several times where there is room."""
    return np.random.default_rng((seed, *shape)).choice(SPECIAL, shape)


class Step(NamedTuple):
    """A node of a session's model: who computes it, and what the plan says of it."""

    node: str
    operator: str
    runner: str
    text: str


def steps(session):
    """All nodes after the passes; the plan has those of unpool, and those that passes have made."""
    graph, plan = session.prepared_graph(has_own_nodes=True).graph, {row.node: row for row in session.plan}
    found = []
    for node in graph.nodes:
        row = plan.get(node_name(node))
        runner = "unpool" if node.domain == "unpool" else "onnxruntime" if row is None else row.runner
        found.append(Step(node_name(node), node.op_type, runner, "" if row is None else row.text))
    return found


def operators(session):
    """The operators after the passes in one line, those that unpool computes with a star."""
    return " ".join(f"{step.operator}{'*' * (step.runner == 'unpool')}" for step in steps(session))


def run_onnxruntime(model, feed):
    """The outputs of onnxruntime, which computes every node as it is written."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feed)


def find_difference(got, expected, bound=None):
    """The first place where two arrays differ in bits, or by more than a bound; "" if there is none."""
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    are_nan = np.isnan(got) & np.isnan(expected)
    if bound is None:
        unsigned = f"u{got.dtype.itemsize}"
        differs = (got.view(unsigned) != expected.view(unsigned)) & ~are_nan
    else:
        with np.errstate(all="ignore"):
            distance = np.abs(got.astype(np.float64) - expected.astype(np.float64))
            differs = ~((distance <= bound) | (got == expected) | are_nan | np.isposinf(bound))
    if not differs.any():
        return ""
    place = tuple(int(index[0]) for index in np.nonzero(differs))
    return f"{differs.sum()} of {got.size} elements, at {place} {got[place]!r} in place of {expected[place]!r}"


def check(name, model, feed, bound=None):
    """A pass keeps what it says: all outputs are those of onnxruntime. Returns the session with it.

    The bound is a number, None for equal bits, or a function of an output that gives one for each element.
    """
    expected = run_onnxruntime(model, feed)
    session, plain = (unpool.InferenceSession(model, disabled_optimizers=without) for without in ((), (name,)))
    pairs = zip(session.run(None, feed), plain.run(None, feed), expected, strict=True)
    for output, (ours, without, theirs) in zip(model.graph.output, pairs, strict=True):
        limit = bound(theirs) if callable(bound) else bound
        difference = find_difference(ours, theirs, limit)
        assert not difference, (
            f"{name}: {output.name}: {difference}; without the pass: {find_difference(without, theirs, limit)}"
        )
    return session


def rename(model, names):
    """Other names for values, in a model that is changed."""
    for node in model.graph.node:
        for field in (node.input, node.output):
            field[:] = [names.get(name, name) for name in field]
    for value in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        value.name = names.get(value.name, value.name)
    return model


def as_constant(model, name, array):
    """An input becomes an initializer, and the caller feeds another one, which an output returns."""
    model.graph.initializer.append(helper.make_tensor(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape,
                                                      array.tobytes(), raw=True))  # fmt: skip
    (value,) = [value for value in model.graph.input if value.name == name]
    model.graph.input.remove(value)
    model.graph.input.append(helper.make_tensor_value_info("other", 1, [1]))
    model.graph.output.append(helper.make_tensor_value_info("same", 1, [1]))
    model.graph.node.append(helper.make_node("Neg", ["other"], ["same"]))
    return model
