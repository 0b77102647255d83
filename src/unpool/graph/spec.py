"""The specs of nodes, whose attributes and numbers of inputs are checked against the operators' contract."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import onnx

from unpool.errors import ModelError, UnpoolError, UnsupportedError
from unpool.graph.nodes import attributes, domain, node_name
from unpool.operators import contract, resolve
from unpool.operators.contract import OperatorVersion
from unpool.operators.resolve import Spec
from unpool.operators.semantics import Semantics


@contextmanager
def naming(node: onnx.NodeProto) -> Iterator[None]:
    """Adds the name of the node to errors of unpool that are raised inside."""
    try:
        yield
    except UnpoolError as error:
        raise named(error, node) from error


def named(error: UnpoolError, node: onnx.NodeProto) -> UnpoolError:
    """The error with the node's name in it, right after the operator and its version."""
    operator, colon, rest = str(error).partition(": ")
    if not operator.startswith(node.op_type):
        operator, colon, rest = node.op_type, ": ", str(error)
    return type(error)(f"{operator} node {node_name(node)!r}{colon}{rest}")


def spec_of(node: onnx.NodeProto, opsets: Mapping[str, int], semantics: Semantics) -> Spec:
    """The spec of a node of unpool, whose contract is checked."""
    with naming(node):
        where = domain(node)
        if where not in opsets:
            fact = f"the model does not import domain {where or 'ai.onnx'!r}"
            known = ", ".join(map(repr, opsets)) or "none"
            raise ModelError(f"{node.op_type}: {fact}, only {known}. Add an opset_import.")
        _check_arity(node, contract.version_at(node.op_type, where, opsets[where]))
        return resolve.spec(
            node.op_type, attributes(node), domain=where, opset=opsets[where], compat=semantics.compat,
            index_space=semantics.index_space, exact=semantics.exact,
        )  # fmt: skip


def _check_arity(node: onnx.NodeProto, version: OperatorVersion) -> None:
    inputs, outputs = len(node.input), len(node.output)
    if not version.min_inputs <= inputs <= version.max_inputs or not all(node.input[: version.min_inputs]):
        expected = f"{version.min_inputs} to {version.max_inputs} inputs"
        raise ModelError(f"{version.label}: expected {expected}, got {list(node.input)}. Export the model again.")
    if not any(node.output[:1]):
        raise ModelError(f"{version.label}: its first output has no name. Name it.")
    if outputs > version.max_outputs:
        advice = "Indices exist from opset 8 on" if version.operator == "MaxPool" else "Drop the others"
        names = f"{outputs}: {list(node.output)}"
        raise UnsupportedError(f"{version.label}: expected {version.max_outputs} output, got {names}. {advice}.")
