"""Model-local functions replaced by their nodes, so that the plan sees every operator."""

from functools import reduce
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple, TypeAlias

import onnx
from onnx import inliner

from unpool.errors import ModelError
from unpool.runtime.light import lighten, put_back
from unpool.runtime.nodes import with_inner

MOST_NODES = 30_000
"""Nodes that the functions of a model may become: loading takes a third of a millisecond for each."""

MOST_BYTES = 2**30
"""Bytes that their nodes may take, tensors in them included: every call has its own."""

Name: TypeAlias = tuple[str, str, str]


class Size(NamedTuple):
    """What something becomes without functions."""

    nodes: int
    bytes: int

    def plus(self, other: "Size") -> "Size":
        """Both together."""
        return Size(self.nodes + other.nodes, self.bytes + other.bytes)


def inline(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without functions; the model itself when it has none.

    Raises:
        ModelError: a function cannot be inlined, calls itself, or becomes too many nodes.
    """
    if not model.functions:
        return model
    _check_growth(model)
    try:
        flat = inliner.inline_local_functions(lighten(model))
    except Exception as error:
        words = " ".join(str(error).split()).rstrip(".")
        raise ModelError(f"model: expected functions that can be inlined, got: {words}. Export it again.") from error
    return put_back(flat, model)


def _check_growth(model: onnx.ModelProto) -> None:
    """Refuse a model whose functions call themselves, or become more than what can be loaded."""
    known = {_name(one) for one in model.functions}
    calls = {
        _name(one): [name for name in map(_name, with_inner(one.node)) if name in known] for one in model.functions
    }
    own = {_name(one): Size(sum(1 for _ in with_inner(one.node)), one.ByteSize()) for one in model.functions}
    sizes: dict[Name, Size] = {}
    try:
        for name in TopologicalSorter(calls).static_order():
            sizes[name] = reduce(Size.plus, map(sizes.__getitem__, calls[name]), own[name])
    except CycleError as error:
        raise ModelError(
            f"model: expected functions that do not call themselves, got {_text(error.args[1][0])}. Export it again."
        ) from error
    called = [name for name in map(_name, with_inner(model.graph.node)) if name in known]
    found = reduce(Size.plus, map(sizes.__getitem__, called), Size(0, 0))
    if found.nodes > MOST_NODES or found.bytes > MOST_BYTES:
        largest = max(called, key=sizes.__getitem__)
        raise ModelError(
            f"model: expected functions that become at most {MOST_NODES} nodes of {MOST_BYTES // 2**20} MiB, got "
            f"{found.nodes} nodes of {found.bytes // 2**20} MiB, most of them from {_text(largest)}. "
            "Export it without functions that call functions."
        )


def _name(one: onnx.NodeProto | onnx.FunctionProto) -> Name:
    name = one.op_type if isinstance(one, onnx.NodeProto) else one.name
    return one.domain, name, one.overload


def _text(name: Name) -> str:
    return ".".join(filter(None, name))
