"""Torch beside a run of a model: each node of ours alone, from what that run has for it."""

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from unpool.errors import UnsupportedError
from unpool.extras import require
from unpool.runtime.compare.compared import ComparedValue, Peer, Refusal
from unpool.runtime.compare.difference import Tolerance
from unpool.runtime.compare.matching import Values, compared_values
from unpool.runtime.compare.stepwise import Stepwise
from unpool.runtime.compare.torch_nodes import run_node
from unpool.runtime.graph.errors import short_message
from unpool.runtime.graph.nodes import is_unpool_op, node_name
from unpool.runtime.graph.semantics import Semantics, spec_of


def by_torch(model: Stepwise, seen: Values, expected: Values, semantics: Semantics, tolerance: Tolerance) -> Peer:
    """What torch makes of the MaxPool, MaxUnpool and ConvTranspose nodes of a model; those in bodies are left out.

    Raises:
        MissingExtraError: torch is not installed.
    """
    require("compare", "torch", "torch")
    made: dict[str, Any] = {}
    refusals = []
    known = {**seen, **expected}
    for node in filter(is_unpool_op, model.graph.nodes):
        try:
            spec = spec_of(node, model.graph.opsets, semantics)
            outputs = run_node(spec, [_value(known, name) for name in node.input])
            made |= dict(zip(node.output, outputs, strict=False))
        except Exception as error:  # whatever torch raises means that it does not run the node
            refusals.append(Refusal(node_name(node), model.operator(node), short_message(error)))
    found = compared_values(model, seen, expected, made, tolerance)
    return Peer(f"torch {version('torch')}, node by node", tuple(_alone(found)), refusals=tuple(refusals))


def _value(known: Values, name: str) -> Any:
    """A tensor that a node reads, None where it is left out."""
    if name and name not in known:
        raise UnsupportedError(f"the value {name!r} that it reads is of an unknown type")
    return known[name] if name else None


def _alone(values: Iterator[ComparedValue]) -> Iterator[ComparedValue]:
    """The values of nodes that got the same inputs: where one differs, its own node is the reason."""
    for one in values:
        yield ComparedValue(one.node, one.operator, one.value, one.difference, one.difference.departs, one.choices)
