"""Upgrade of a model to a newer opset: its MaxPool, MaxUnpool and ConvTranspose nodes by their contract, and its other
nodes by onnx's version converter.
"""

from collections.abc import Iterator, Mapping

import onnx

from unpool.errors import UnsupportedError
from unpool.graph.errors import model_errors
from unpool.graph.load import ModelSource, check_model, load
from unpool.graph.nodes import attributes, domain, is_unpool_op, node_name, since_version, with_subgraph_nodes
from unpool.graph.spec import naming
from unpool.operators import contract
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.operators.semantics import Semantics
from unpool.passes.rewrite import NodeChange
from unpool.passes.upgrade_opset import TARGET, convert_opset, lift_opset, update_ir_version
from unpool.runtime.rewrite.open_model import EditableModel, open_model, windowed_node
from unpool.runtime.rewrite.verify import verify
from unpool.runtime.rewrite.window_forms import Form, RewriteResult, apply_forms, form_in_version


def upgrade(
    source: ModelSource,
    opset: int,
    *,
    compat: str = "spec",
    index_space: str = "auto",
    sizes: Mapping[str, int] | None = None,
) -> RewriteResult:
    """The model in a newer opset of ONNX and, if the model imports it, of the channels-last domain.

    Nodes whose meaning changed between the versions are rewritten: with explicit pads if these are known, else with
    another auto_pad. Both models run on random inputs for verification. Model-local functions are inlined.

    Args:
        source: path of a model, its bytes, or a ModelProto, which is not changed.
        opset: the opset of the new model, not below that of the model.
        compat: "spec" reads the model by the standard's text, "ort" as ONNX Runtime where the two differ.
        index_space: the tensor that MaxUnpool's indices refer to, as in `unpool.max_unpool`.
        sizes: by the name of a dynamic dimension, its size in the random inputs.

    Returns:
        a record with the new `model` and the `changes`, which `print` shows.

    Raises:
        UnsupportedError: the opset is older than the model's or unknown to onnx, a node cannot be converted, or the
            model cannot be verified; the message names the node.
        UnpoolError: the model cannot be read, or a node violates the contract.

    >>> from onnx import parser
    >>> model = parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["" : 9]>
    ...     shrink (float[1, 1, 4] x) => (float[1, 1, 2] y) { y = MaxPool <kernel_shape = [2], strides = [2]> (x) }''')
    >>> upgrade(model, 22).model.opset_import[0].version
    22
    """
    semantics = Semantics(compat, index_space)
    with model_errors(source):
        editable = open_model(source, semantics)
        nodes, opsets = editable.inference.resolved, editable.graph.opsets
        newest = onnx.defs.onnx_opset_version()
        oldest = max(TARGET, *(version for name, version in opsets.items() if name in contract.DOMAINS))
        if not oldest <= opset <= newest:
            raise UnsupportedError(
                f"upgrade: expected an opset from {oldest}, for this model, to {newest}, the newest that onnx "
                f"{onnx.__version__} knows, got {opset}."
            )
        versions = [contract.version_at(resolved.node.op_type, domain(resolved.node), opset) for resolved in nodes]
        forms = []
        for resolved, version in zip(nodes, versions, strict=True):
            with naming(resolved.node):
                is_unpool = isinstance(resolved.spec, MaxUnpoolSpec)
                given = Form(attributes(resolved.node))
                forms.append(given if is_unpool else form_in_version(windowed_node(editable, resolved), version))
        model = _convert(editable, opset, semantics)
        for entry in model.opset_import:
            if entry.domain in contract.DOMAINS:
                entry.version = opset
        changes = apply_forms(model, nodes, forms, versions)
        update_ir_version(model)
        check_model(model)
        verify(load(source), model, semantics, sizes or {})
        return RewriteResult(model, (*changes, *_other_changes(editable, opset)))


def _convert(editable: EditableModel, opset: int, semantics: Semantics) -> onnx.ModelProto:
    """The model with all other nodes converted to the opset; unpool's nodes keep their attributes for now."""
    if editable.graph.opsets.get("", opset) == opset:
        return editable.model
    model = convert_opset(lift_opset(editable.model, semantics), opset, editable.inference.types)
    kept = [node_name(node) for node in with_subgraph_nodes(model.graph.node) if is_unpool_op(node)]
    expected = [node_name(resolved.node) for resolved in editable.inference.resolved]
    if kept != expected:
        raise UnsupportedError(
            f"model: expected onnx's version converter to keep the order of {', '.join(expected)}, "
            f"got {', '.join(kept)}. Please report it."
        )
    return model


def _other_changes(editable: EditableModel, opset: int) -> Iterator[NodeChange]:
    before = editable.graph.opsets.get("", opset)
    for node in with_subgraph_nodes(editable.graph.nodes):
        if not is_unpool_op(node) and domain(node) == "":
            old, new = since_version(node, before), since_version(node, opset)
            if old != new:
                yield NodeChange(node_name(node), f"{node.op_type}-{old}", f"{node.op_type}-{new}")
