"""Weights that nodes make of constants become constants: unpool packs these once, and folds other nodes into them.

Such nodes are a weight normalization that torch's exporter wrote out, g * v / norm(v). onnxruntime folds them in its
own partitions, but gives a value that leaves a partition in every run, as if it were new. onnxruntime makes the
constants here, too, all in one short session: they have the bits that it would give the nodes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import onnx
from onnx import helper, numpy_helper

from unpool.dtypes import AnyArray
from unpool.runtime.graph import weights
from unpool.runtime.graph.graph import Graph
from unpool.runtime.graph.nodes import domain
from unpool.runtime.requirements import onnxruntime

FATAL = 4  # onnxruntime's log level for fatal errors only
OPERATORS = (
    *("Abs", "Add", "Cast", "Div", "Exp", "Expand", "Identity", "Mul", "Neg", "Pow", "Reciprocal", "ReduceL2"),
    *("ReduceSum", "Reshape", "Sqrt", "Squeeze", "Sub", "Transpose", "Unsqueeze"),
)
"""What such nodes are: they have one output, and give the same for the same inputs."""


def fold_weights(graph: Graph, operators: Iterable[str]) -> Graph:
    """The graph, constants lifted, in which weights of nodes of these operators are constants where nodes make them.

    An exception of onnxruntime, if it cannot compute them: the same nodes then fail where they run.
    """
    wanted = {
        name
        for node in graph.nodes
        if node.op_type in operators and domain(node) == ""
        for name in node.input[1:3]
        if name and name not in graph.constants
    }
    made = sorted(wanted & _made_of_constants(graph)) if wanted else []
    if not made:
        return graph
    arrays = _run(_part(graph, made))
    constants = {name: numpy_helper.from_array(array, name) for name, array in zip(made, arrays, strict=True)}
    nodes = tuple(node for node in graph.nodes if not set(node.output) & set(made))
    return replace(graph, nodes=nodes, constants={**graph.constants, **constants})


def _made_of_constants(graph: Graph) -> set[str]:
    """The values that such nodes make of constants alone."""
    known = {"", *graph.constants}
    for node in graph.nodes:
        if node.op_type in OPERATORS and domain(node) == "" and known.issuperset(node.input):
            known.update(node.output)
    return known - graph.constants.keys()


def _part(graph: Graph, made: Sequence[str]) -> onnx.ModelProto:
    """A model without inputs that makes these values."""
    needed: set[str] = set(made)
    nodes: list[onnx.NodeProto] = []
    for node in reversed(graph.nodes):
        if needed.intersection(node.output):
            needed.update(node.input)
            nodes.insert(0, node)
    part = helper.make_graph(nodes, "weights", [], [onnx.ValueInfoProto(name=name) for name in made])
    for name in sorted(needed & graph.constants.keys()):
        part.initializer.append(weights.with_data_inside(graph.constants[name]))
        part.initializer[-1].name = name  # the tensor in a Constant node may have any
    return helper.make_model(
        part, ir_version=graph.ir_version, opset_imports=[helper.make_opsetid("", graph.opsets[""])]
    )


def _run(model: onnx.ModelProto) -> list[AnyArray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, FATAL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {}))
