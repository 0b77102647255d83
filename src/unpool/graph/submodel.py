"""A model of some nodes of a graph."""

from collections.abc import Iterable, Mapping

import onnx
from onnx import helper

from unpool.graph.graph import FIRST_IR_WITH_DEFAULTS, Graph
from unpool.graph.nodes import domain, reads, with_subgraph_nodes, writes
from unpool.graph.shapes import Types, without_shape
from unpool.graph.weights import with_data_inside

NEWEST_NEEDED_IR = 10  # later ones add nothing that nodes need, and older releases of onnxruntime refuse them


def submodel(
    graph: Graph, nodes: Iterable[onnx.NodeProto], inputs: Mapping[str, onnx.TypeProto], types: Types
) -> onnx.ModelProto:
    """The model of some nodes, with all constants that they read; its outputs are all values that they make.

    `types` are those of the outputs, as far as they are known; their sizes are left open.
    """
    nodes = list(nodes)
    domains = {"", *map(domain, with_subgraph_nodes(nodes))}
    version = min(max(graph.ir_version, FIRST_IR_WITH_DEFAULTS), NEWEST_NEEDED_IR)
    model = onnx.ModelProto(ir_version=version, producer_name="unpool")
    model.opset_import.extend(helper.make_opsetid(*pair) for pair in graph.opsets.items() if pair[0] in domains)
    model.graph.name = "part"
    model.graph.node.extend(nodes)
    model.graph.input.extend(helper.make_value_info(*pair) for pair in inputs.items())
    names = [name for node in nodes for name in writes(node)]
    known = {name: without_shape(types[name]) for name in names if name in types}
    model.graph.output.extend(onnx.ValueInfoProto(name=name, type=known.get(name)) for name in names)
    for name in dict.fromkeys(name for node in nodes for name in reads(node)):
        if name in graph.constants:
            model.graph.initializer.append(with_data_inside(graph.constants[name]))
            model.graph.initializer[-1].name = name
        elif name in graph.sparse_constants:
            model.graph.sparse_initializer.append(graph.sparse_constants[name])
            model.graph.sparse_initializer[-1].values.name = name
    return model
