"""Model-local functions replaced by their nodes, so that the plan sees every operator, and ONNX's domain as ""."""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias

import onnx
from onnx import helper, inliner
from onnx.defs import onnx_opset_version

from unpool.errors import ModelError
from unpool.runtime.graph.errors import one_line
from unpool.runtime.graph.graph import FreshNames
from unpool.runtime.graph.nodes import with_subgraph_nodes
from unpool.runtime.graph.weights import restore_initializers, strip_initializers

MOST_NODES = 30_000  # that the calls of functions may become in all: loading takes a third of a millisecond for each
MOST_BYTES = 2**30  # that these nodes may take, with the tensors in them, of which every call gets a copy
FunctionName: TypeAlias = tuple[str, str, str]


def inline(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without functions; the model itself when it has none.

    Raises a ModelError for a function that cannot be inlined, calls itself, or becomes too many nodes.
    """
    if not model.functions:
        return model
    _check_functions(model)
    try:
        flat = inliner.inline_local_functions(_with_own_outputs(strip_initializers(model)))
    except Exception as error:
        raise ModelError(f"model: a function cannot be inlined: {one_line(error)}. Export it again.") from error
    return restore_initializers(flat, model)


def _with_own_outputs(skeleton: onnx.ModelProto) -> onnx.ModelProto:
    """The skeleton, changed in place: an input that a function returns goes through an Identity; onnx would drop it."""
    version = next((entry.version for entry in skeleton.opset_import if entry.domain == ""), onnx_opset_version())
    for function in skeleton.functions:
        values = [name for node in function.node for name in node.output]
        names = FreshNames([*function.input, *function.output, *values])
        for position, name in enumerate(function.output):
            if name in function.input:
                function.output[position] = names.fresh(name)
                function.node.append(helper.make_node("Identity", [name], [function.output[position]]))
        if len(function.node) > 0 and all(entry.domain for entry in function.opset_import):
            function.opset_import.append(helper.make_opsetid("", version))
    return skeleton


def _check_functions(model: onnx.ModelProto) -> None:
    """Refuse functions that call themselves, become more than can be loaded, or return a value that no node makes."""
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
    for function in model.functions:
        values = {*function.input, *(name for node in function.node for name in node.output)}
        missing = [output for output in function.output if output not in values]
        if missing:
            raise ModelError(
                f"model: no node of the function {_text(_name(function))} makes its output {missing[0]!r}."
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
