"""A model whose every value can be looked at: it becomes an output, for the whole model or for its first nodes."""

from dataclasses import dataclass

import onnx
from onnx import helper

from unpool.errors import UnsupportedError
from unpool.runtime.graph import shapes
from unpool.runtime.graph.errors import source_name
from unpool.runtime.graph.graph import Graph, prune
from unpool.runtime.graph.load import ModelSource, load_for_command
from unpool.runtime.graph.nodes import domain, reads, since_version, writes
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.graph.shapes import Types
from unpool.runtime.graph.weights import is_too_large
from unpool.runtime.rewrite.open_model import open_model


@dataclass(frozen=True)
class Stepwise:
    """A model, and what is known of it.

    Attributes:
        model: its functions inlined, its domain names short.
        graph: the nodes that its outputs need, without those that only hold constants; a node with bodies is one node.
        types: of the values whose type is known; the others cannot become outputs.
    """

    model: onnx.ModelProto
    graph: Graph
    types: Types

    def operator(self, node: onnx.NodeProto) -> str:
        """The operator and its version, such as `MaxPool-12`."""
        version = since_version(node, self.graph.opsets.get(domain(node), 1))
        return f"{node.op_type}-{version}" + (f" ({node.domain})" if domain(node) else "")

    def values(self, count: int | None = None) -> tuple[str, ...]:
        """Names of the tensors that the first `count` nodes make, of all nodes by default."""
        names = (name for node in self.graph.nodes[:count] for name in writes(node))
        return tuple(name for name in names if shapes.element(self.types.get(name)) > 0)

    def exposed(self, count: int | None = None) -> onnx.ModelProto:
        """The model up to its node `count`, all of it by default, with every value that its nodes make as an output."""
        graph = self.model.graph
        behind = set() if count is None else set(map(_id_of, self.graph.nodes[count:]))
        nodes = [node for node in graph.node if _id_of(node) not in behind]
        read = {name for node in nodes for name in reads(node)}
        unread = {tensor.name for tensor in graph.initializer if tensor.name not in read}
        stated = {value.name: value for value in graph.output}
        made = onnx.ModelProto(ir_version=self.model.ir_version, opset_import=self.model.opset_import)
        made.graph.name = graph.name
        made.graph.node.extend(nodes)
        made.graph.initializer.extend(one for one in graph.initializer if one.name not in unread)
        made.graph.sparse_initializer.extend(graph.sparse_initializer)
        made.graph.input.extend(value for value in graph.input if value.name not in unread)
        made.graph.output.extend(stated.get(name) or self._declared(name) for name in self.values(count))
        made.graph.value_info.extend(graph.value_info)
        return made

    def _declared(self, name: str) -> onnx.ValueInfoProto:
        return helper.make_value_info(name, self.types[name])


def stepwise(source: ModelSource, semantics: Semantics) -> Stepwise:
    """Read a model to look at its values.

    Raises:
        UnsupportedError: it is larger than 2 GiB.
        UnpoolError: as `unpool.InferenceSession` does for a model that cannot be read or breaks a contract.
    """
    editable = open_model(load_for_command(source), semantics)
    if is_too_large(editable.model):
        raise UnsupportedError(
            f"{source_name(source)}: expected at most 2 GiB, weights included, which runtimes take from memory, got "
            "more. "
            "Save it with its weights in a file beside it (onnx.save, save_as_external_data=True), and pass its path."
        )
    return Stepwise(editable.model, prune(editable.graph), editable.inference.types)


def _id_of(node: onnx.NodeProto) -> str:
    """The first value that a node makes, by which its copies are known."""
    return next(iter(writes(node)), "")
