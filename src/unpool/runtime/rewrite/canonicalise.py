"""Replaces auto_pad and output_shape by explicit pads, so that every runtime reads a model alike.

>>> from onnx import parser
>>> model = parser.parse_model('''
...     <ir_version: 8, opset_import: ["" : 17]>
...     grow (float[1, 1, 4] x, float[1, 1, 3] w) => (float[1, 1, 8] y) {
...         y = ConvTranspose <auto_pad = "SAME_UPPER", strides = [2]> (x, w)
...     }''')
>>> done = canonicalise(model)
>>> done.changes[0].after
'ConvTranspose-11 (pads=[0, 1])'
"""

from collections.abc import Mapping

from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.runtime.graph.errors import model_errors
from unpool.runtime.graph.load import ModelSource, load
from unpool.runtime.graph.semantics import Semantics, naming
from unpool.runtime.graph.shape_inference import ResolvedNode
from unpool.runtime.rewrite.forms import Form, explicit, in_row
from unpool.runtime.rewrite.open_model import EditableModel, open_model, windowed_node
from unpool.runtime.rewrite.replace import Rewritten, change, put_forms
from unpool.runtime.rewrite.verify import verify


def canonicalise(
    source: ModelSource, *, compat: str = "spec", index_space: str = "auto", sizes: Mapping[str, int] | None = None
) -> Rewritten:
    """The model with every auto_pad and output_shape of MaxPool and ConvTranspose written as explicit pads.

    The new form means the same under `compat="spec"` and `compat="ort"`. It is run beside the first one on random
    inputs. Model-local functions are inlined.

    Args:
        source: path of a model, its bytes, or a ModelProto, which is not changed.
        compat: how the model is to be read where the standard's text and ONNX Runtime differ.
        index_space: in which tensor MaxUnpool's indices count.
        sizes: for names of sizes that the model leaves open, used for the random inputs.

    Raises:
        UnsupportedError: a node cannot be written so, because its padding depends on a size that is unknown or its
            output is longer than the new form can make it; or the model cannot be verified.
        UnpoolError: the model cannot be read, or breaks a contract.
    """
    semantics = Semantics(compat, index_space)
    with model_errors(source):
        editable = open_model(source, semantics)
        forms = [explicit_form(editable, resolved) for resolved in editable.inference.resolved]
        put_forms(editable.model, forms)
        verify(load(source), editable.model, semantics, sizes or {})
        changes = [
            change(resolved, resolved.spec.row, form)
            for resolved, form in zip(editable.inference.resolved, forms, strict=True)
            if form is not None
        ]
        return Rewritten(editable.model, tuple(one for one in changes if one is not None))


def explicit_form(editable: EditableModel, resolved: ResolvedNode) -> Form | None:
    """How a node is written with explicit pads; None for a MaxUnpool, which has no others.

    Raises:
        UnsupportedError: it cannot be written so; the message says why.
    """
    if isinstance(resolved.spec, MaxUnpoolSpec):
        return None
    write = explicit if _is_implicit(resolved.spec) else in_row
    with naming(resolved.node):
        return write(windowed_node(editable, resolved), resolved.spec.row)


def _is_implicit(spec: MaxPoolSpec | ConvTransposeSpec) -> bool:
    """Whether the pads of a node are computed rather than given."""
    asks = isinstance(spec, ConvTransposeSpec) and spec.output_shape is not None
    return asks or spec.padding != "NOTSET"
