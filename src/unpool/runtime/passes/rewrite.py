"""New forms put in the places of nodes, and what that changed in words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from unpool.errors import UnsupportedError
from unpool.operators import tensors
from unpool.operators.attributes import Attributes
from unpool.operators.contract import Row
from unpool.runtime.inference import OurNode
from unpool.runtime.nodes import attributes, bodies, domain, is_ours, label
from unpool.runtime.passes.forms import Form

FIRST_PAD_INPUT = 11  # before it, the pads of Pad were an attribute
OLD_PAD = "paddings"  # its name in version 1


@dataclass(frozen=True)
class Change:
    """One node that is written differently: its label, and the operator, version and attributes on both sides."""

    node: str
    before: str
    after: str


@dataclass(frozen=True)
class Rewritten:
    """A model that computes what it did before, and what is different in it."""

    model: onnx.ModelProto
    changes: tuple[Change, ...]


def put(model: onnx.ModelProto, forms: Sequence[Form | None]) -> None:
    """Give every node of ours its form, in the order of `nodes.with_inner`; None leaves a node as it is.

    Raises:
        UnsupportedError: a form needs Pad, and the model does not import ONNX's own operators.
    """
    opsets = {one.domain: one.version for one in model.opset_import}
    _put(model.graph, iter(forms), opsets.get("", 0), set(_names(model.graph)))


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (one.name for one in (*graph.input, *graph.initializer))
    yield from (sparse.values.name for sparse in graph.sparse_initializer)
    for node in graph.node:
        yield from (*node.input, *node.output)
        for _, body in bodies(node):
            yield from _names(body)


def _put(graph: onnx.GraphProto, forms: Iterator[Form | None], opset: int, names: set[str]) -> None:
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for _, body in bodies(node):
            _put(body, forms, opset, names)
        form = next(forms) if is_ours(node) else None
        nodes.extend([node] if form is None else _written(node, form, opset, names))
    del graph.node[:]
    graph.node.extend(nodes)


def _written(node: onnx.NodeProto, form: Form, opset: int, names: set[str]) -> Iterator[onnx.NodeProto]:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    copy.attribute.extend(helper.make_attribute(name, value) for name, value in form.attributes.items())
    if form.behind:
        padded = _fresh(f"{node.input[0]}_longer", names)
        yield from _pad(node, form, opset, padded, names)
        copy.input[0] = padded
    yield copy


def _pad(node: onnx.NodeProto, form: Form, opset: int, output: str, names: set[str]) -> Iterator[onnx.NodeProto]:
    """Zeros behind the spatial axes of the node's first input."""
    if opset < 1:
        raise UnsupportedError(f"node {label(node)!r}: needs a Pad before it, got a model without ONNX's operators.")
    outer = (0, *form.behind, 0) if domain(node) else (0, 0, *form.behind)
    pads = [0] * len(outer) + list(outer)
    if opset < FIRST_PAD_INPUT:
        old = helper.make_node("Pad", [node.input[0]], [output])
        old.attribute.append(helper.make_attribute("pads" if opset > 1 else OLD_PAD, pads))
        yield old
        return
    amounts = _fresh(f"{output}_by", names)
    tensor = numpy_helper.from_array(np.array(pads, np.int64), amounts)
    yield helper.make_node("Constant", [], [amounts], value=tensor)
    yield helper.make_node("Pad", [node.input[0], amounts], [output])


def _fresh(wish: str, names: set[str]) -> str:
    name = wish
    while name in names:
        name += "_"
    names.add(name)
    return name


def change(ours: OurNode, row: Row, form: Form) -> Change | None:
    """What a form changes; None if nothing."""
    before = words(ours.spec.row, attributes(ours.node))
    after = words(row, form.attributes)
    if form.behind:
        after += f" behind Pad by {tensors.text(form.behind)}"
    return None if before == after else Change(label(ours.node), before, after)


def words(row: Row, given: Attributes) -> str:
    """An operator, its version and the attributes that settle its padding.

    >>> from unpool.operators import contract
    >>> words(contract.row("ConvTranspose", "", 7), {"auto_pad": b"SAME_UPPER", "strides": [2], "group": 1})
    'ConvTranspose-1 (auto_pad=SAME_UPPER)'
    """
    shown = ("auto_pad", "pads", "output_padding", "output_shape", "ceil_mode")
    parts = [f"{name}={_word(given[name])}" for name in shown if name in given]
    return row.label + (f" ({', '.join(parts)})" if parts else "")


def _word(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return list(value) if isinstance(value, (list, tuple)) else value
