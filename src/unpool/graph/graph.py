"""The graph record that passes change, its constants, and unused names."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import helper, numpy_helper

from unpool.dtypes import AnyArray
from unpool.graph.nodes import attributes, domain, node_name, reads, subgraphs, with_subgraph_nodes, writes
from unpool.graph.operators import OperatorFact, having
from unpool.graph.weights import LARGE, array_of, is_large

_log = logging.getLogger("unpool")

FIRST_IR_WITH_DEFAULTS = 4  # before it, no input can override an initializer


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order and the values around them. Graphs share their protos, which are never changed."""

    nodes: tuple[onnx.NodeProto, ...]
    constants: Mapping[str, onnx.TensorProto]  # that no caller can override
    sparse_constants: Mapping[str, onnx.SparseTensorProto]
    defaults: Mapping[str, onnx.TensorProto]  # initializers that are also inputs: the caller may feed them
    inputs: tuple[onnx.ValueInfoProto, ...]  # `defaults` included
    outputs: tuple[onnx.ValueInfoProto, ...]  # one whose type the model does not state has none
    declared: Mapping[str, onnx.TypeProto]  # types that the model states for values in between
    opsets: Mapping[str, int]  # version by domain, "" for ONNX
    ir_version: int
    folded_nodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by first output: names of nodes in it
    origins: Mapping[str, str] = field(default_factory=dict)  # by first output: text about what it replaced

    @classmethod
    def from_model(cls, model: onnx.ModelProto) -> "Graph":
        """The graph of a model whose functions are inlined and whose tensors are in memory."""
        graph = model.graph
        fed = {value.name for value in graph.input} if model.ir_version >= FIRST_IR_WITH_DEFAULTS else set()
        tensors = {tensor.name: tensor for tensor in graph.initializer}
        constants = {name: tensor for name, tensor in tensors.items() if name not in fed}
        declared = {value.name: detach(value.type) for value in graph.value_info}
        return cls(
            nodes=tuple(node if _has_data(node) else detach(node) for node in graph.node),
            constants=constants,
            sparse_constants={sparse.values.name: sparse for sparse in graph.sparse_initializer},
            defaults={name: tensor for name, tensor in tensors.items() if name in fed},
            inputs=tuple(detach(value) for value in graph.input if value.name not in constants),
            outputs=tuple(
                detach(value)
                if has_type(value)
                else onnx.ValueInfoProto(name=value.name, type=declared.get(value.name))
                for value in graph.output
            ),
            declared=declared,
            opsets={entry.domain: entry.version for entry in model.opset_import},
            ir_version=model.ir_version,
        )

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return tuple(value.name for value in self.outputs)

    @cached_property
    def makers(self) -> Mapping[str, int]:
        """By value, the position of the node that makes it."""
        return {name: position for position, node in enumerate(self.nodes) for name in writes(node)}

    @cached_property
    def readers(self) -> Mapping[str, Sequence[int]]:
        """By value, the positions of the nodes that read it, in subgraphs too."""
        readers: dict[str, list[int]] = {}
        for position, node in enumerate(self.nodes):
            for name in dict.fromkeys(reads(node)):
                readers.setdefault(name, []).append(position)
        return readers

    @cached_property
    def single(self) -> frozenset[str]:
        """Values that are read once, and are no output; a node that reads a value twice counts twice."""
        counts = Counter(name for node in self.nodes for name in node.input)
        once = (name for name, places in self.readers.items() if len(places) == 1 and counts[name] <= 1)
        return frozenset(once) - set(self.output_names)

    def maker(self, name: str) -> onnx.NodeProto | None:
        """The node that makes a value."""
        return self.nodes[self.makers[name]] if name in self.makers else None


_Message = TypeVar("_Message", onnx.NodeProto, onnx.ValueInfoProto, onnx.TypeProto)


def detach(message: _Message) -> _Message:
    """A copy with memory of its own: a part of a model, however small, keeps the memory of all its weights."""
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _has_data(node: onnx.NodeProto) -> bool:
    """True if a node may hold large tensors itself, which are not copied."""
    return any(entry.HasField("t") or entry.HasField("g") or entry.graphs for entry in node.attribute)


def has_type(value: onnx.ValueInfoProto) -> bool:
    """True if the model states a type, which is optional for outputs and values in between."""
    return value.type.WhichOneof("value") is not None


def drop_constant_data(graph: Graph) -> Graph:
    """The graph whose large constants have a type and a shape, and no elements."""
    bare = {
        name: onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        for name, tensor in graph.constants.items()
        if is_large(tensor)
    }
    return replace(graph, constants={**graph.constants, **bare})


def to_dense(sparse: onnx.SparseTensorProto) -> AnyArray:
    """A sparse tensor written out."""
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    full = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 1:
        full.reshape(-1)[indices] = values
    else:
        full[tuple(indices.T)] = values
    return full


class FreshNames:
    """Returns each name once, and none that is taken already.

    >>> names = FreshNames(["x"])
    >>> names.fresh("x"), names.fresh("x"), names.fresh("y")
    ('x_', 'x__', 'y')
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def fresh(self, wish: str) -> str:
        """The wished name, with as many underscores after it as make it unused."""
        while wish in self._taken:
            wish += "_"
        self._taken.add(wish)
        return wish


def unused_names(graph: Graph | onnx.GraphProto) -> FreshNames:
    """Names that no value of a graph or of its subgraphs has."""
    if isinstance(graph, onnx.GraphProto):
        return FreshNames([*_around_nodes(graph), *_in_nodes(graph.node)])
    ends = (value.name for value in (*graph.inputs, *graph.outputs))
    tensors = (*graph.constants, *graph.sparse_constants, *graph.defaults)
    return FreshNames([*ends, *tensors, *_in_nodes(graph.nodes)])


def _in_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    for node in with_subgraph_nodes(nodes):
        yield from (*node.input, *node.output)
        for _, subgraph in subgraphs(node):
            yield from _around_nodes(subgraph)


def _around_nodes(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (value.name for value in (*graph.input, *graph.output, *graph.initializer))
    yield from (sparse.values.name for sparse in graph.sparse_initializer)


DEEPEST = 16  # nodes followed back from a value to constants; torch's older exporter writes the pads of a Pad with 7
_FOLLOWED = having(OperatorFact.MOVES) | {"Concat", "ConstantOfShape", "Slice"}
_TYPE_OF_ATTRIBUTE: Mapping[str, Any] = {"value_float": np.float32, "value_int": np.int64, "value_string": object}


def lift_constants(graph: Graph) -> Graph:
    """The graph without Constant nodes, and without Identity nodes of constants: their values are constants instead."""
    constants, sparse = dict(graph.constants), dict(graph.sparse_constants)
    nodes = []
    for node in graph.nodes:
        if domain(node) == "" and node.op_type == "Constant":
            (kind, value), *_ = attributes(node).items()
            if kind == "value":
                constants[node.output[0]] = value
            elif kind == "sparse_value":
                sparse[node.output[0]] = value
            else:
                array = np.array(value, _TYPE_OF_ATTRIBUTE[kind.removesuffix("s")])
                constants[node.output[0]] = numpy_helper.from_array(array, node.output[0])
        elif domain(node) == "" and node.op_type == "Identity" and node.input[0] in constants:
            constants[node.output[0]] = constants[node.input[0]]
        else:
            nodes.append(node)
    if len(nodes) == len(graph.nodes):
        return graph
    return replace(graph, nodes=tuple(nodes), constants=constants, sparse_constants=sparse)


def prune(graph: Graph) -> Graph:
    """The graph without the nodes and constants that no output needs."""
    needed = set(graph.output_names)
    kept: list[onnx.NodeProto] = []
    for node in reversed(graph.nodes):
        if needed.intersection(writes(node)):
            kept.append(node)
            needed.update(reads(node))
    return replace(
        graph,
        nodes=tuple(reversed(kept)),
        constants={name: tensor for name, tensor in graph.constants.items() if name in needed},
        sparse_constants={name: tensor for name, tensor in graph.sparse_constants.items() if name in needed},
    )


def constant_array(graph: Graph, name: str) -> AnyArray | None:
    """The small array that a value is in every run, as constants make it; None if it is large or unknown."""
    return _constant_array(graph, name, DEEPEST)


def _constant_array(graph: Graph, name: str, depth: int) -> AnyArray | None:
    tensor = graph.constants.get(name)
    if tensor is not None:
        return None if is_large(tensor) else array_of(tensor)
    node = graph.maker(name)
    if node is None or domain(node) or node.op_type not in _FOLLOWED or not depth:
        return None
    feed = {source: _constant_array(graph, source, depth - 1) for source in filter(None, node.input)}
    known = {source: array for source, array in feed.items() if array is not None}
    is_result_large = node.op_type == "ConstantOfShape" and any(array.prod() > LARGE for array in known.values())
    return None if len(known) < len(feed) or is_result_large else evaluate_node(graph, node, known)


def evaluate_node(graph: Graph, node: onnx.NodeProto, feed: Mapping[str, AnyArray]) -> AnyArray | None:
    """The first output of a node of ONNX's domain; None on an error, which is logged: a run may have it, too."""
    try:
        return next(iter(evaluate_outputs(graph.opsets, node, feed).values()))
    except Exception as error:
        _log.info("node %r cannot be evaluated: %s: %s", node_name(node), type(error).__name__, error)
        return None


def evaluate_outputs(opsets: Mapping[str, int], node: onnx.NodeProto, feed: Mapping[str, Any]) -> dict[str, AnyArray]:
    """The outputs of a node of ONNX's domain, by onnx's ReferenceEvaluator, which raises whatever NumPy raises."""
    from onnx.reference import ReferenceEvaluator

    inputs, outputs = ([onnx.ValueInfoProto(name=name) for name in names] for names in (feed, writes(node)))
    imports = [helper.make_opsetid("", opsets.get("", 1))]
    model = helper.make_model(helper.make_graph([node], "node", inputs, outputs), opset_imports=imports)
    with np.errstate(all="ignore"):  # a size may be a divisor of 0
        return dict(zip(writes(node), map(np.asarray, ReferenceEvaluator(model).run(None, dict(feed))), strict=True))
