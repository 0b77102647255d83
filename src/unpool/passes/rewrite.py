"""Rewrites, each of which replaces one node by others: written, applied to a graph or a model, and described."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import chain, starmap
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from unpool.dtypes import AnyArray
from unpool.graph.graph import FIRST_IR_WITH_DEFAULTS, FreshNames, Graph
from unpool.graph.nodes import reads, writes
from unpool.graph.weights import as_input


@dataclass(frozen=True)
class NodeChange:
    """A changed node: its name, and its operator, version and attributes before and after."""

    node: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.node}: {self.before} -> {self.after}"


@dataclass(frozen=True)
class Rewrite:
    """Other nodes for one node, and the new constants that they read, by name."""

    output: str  # the first of the node that is replaced; one of `nodes` makes it
    nodes: tuple[onnx.NodeProto, ...]
    constants: Mapping[str, AnyArray]
    change: NodeChange
    fused_output: str = ""  # the first of the node of unpool that replaces several nodes; "" if there is none
    reason: str = ""  # shown in the plan for that node


def set_items(field: Any, items: Iterable[Any]) -> None:
    """Replace all items of a repeated field; `items` may read the field."""
    new = list(items)
    del field[:]
    field.extend(new)


def copy_node(node: onnx.NodeProto, without: Collection[str] = (), **attributes: Any) -> onnx.NodeProto:
    """A copy of a node without some attributes, and with others after the remaining ones."""
    copy = deepcopy(node)
    kept = [attribute for attribute in node.attribute if attribute.name not in without]
    set_items(copy.attribute, [*kept, *starmap(helper.make_attribute, attributes.items())])
    return copy


def apply_to_graph(graph: Graph, edits: Iterable[Rewrite]) -> Graph:
    """The graph with the edits in it, not pruned."""
    by_output = {edit.output: edit for edit in edits}
    constants = {**graph.constants, **{tensor.name: tensor for tensor in _tensors(by_output.values())}}
    reasons = {edit.fused_output: edit.reason for edit in by_output.values() if edit.fused_output}
    nodes = tuple(chain.from_iterable(_in_place(node, by_output) for node in graph.nodes))
    return replace(graph, nodes=nodes, constants=constants, origins=dict(graph.origins) | reasons)


def apply_to_model(model: onnx.ModelProto, edits: Iterable[Rewrite]) -> None:
    """Put the edits into a model, which is changed, and drop nodes and tensors that only the replaced nodes needed."""
    by_output = {edit.output: edit for edit in edits}
    graph = model.graph
    needed = _needed(graph)
    set_items(graph.node, chain.from_iterable(_in_place(node, by_output) for node in graph.node))
    constants = _tensors(by_output.values())
    graph.initializer.extend(constants)
    if model.ir_version < FIRST_IR_WITH_DEFAULTS:
        graph.input.extend(map(as_input, constants))
    useless, fed = needed - _needed(graph), {value.name for value in graph.input}
    set_items(graph.node, (node for node in graph.node if not writes(node) or not useless.issuperset(writes(node))))
    tensors = [tensor for tensor in graph.initializer if tensor.name not in useless or tensor.name in fed]
    set_items(graph.initializer, tensors)
    known = fed.union((tensor.name for tensor in tensors), *(node.output for node in graph.node))
    set_items(graph.value_info, (value for value in graph.value_info if value.name in known))


def _tensors(edits: Iterable[Rewrite]) -> list[onnx.TensorProto]:
    return [numpy_helper.from_array(array, name) for edit in edits for name, array in edit.constants.items()]


def _in_place(node: onnx.NodeProto, edits: Mapping[str, Rewrite]) -> tuple[onnx.NodeProto, ...]:
    edit = edits.get(next(iter(node.output), ""))
    return (node,) if edit is None else edit.nodes


def _needed(graph: onnx.GraphProto) -> set[str]:
    """Names of the values that the outputs depend on."""
    needed = {value.name for value in graph.output}
    for node in reversed(graph.node):
        if needed.intersection(writes(node)):
            needed.update((*reads(node), *writes(node)))
    return needed


TO_THE_END = 2**31 - 1  # the `ends` of a Slice that goes to the end of an axis, in the range of every runtime


class GraphWriter:
    """Writes the nodes for the one with this first output; methods that write a node return the name of its output.

    The names of new values begin with that of the output. Nodes are in topological order.
    """

    def __init__(self, names: FreshNames, output: str) -> None:
        self.names, self._output = names, output
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, AnyArray] = {}

    def rewrite(self, change: NodeChange, fused_output: str = "", reason: str = "") -> Rewrite:
        """All that was written."""
        return Rewrite(self._output, tuple(self.nodes), self.constants, change, fused_output, reason)

    def node(self, operator: str, inputs: Sequence[str], stem: str = "", *, output: str = "", **attributes: Any) -> str:
        """A node whose output is named `output` or, if that is empty, by `stem` or the operator."""
        name = output or self.names.fresh(f"{self._output}_{stem or operator.lower()}")
        self.nodes.append(helper.make_node(operator, inputs, [name], name=f"{operator}->{name}", **attributes))
        return name

    def rename(self, value: str, output: str) -> None:
        """Call the output of the last node, which must be `value`, by another name."""
        assert self.nodes[-1].output[0] == value
        self.nodes[-1].output[0] = output
        self.nodes[-1].name = f"{self.nodes[-1].op_type}->{output}"

    def constant(self, value: Any, stem: str, dtype: Any = np.int64) -> str:
        """A constant; equal constants are written once."""
        array = np.asarray(value, dtype)
        for name, known in self.constants.items():
            if known.dtype == array.dtype and known.shape == array.shape and known.tobytes() == array.tobytes():
                return name
        name = self.names.fresh(f"{self._output}_{stem}")
        self.constants[name] = array
        return name

    def slice(
        self, value: str, starts: Sequence[int], ends: Sequence[int] | str, steps: Sequence[int] = (), output: str = ""
    ) -> str:
        """The elements of each spatial axis from its start to its end; `ends` may be a value of the graph."""
        axes = range(2, len(starts) + 2)
        stop = ends if isinstance(ends, str) else self.constant(ends, "ends")
        inputs = [value, self.constant(starts, "starts"), stop, self.constant(axes, "axes")]
        if any(step != 1 for step in steps):
            inputs.append(self.constant(steps, "steps"))
        return self.node("Slice", inputs, "cut", output=output)

    def pad(self, value: str, begins: Sequence[int], ends: Sequence[int], fill: Any, dtype: Any) -> str:
        """The value with `fill` around its spatial axes; the value itself if it gets no padding."""
        if not any((*begins, *ends)):
            return value
        pads = self.constant([0, 0, *begins, 0, 0, *ends], "pads")
        return self.node("Pad", [value, pads, self.constant(fill, "fill", dtype)], "padded")

    def spatial_sizes(self, value: str, rank: int) -> str:
        """The sizes of the spatial axes of a value, a vector."""
        places = self.constant(range(2, rank + 2), "places")
        return self.node("Gather", [self.node("Shape", [value], "shape"), places], "sizes")

    def product(self, vector: str, positions: Sequence[int]) -> str:
        """The product of some elements of a vector, of shape (1,); a chain of Mul, which every opset has."""
        product = ""
        for position in positions:
            size = self.node("Gather", [vector, self.constant([position], "position")], "size")
            product = self.node("Mul", [product, size], "product") if product else size
        return product
