"""The models that OpenVINO computes as ONNX defines them; excludes differences that a trial on one input may miss.

OpenVINO computes float64 and float16 in float32 and int64 in int32, without a warning, and reads beyond arrays where an
index is wrong. So values that depend on the inputs of a model have to be float32 or bool. Integers may only be numbers
of elements, or the indices of a MaxPool, which unpool's MaxUnpool checks. Values that are the same in every run may
have any type, because a trial compares the results.
"""

from collections.abc import Container

import numpy as np
import onnx

from unpool.graph import shapes
from unpool.graph.graph import Graph
from unpool.graph.nodes import domain, node_name, reads, writes
from unpool.graph.operators import OperatorFact, having
from unpool.graph.shapes import Types


class UnfitModelError(Exception):
    """OpenVINO is not to run a model, or does not take it; the message says why."""


def require_fit(graph: Graph, types: Types) -> None:
    """Raise an UnfitModelError for a graph that OpenVINO may compute otherwise than it is written."""
    fed = {value.name for value in graph.inputs}
    counts: set[str] = set()
    for node in graph.nodes:
        if domain(node) or node.op_type not in _OPERATORS:
            name = ".".join(filter(None, (domain(node), node.op_type)))
            raise UnfitModelError(f"{node_name(node)!r} is {name}, which is not known to give the same there")
        if node.op_type in ("Shape", "Size") or fed.isdisjoint(reads(node)):
            continue
        fed.update(writes(node))
        if node.op_type in ("ArgMax", "ArgMin"):
            counts.update(writes(node))
        elif node.op_type == "MaxPool":
            counts.update(node.output[1:])
        elif node.op_type in _MOVES and node.input[0] in counts:
            counts.update(writes(node))
        _require_values(node, types, fed, counts)


def _require_values(node: onnx.NodeProto, types: Types, fed: Container[str], counts: Container[str]) -> None:
    has_indices = node.op_type in _INDEXED and node.input[1] in fed
    if has_indices or (node.op_type == "Pad" and any(name in fed for name in node.input[1:])):
        raise UnfitModelError(f"{node_name(node)!r} may differ there: its indices or pads are not checked")
    for name in (*reads(node), *writes(node)):
        dtype = shapes.dtype(types.get(name))
        if name not in fed or dtype in _KEPT or (name in counts and dtype is not None):
            continue
        if dtype is None or dtype == np.dtype(object):
            raise UnfitModelError(f"{name!r} is no tensor of numbers, as far as is known before it runs")
        if not (node.op_type == "Cast" and dtype in _READ and name in reads(node)):
            raise UnfitModelError(f"{name!r} is {dtype.name}, which it would compute in another type")


_KEPT = tuple(map(np.dtype, ("float32", "bool")))
_READ = tuple(map(np.dtype, ("uint8", "int8", "int32")))
_MOVES, _INDEXED, _OPERATORS = having(OperatorFact.MOVES), having(OperatorFact.INDEXED), having(OperatorFact.OPENVINO)
