"""An ONNX graph as a plain record, which the passes change and the plan cuts into partitions."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from unpool.dtypes import AnyArray
from unpool.operators.activation import Activation
from unpool.runtime.graph.nodes import reads
from unpool.runtime.graph.without_weights import is_large

FIRST_IR_WITH_DEFAULTS = 4  # before it, no input can override an initializer


@dataclass(frozen=True)
class Graph:
    """Nodes in execution order and the values around them. Graphs share their protos, so nobody may change one.

    Attributes:
        nodes: in an order in which every value is made before it is read.
        constants: tensors that no caller can override.
        sparse_constants: the same, stored sparsely.
        defaults: initializers that are also inputs: the caller may feed them.
        inputs: graph inputs, `defaults` included.
        outputs: graph outputs; one whose type the model does not state has none.
        declared: types that the model states for values in between.
        opsets: version by domain, "" for ONNX.
        ir_version: of the model.
        folded: by the first output of a node, the labels of the nodes that were folded into it.
        activations: by the first output of a node of ours, the activation that it applies to every element at its end.
        raised: by the first output of a node of ours that replaced others, a text that says which ones.
        chosen: the outputs of the graph of a body on which, outside of it, the Indices of some MaxPool depend.
    """

    nodes: tuple[onnx.NodeProto, ...]
    constants: Mapping[str, onnx.TensorProto]
    sparse_constants: Mapping[str, onnx.SparseTensorProto]
    defaults: Mapping[str, onnx.TensorProto]
    inputs: tuple[onnx.ValueInfoProto, ...]
    outputs: tuple[onnx.ValueInfoProto, ...]
    declared: Mapping[str, onnx.TypeProto]
    opsets: Mapping[str, int]
    ir_version: int
    folded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    activations: Mapping[str, Activation] = field(default_factory=dict)
    raised: Mapping[str, str] = field(default_factory=dict)
    chosen: frozenset[str] = frozenset()

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the graph outputs."""
        return tuple(value.name for value in self.outputs)

    def uses(self) -> Counter[str]:
        """How many nodes and graph outputs read each value; a node that reads it twice counts twice."""
        counts = Counter(self.output_names)
        for node in self.nodes:
            counts.update(node.input)
            counts.update(set(reads(node)) - set(node.input))
        return counts


def graph_of(model: onnx.ModelProto) -> Graph:
    """The record of a model whose functions are inlined and whose tensors are in memory."""
    graph = model.graph
    inputs = {value.name for value in graph.input}
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    can_override = model.ir_version >= FIRST_IR_WITH_DEFAULTS
    defaults = {name: tensor for name, tensor in tensors.items() if can_override and name in inputs}
    constants = {name: tensor for name, tensor in tensors.items() if name not in defaults}
    declared = {value.name: value.type for value in graph.value_info}
    return Graph(
        nodes=tuple(graph.node),
        constants=constants,
        sparse_constants={sparse.values.name: sparse for sparse in graph.sparse_initializer},
        defaults=defaults,
        inputs=tuple(value for value in graph.input if value.name not in constants),
        outputs=tuple(_with_type(value, declared) for value in graph.output),
        declared=declared,
        opsets={one.domain: one.version for one in model.opset_import},
        ir_version=model.ir_version,
    )


def has_type(value: onnx.ValueInfoProto) -> bool:
    """Whether the model states a type, which it need not do of outputs and of values in between."""
    return value.type.WhichOneof("value") is not None


def _with_type(value: onnx.ValueInfoProto, declared: Mapping[str, onnx.TypeProto]) -> onnx.ValueInfoProto:
    """An output with the type that the model states of it, there or among the values in between."""
    if has_type(value) or value.name not in declared:
        return value
    return helper.make_value_info(value.name, declared[value.name])


def without_data(graph: Graph) -> Graph:
    """The graph whose large constants have a type and a shape, and no elements."""
    bare = {name: _bare(tensor) if is_large(tensor) else tensor for name, tensor in graph.constants.items()}
    return replace(graph, constants=bare)


def _bare(tensor: onnx.TensorProto) -> onnx.TensorProto:
    return onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)


def dense(sparse: onnx.SparseTensorProto) -> AnyArray:
    """A sparse tensor written out."""
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    full = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 1:
        full.reshape(-1)[indices] = values
    else:
        full[tuple(indices.T)] = values
    return full
