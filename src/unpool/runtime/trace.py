"""A run of a model node by node: each node runs as a model of its own, and its inputs and outputs are kept."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import onnx

from unpool.graph.nodes import node_name, reads, writes
from unpool.graph.shapes import type_of
from unpool.graph.submodel import submodel
from unpool.graph.weights import array_of
from unpool.onnxruntime.session import InferenceSession
from unpool.operators.unpool_domain import DOMAIN
from unpool.runtime.runtimes import ONNXRUNTIME, Feed, unpool_runtime


class NodeTrace(NamedTuple):
    """A node that has run, with the values that it read and made, by name; constants are in its model."""

    node: onnx.NodeProto
    runner: str  # "unpool" or "onnxruntime", as in the plan of the session
    model: onnx.ModelProto
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the node."""
        return node_name(self.node)


def trace(session: InferenceSession, feed: Feed) -> Iterator[NodeTrace]:
    """Run the nodes of a session's model, after its passes, one after another, each by the runtime of the plan.

    A value is in memory until the last node that reads it has run.

    Raises:
        UnpoolError: a node does not run.
    """
    prepared = session.prepared_graph(has_own_nodes=True)
    graph, types, _ = prepared
    runners = {row.node: row.runner for row in session.plan}
    values = {**{name: array_of(tensor) for name, tensor in graph.defaults.items()}, **feed}
    last_readers = {name: place for place, node in enumerate(graph.nodes) for name in reads(node)}
    for place, node in enumerate(graph.nodes):
        inputs = {name: values[name] for name in reads(node) if name in values}
        given = {name: types.get(name) or type_of(value) for name, value in inputs.items()}
        model = submodel(graph, [node], given, types)
        runner = runners.get(node_name(node), runner_by_domain(node))
        is_left = node_name(node) in runners and runner == "onnxruntime"
        results = (ONNXRUNTIME if is_left else unpool_runtime(prepared.semantics_of(node))).open(model)(inputs)
        outputs = dict(zip(writes(node), results, strict=True))
        yield NodeTrace(node, runner, model, inputs, outputs)
        values |= outputs
        for name in [name for name in values if last_readers.get(name, place) <= place]:
            del values[name]


def runner_by_domain(node: onnx.NodeProto) -> str:
    """Who runs a node that no plan names."""
    return "unpool" if node.domain == DOMAIN else "onnxruntime"
