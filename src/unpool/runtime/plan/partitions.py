"""Cuts the nodes of a step out of the graph, as a model of their own."""

from collections.abc import Callable, Iterable

import onnx
from onnx import helper

from unpool.runtime.graph.graph import FIRST_IR_WITH_DEFAULTS, Graph
from unpool.runtime.graph.nodes import domain, reads, since_version, with_subgraph_nodes, writes
from unpool.runtime.graph.shapes import Types
from unpool.runtime.graph.weights import without_folder
from unpool.runtime.plan.plan import Step

NEWEST_NEEDED_IR = 10  # later ones add nothing that a partition holds, and older releases of onnxruntime refuse them


def cut(
    graph: Graph, step: Step, types: Types, tensor: Callable[[onnx.TensorProto], onnx.TensorProto] = without_folder
) -> onnx.ModelProto:
    """The model of a partition.

    Its inputs have the type of the value; one whose type is unknown becomes an input without type.

    Args:
        graph: the whole graph.
        step: what to cut; its inputs and outputs are the model's, in order.
        types: what is known of the values, with no size that could be wrong: onnxruntime checks it.
        tensor: gives what the partition has of a constant: weights in files stay there, or come with their data.
    """
    fed = {value.name: value for value in graph.inputs}
    version = min(max(graph.ir_version, FIRST_IR_WITH_DEFAULTS), NEWEST_NEEDED_IR)
    model = onnx.ModelProto(ir_version=version, producer_name="unpool")
    nodes = [graph.nodes[position] for position in step.nodes]
    model.opset_import.extend(_imports(graph, nodes))
    model.graph.name = "partition"
    model.graph.node.extend(nodes)
    for name in step.inputs:
        model.graph.input.append(fed[name] if name in fed else _value(name, types))
    for name in step.outputs:
        model.graph.output.append(onnx.ValueInfoProto(name=name))
    _add_constants(graph, nodes, model.graph, tensor)
    return model


def at_oldest_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    """The partition with the oldest imports that select the same version of every operator.

    onnxruntime refuses opsets that are newer than itself, even if each operator in the partition is one that it knows.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for one in copy.opset_import:
        nodes = [node for node in with_subgraph_nodes(copy.graph.node) if domain(node) == one.domain]
        versions = [since_version(node, one.version) for node in nodes]
        one.version = max(versions, default=1)
    return copy


def single_node_step(graph: Graph, position: int) -> Step:
    """A step that runs a single node, for asking whether onnxruntime knows it."""
    node = graph.nodes[position]
    known = {*graph.constants, *graph.sparse_constants}
    return Step("onnxruntime", 0, (position,), tuple(n for n in reads(node) if n not in known), writes(node))


def _value(name: str, types: Types) -> onnx.ValueInfoProto:
    if name not in types:
        return onnx.ValueInfoProto(name=name)
    return helper.make_value_info(name, types[name])


def _imports(graph: Graph, nodes: Iterable[onnx.NodeProto]) -> list[onnx.OperatorSetIdProto]:
    used = {domain(node) for node in with_subgraph_nodes(nodes)}
    return [helper.make_opsetid(name, version) for name, version in graph.opsets.items() if name in used | {""}]


def _add_constants(
    graph: Graph,
    nodes: Iterable[onnx.NodeProto],
    partition: onnx.GraphProto,
    stored: Callable[[onnx.TensorProto], onnx.TensorProto],
) -> None:
    for name in dict.fromkeys(name for node in nodes for name in reads(node)):
        if name in graph.constants:
            tensor = partition.initializer.add()
            tensor.CopyFrom(stored(graph.constants[name]))
            tensor.name = name
        elif name in graph.sparse_constants:
            sparse = partition.sparse_initializer.add()
            sparse.CopyFrom(graph.sparse_constants[name])
            sparse.values.name = name
