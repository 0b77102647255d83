"""Puts the new forms of nodes into a model, and says in words what that changed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from unpool.display import display_line, format_shape
from unpool.errors import UnsupportedError
from unpool.operators.attributes import Attributes
from unpool.operators.contract import Row
from unpool.runtime.graph.graph import FreshNames, unused_names_in_proto
from unpool.runtime.graph.nodes import attributes, domain, is_unpool_op, node_name, subgraphs
from unpool.runtime.graph.shape_inference import ResolvedNode
from unpool.runtime.passes.rewrite import NodeChange
from unpool.runtime.rewrite.forms import Form

FIRST_PAD_INPUT = 11  # before it, the pads of Pad were an attribute
OLD_PAD = "paddings"  # its name in version 1


@dataclass(frozen=True)
class Rewritten:
    """A model that computes what it did before, and what is different in it; `print` shows the changes."""

    model: onnx.ModelProto
    changes: tuple[NodeChange, ...]

    def __str__(self) -> str:
        return "\n".join(display_line(str(one)) for one in self.changes) or "no node changed"


def put_forms(model: onnx.ModelProto, forms: Sequence[Form | None]) -> None:
    """Give every node of ours its form, in the order of `nodes.with_inner`; None leaves a node as it is.

    Raises:
        UnsupportedError: a form needs Pad, and the model does not import ONNX's own operators.
    """
    opsets = {one.domain: one.version for one in model.opset_import}
    _put(model.graph, iter(forms), opsets.get("", 0), unused_names_in_proto(model.graph))


def _put(graph: onnx.GraphProto, forms: Iterator[Form | None], opset: int, names: FreshNames) -> None:
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for _, body in subgraphs(node):
            _put(body, forms, opset, names)
        form = next(forms) if is_unpool_op(node) else None
        nodes.extend([node] if form is None else _written(node, form, opset, names))
    del graph.node[:]
    graph.node.extend(nodes)


def _written(node: onnx.NodeProto, form: Form, opset: int, names: FreshNames) -> Iterator[onnx.NodeProto]:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    copy.attribute.extend(helper.make_attribute(name, value) for name, value in form.attributes.items())
    if form.behind:
        padded = names.fresh(f"{node.input[0]}_longer")
        yield from _pad(node, form, opset, padded, names)
        copy.input[0] = padded
    yield copy


def _pad(node: onnx.NodeProto, form: Form, opset: int, output: str, names: FreshNames) -> Iterator[onnx.NodeProto]:
    """Zeros behind the spatial axes of the node's first input."""
    if opset < 1:
        raise UnsupportedError(
            f"node {node_name(node)!r}: needs a Pad before it, got a model without ONNX's operators."
        )
    outer = (0, *form.behind, 0) if domain(node) else (0, 0, *form.behind)
    pads = [0] * len(outer) + list(outer)
    if opset < FIRST_PAD_INPUT:
        old = helper.make_node("Pad", [node.input[0]], [output])
        old.attribute.append(helper.make_attribute("pads" if opset > 1 else OLD_PAD, pads))
        yield old
        return
    amounts = names.fresh(f"{output}_by")
    tensor = numpy_helper.from_array(np.array(pads, np.int64), amounts)
    yield helper.make_node("Constant", [], [amounts], value=tensor)
    yield helper.make_node("Pad", [node.input[0], amounts], [output])


def change(resolved: ResolvedNode, row: Row, form: Form) -> NodeChange | None:
    """What a user is told of a new form; None if the form changes nothing that is shown."""
    given = attributes(resolved.node)
    before = described(resolved.spec.row, given, form.attributes)
    after = described(row, form.attributes, given)
    if form.behind:
        after += f" behind Pad by {format_shape(form.behind)}"
    return None if before == after else NodeChange(node_name(resolved.node), before, after)


def described(row: Row, given: Attributes, other: Attributes) -> str:
    """An operator, its version, and those attributes that settle its padding and are not the same in its other form.

    >>> from unpool.operators import contract
    >>> given = {"auto_pad": b"SAME_UPPER", "output_padding": [1], "strides": [2], "group": 1}
    >>> described(contract.row("ConvTranspose", "", 7), given, {"pads": [0, 1], "output_padding": [1], "strides": [2]})
    'ConvTranspose-1 (auto_pad=SAME_UPPER)'
    """
    shown = ("auto_pad", "pads", "output_padding", "output_shape", "ceil_mode")
    words = {name: _word(given[name]) for name in shown if name in given}
    same = {name for name in words if name in other and _word(other[name]) == words[name]}
    parts = [f"{name}={word}" for name, word in words.items() if name not in same]
    return row.label + (f" ({', '.join(parts)})" if parts else "")


def _word(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return list(value) if isinstance(value, (list, tuple)) else value
