"""A whole model in a newer opset: the three operators by their contract, the other nodes by onnx's version converter.

>>> from onnx import parser
>>> model = parser.parse_model('''
...     <ir_version: 3, opset_import: ["" : 9]>
...     grow (float[1, 1, 3] x, float[1, 1, 3] w) => (float[1, 1, 6] y) {
...         t = ConvTranspose <output_shape = [6], strides = [2]> (x, w)
...         y = Relu (t)
...     }''')
>>> for one in upgrade(model, 22).changes:
...     print(one.node, "|", one.before, "|", one.after)
ConvTranspose->t | ConvTranspose-1 (output_shape=[6]) | ConvTranspose-22 (pads=[0, 1])
Relu->y | Relu-6 | Relu-14
"""

from collections.abc import Iterator, Mapping

import onnx

from unpool.errors import UnsupportedError
from unpool.operators import contract
from unpool.operators.contract import Row
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.runtime.bound import Meaning, naming
from unpool.runtime.boundary import reading
from unpool.runtime.check import check
from unpool.runtime.inference import OurNode
from unpool.runtime.load import Source, load
from unpool.runtime.nodes import attributes, domain, is_ours, label, since_version, with_inner
from unpool.runtime.passes.convert import convert, raise_ir
from unpool.runtime.passes.forms import Form, in_row
from unpool.runtime.passes.old_nodes import TARGET
from unpool.runtime.passes.old_opsets import lift_opset
from unpool.runtime.passes.opened import Opened, open_model, subject
from unpool.runtime.passes.rewrite import Change, Rewritten, change, put
from unpool.runtime.passes.verify import verify


def upgrade(
    source: Source,
    opset: int,
    *,
    compat: str = "spec",
    index_space: str = "auto",
    sizes: Mapping[str, int] | None = None,
) -> Rewritten:
    """The model in a newer opset of ONNX and, if it imports it, of the channels-last domain.

    Nodes whose meaning changed between the versions are written differently: with explicit pads where they are known,
    else with another auto_pad. The result is run beside the first model on random inputs. Model-local functions are
    inlined.

    Args:
        source: path of a model, its bytes, or a ModelProto, which is not changed.
        opset: the version to reach, not below the model's.
        compat: how the model is to be read where the standard's text and ONNX Runtime differ.
        index_space: in which tensor MaxUnpool's indices count.
        sizes: for names of sizes that the model leaves open, used for the random inputs.

    Raises:
        UnsupportedError: the opset is older than the model's or unknown to onnx, a node cannot be converted, or the
            model cannot be verified; a node is named.
        UnpoolError: the model cannot be read, or breaks a contract.
    """
    meaning = Meaning(compat, index_space)
    with reading(source):
        opened = open_model(source, meaning)
        _check_opset(opened.graph.opsets, opset)
        rows = [contract.row(one.node.op_type, domain(one.node), opset) for one in opened.inference.ours]
        forms = [_form(opened, ours, row) for ours, row in zip(opened.inference.ours, rows, strict=True)]
        model = _converted(opened, opset, meaning)
        for one in model.opset_import:
            if one.domain in contract.DOMAINS:
                one.version = opset
        put(model, forms)
        raise_ir(model)
        check(model)
        verify(load(source), model, meaning, sizes or {})
        ours = map(change, opened.inference.ours, rows, forms)
        return Rewritten(model, (*filter(None, ours), *_other_changes(opened, opset)))


def _check_opset(opsets: Mapping[str, int], opset: int) -> None:
    newest = onnx.defs.onnx_opset_version()
    oldest = max(TARGET, *(version for name, version in opsets.items() if name in contract.DOMAINS))
    if not oldest <= opset <= newest:
        raise UnsupportedError(
            f"upgrade: expected an opset from {oldest}, for this model, to {newest}, the newest that onnx "
            f"{onnx.__version__} knows, got {opset}. Choose another."
        )


def _form(opened: Opened, ours: OurNode, row: Row) -> Form:
    if isinstance(ours.spec, MaxUnpoolSpec):
        return Form(attributes(ours.node))
    with naming(ours.node):
        return in_row(subject(opened, ours), row)


def _converted(opened: Opened, opset: int, meaning: Meaning) -> onnx.ModelProto:
    """The model with its other nodes in the opset; ours still have the attributes that they had."""
    if opened.graph.opsets.get("", opset) == opset:
        return opened.model
    model = convert(lift_opset(opened.model, meaning), opset, opened.inference.types)
    kept = [label(node) for node in with_inner(model.graph.node) if is_ours(node)]
    expected = [label(one.node) for one in opened.inference.ours]
    if kept != expected:
        raise UnsupportedError(
            f"model: expected onnx's version converter to keep the order of {', '.join(expected)}, "
            f"got {', '.join(kept)}. Please report it."
        )
    return model


def _other_changes(opened: Opened, opset: int) -> Iterator[Change]:
    before = opened.graph.opsets.get("", opset)
    for node in with_inner(opened.graph.nodes):
        if not is_ours(node) and domain(node) == "":
            old, new = since_version(node, before), since_version(node, opset)
            if old != new:
                yield Change(label(node), f"{node.op_type}-{old}", f"{node.op_type}-{new}")
