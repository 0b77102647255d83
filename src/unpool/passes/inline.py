"""Replaces calls of model-local functions by their nodes, so the plan sees every operator, and ONNX's domain as "".

An attribute gets the value of the call, or else the default value of the function; a reference to an attribute that has
neither is removed. As in onnxruntime, the nodes have the opset that the model imports, not the one of the function.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias

import onnx
from onnx import helper

from unpool.errors import ModelError
from unpool.graph.graph import unused_names
from unpool.graph.nodes import domain, node_name, since_version, subgraphs, with_subgraph_nodes
from unpool.graph.weights import restore_initializers, strip_initializers
from unpool.passes.rewrite import set_items

MOST_NODES = 30_000  # that the calls of functions may become in all: loading takes a third of a millisecond for each
MOST_BYTES = 2**30  # that these nodes may take, with the tensors in them, of which every call gets a copy
FunctionName: TypeAlias = tuple[str, str, str]
_log = logging.getLogger("unpool")


def inline(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without functions; the model itself when it has none.

    Raises a ModelError for a call that does not fit its function, and for a function that reads or returns a value that
    it does not make, calls itself, or becomes too many nodes.
    """
    if not model.functions:
        return model
    check_functions(model)
    skeleton = strip_initializers(model)
    inliner = _Inliner(skeleton)
    set_items(skeleton.graph.node, inliner.expand(skeleton.graph.node))
    del skeleton.functions[:]
    _import_domains(skeleton, inliner.called.values())
    return restore_initializers(skeleton, model)


class _Inliner:
    """Replaces the calls of a model's functions; `called` has the functions that were."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._functions = {_name(function): function for function in model.functions}
        self._names = unused_names(model.graph)
        self.called: dict[FunctionName, onnx.FunctionProto] = {}
        self._count = 0

    def expand(self, nodes: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
        """The nodes, those of subgraphs changed in place, with every call replaced by the nodes of its function."""
        pending, expanded = list(reversed(list(nodes))), []
        while pending:
            node = pending.pop()
            function = self._functions.get(_name(node))
            if function is not None:
                pending.extend(reversed(self._body(node, function)))
                continue
            for _, subgraph in subgraphs(node):
                set_items(subgraph.node, self.expand(subgraph.node))
            expanded.append(node)
        return expanded

    def _body(self, call: onnx.NodeProto, function: onnx.FunctionProto) -> list[onnx.NodeProto]:
        """The nodes of a function with the values and attributes of a call; those may be calls again."""
        self.called[_name(function)] = function
        self._count += 1
        where = f"model: function {_text(_name(function))}"
        for word, given, own in (("inputs", call.input, function.input), ("outputs", call.output, function.output)):
            if len(given) > len(own):
                raise ModelError(
                    f"{where} has {len(own)} {word}, node {node_name(call)!r} calls it with {len(given)}. "
                    "Export it again."
                )
        names = {"": ""} | dict.fromkeys(function.input, "") | dict(zip(function.input, call.input, strict=False))
        outputs: dict[str, str] = {}
        copies = []  # outputs that take a node of their own: an input, and a value that is returned twice
        for name, output in zip(function.output, call.output, strict=False):
            if output and (name in names or name in outputs):
                copies.append((name, output))
            elif output:
                outputs[name] = output
        attributes = {attribute.name: attribute for attribute in (*function.attribute_proto, *call.attribute)}
        nodes = []
        try:
            for node in function.node:
                nodes.append(deepcopy(node))
                self._rename(nodes[-1], names, outputs, f"__{self._count}")
                _bind(nodes[-1], attributes)
        except KeyError as error:
            raise ModelError(f"{where} reads {error.args[0]!r}, which is no value of it. Export it again.") from error
        missing = [name for name in function.output if name not in names]
        if missing:
            raise ModelError(
                f"model: no node of the function {_text(_name(function))} makes its output {missing[0]!r}. "
                "Export it again."
            )
        return nodes + [helper.make_node("Identity", [names[name]], [output]) for name, output in copies]

    def _rename(self, node: onnx.NodeProto, names: dict[str, str], outputs: Mapping[str, str], suffix: str) -> None:
        """Give the values of a node, and those in its subgraphs, names of the caller, or names that nothing else has.

        `names` has the new names of the values so far, and gets those of the node; `outputs` those that the call gives.
        """
        node.name += suffix if node.name else ""
        set_items(node.input, (names[name] for name in node.input))
        for _, subgraph in subgraphs(node):
            self._rename_subgraph(subgraph, dict(names), suffix)
        for name in filter(None, node.output):
            names[name] = outputs.get(name) or self._names.fresh(name + suffix)
        set_items(node.output, (names[name] for name in node.output))

    def _rename_subgraph(self, graph: onnx.GraphProto, names: dict[str, str], suffix: str) -> None:
        own = (*graph.input, *graph.initializer, *(sparse.values for sparse in graph.sparse_initializer))
        names |= {name: self._names.fresh(name + suffix) for name in dict.fromkeys(value.name for value in own)}
        for value in own:
            value.name = names[value.name]
        for node in graph.node:
            self._rename(node, names, {}, suffix)
        for value in graph.output:
            value.name = names[value.name]
        del graph.value_info[:]


def _bind(node: onnx.NodeProto, attributes: Mapping[str, onnx.AttributeProto]) -> None:
    """Replace references to attributes of a function, in subgraphs too, by attributes, or drop those without one."""
    for _, subgraph in subgraphs(node):
        for inner in subgraph.node:
            _bind(inner, attributes)
    if not any(attribute.ref_attr_name for attribute in node.attribute):
        return
    bound = []
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            bound.append(attribute)
        elif attribute.ref_attr_name in attributes:
            bound.append(deepcopy(attributes[attribute.ref_attr_name]))
            bound[-1].name = attribute.name
    set_items(node.attribute, bound)


def _import_domains(model: onnx.ModelProto, functions: Iterable[onnx.FunctionProto]) -> None:
    """Import the domains that only functions do; tell it where other versions of operators than theirs are read."""
    versions = {entry.domain: entry.version for entry in model.opset_import}
    for function in functions:
        for entry in function.opset_import:
            version = versions.get(entry.domain)
            if version is None:
                model.opset_import.append(entry)
                versions[entry.domain] = entry.version
                continue
            nodes = [node for node in with_subgraph_nodes(function.node) if domain(node) == entry.domain]
            others = [node for node in nodes if since_version(node, entry.version) != since_version(node, version)]
            if entry.version != version and others:
                _log.info(
                    "model: function %s imports opset %d, the model %d: its %s is read in the model's, as onnxruntime "
                    "does.", _text(_name(function)), entry.version, version, others[0].op_type,
                )  # fmt: skip


def check_functions(model: onnx.ModelProto) -> None:
    """Refuse functions that call themselves, or become more than can be loaded."""
    if not model.functions:
        return
    functions = {_name(function): function for function in model.functions}

    def calls_in(nodes: Iterable[onnx.NodeProto]) -> list[FunctionName]:
        return [name for name in map(_name, with_subgraph_nodes(nodes)) if name in functions]

    calls = {name: calls_in(function.node) for name, function in functions.items()}
    sizes: dict[FunctionName, tuple[int, int]] = {}  # nodes and bytes, once every call is replaced by nodes
    try:
        for name in TopologicalSorter(calls).static_order():
            own = sum(1 for _ in with_subgraph_nodes(functions[name].node)), functions[name].ByteSize()
            nodes, size = map(sum, zip(own, *map(sizes.__getitem__, calls[name]), strict=True))
            sizes[name] = nodes, size
    except CycleError as error:
        raise ModelError(f"model: function {_text(error.args[1][0])} calls itself. Export it again.") from error
    called = calls_in(model.graph.node)
    nodes, size = map(sum, zip((0, 0), *map(sizes.__getitem__, called), strict=True))
    if nodes > MOST_NODES or size > MOST_BYTES:
        largest = max(called, key=sizes.__getitem__)
        raise ModelError(
            f"model: expected functions that become at most {MOST_NODES} nodes of {MOST_BYTES // 2**20} MiB, got "
            f"{nodes} nodes of {size // 2**20} MiB, most of them from {_text(largest)}. "
            "Export it without functions that call functions."
        )


def _name(proto: onnx.NodeProto | onnx.FunctionProto) -> FunctionName:
    return proto.domain, proto.op_type if isinstance(proto, onnx.NodeProto) else proto.name, proto.overload


def _text(name: FunctionName) -> str:
    return ".".join(filter(None, name))


LONG_NAME = "ai.onnx"


def shorten_domains(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with "" in place of "ai.onnx"; the model itself when it does not use the long name."""
    if all(proto.domain != LONG_NAME for proto in _protos_with_domain(model)):
        return model
    copy = deepcopy(model)
    for proto in _protos_with_domain(copy):
        if proto.domain == LONG_NAME:
            proto.domain = ""
    return copy


def _protos_with_domain(model: onnx.ModelProto) -> Iterator[onnx.NodeProto | onnx.OperatorSetIdProto]:
    yield from model.opset_import
    yield from with_subgraph_nodes(model.graph.node)
    for function in model.functions:
        yield from function.opset_import
        yield from with_subgraph_nodes(function.node)
