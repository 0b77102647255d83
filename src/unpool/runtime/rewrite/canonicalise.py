"""Canonical form of a model: explicit pads instead of auto_pad and output_shape, which every runtime reads alike."""

from collections.abc import Mapping

from unpool.graph.errors import model_errors
from unpool.graph.load import ModelSource, load
from unpool.graph.shape_inference import ResolvedNode
from unpool.graph.spec import naming
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.operators.semantics import Semantics
from unpool.runtime.rewrite.open_model import EditableModel, open_model, windowed_node
from unpool.runtime.rewrite.verify import verify
from unpool.runtime.rewrite.window_forms import Form, RewriteResult, apply_forms, explicit_pads_form, form_in_version


def canonicalise(
    source: ModelSource, *, compat: str = "spec", index_space: str = "auto", sizes: Mapping[str, int] | None = None
) -> RewriteResult:
    """The model with explicit pads in place of every auto_pad and output_shape of MaxPool and ConvTranspose.

    The new model has the same windows with `compat="spec"` and `compat="ort"`. Both models run on random inputs for
    verification. Model-local functions are inlined.

    Args:
        source: path of a model, its bytes, or a ModelProto, which is not changed.
        compat: "spec" reads the model by the standard's text, "ort" as ONNX Runtime where the two differ.
        index_space: the tensor that MaxUnpool's indices refer to, as in `unpool.max_unpool`.
        sizes: by the name of a dynamic dimension, its size in the random inputs.

    Returns:
        a record with the new `model` and the `changes`, which `print` shows.

    Raises:
        UnsupportedError: a node cannot be rewritten, because its padding depends on an unknown size, or its output is
            longer than explicit pads can make it; or the model cannot be verified.
        UnpoolError: the model cannot be read, or a node violates the contract.

    >>> from onnx import parser
    >>> result = canonicalise(parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["" : 17]>
    ...     shrink (float[1, 1, 4] x) => (float[1, 1, 4] y) {
    ...         y = MaxPool <kernel_shape = [2], auto_pad = "SAME_UPPER"> (x)
    ...     }'''))
    >>> {item.name: list(item.ints) for item in result.model.graph.node[0].attribute}["pads"]
    [0, 1]
    """
    semantics = Semantics(compat, index_space)
    with model_errors(source):
        editable = open_model(source, semantics)
        nodes = editable.inference.resolved
        changes = apply_forms(editable.model, nodes, [explicit_form(editable, node) for node in nodes])
        verify(load(source), editable.model, semantics, sizes or {})
        return RewriteResult(editable.model, changes)


def explicit_form(editable: EditableModel, resolved: ResolvedNode) -> Form | None:
    """The form of a node with explicit pads, or an UnsupportedError; None for a MaxUnpool, which has no others."""
    spec = resolved.spec
    if isinstance(spec, MaxUnpoolSpec):
        return None
    computes_pads = spec.padding != "NOTSET" or (isinstance(spec, ConvTransposeSpec) and spec.output_shape is not None)
    with naming(resolved.node):
        node = windowed_node(editable, resolved)
        return explicit_pads_form(node, spec.version) if computes_pads else form_in_version(node, spec.version)
