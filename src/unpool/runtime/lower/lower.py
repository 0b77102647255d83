"""Writes a model in operators that a deployment target runs: without MaxUnpool, Indices or the channels-last domain.

>>> from onnx import parser
>>> model = parser.parse_model('''
...     <ir_version: 8, opset_import: ["" : 17]>
...     shrink_and_grow (float[1, 2, 5] x) => (float[1, 2, 5] z) {
...         y, i = MaxPool <kernel_shape = [2], strides = [2]> (x)
...         s = Shape (x)
...         z = MaxUnpool <kernel_shape = [2], strides = [2]> (y, i, s)
...     }''')
>>> for one in lower(model, target="openvino").changes:
...     print(one.node, "|", one.before, "|", one.after)
MaxUnpool->z | MaxUnpool-11 | positions found again by comparing with the result of MaxPool->y
"""

from collections.abc import Mapping
from dataclasses import replace

import onnx
from onnx import helper

from unpool.errors import UnsupportedError
from unpool.operators.max_pool import MaxPoolSpec
from unpool.runtime.graph import shapes
from unpool.runtime.graph.dynamic_dims import DimFlow
from unpool.runtime.graph.errors import model_errors
from unpool.runtime.graph.graph import Graph, unused_names
from unpool.runtime.graph.load import ModelSource
from unpool.runtime.graph.nodes import domain, is_unpool_op, node_name, reads, subgraph_nodes
from unpool.runtime.graph.save import spill_weights
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.graph.shape_inference import infer
from unpool.runtime.graph.shapes import Types
from unpool.runtime.graph.validity import check_model
from unpool.runtime.lower.channels_first import channels_first_edits
from unpool.runtime.lower.checks import checked, expected_results
from unpool.runtime.lower.left import left_over
from unpool.runtime.lower.lowered import Lowered, Part
from unpool.runtime.lower.padded_pools import padded_pools
from unpool.runtime.lower.probes import probe
from unpool.runtime.lower.target import Target
from unpool.runtime.lower.targets import target_of
from unpool.runtime.lower.unpooling import lowered_unpoolings
from unpool.runtime.passes.fuse_unpool import fuse_unpool_patterns
from unpool.runtime.passes.rewrite import NodeChange, apply_to_model
from unpool.runtime.rewrite.canonicalise import explicit_form
from unpool.runtime.rewrite.forms import Form, explicit
from unpool.runtime.rewrite.open_model import EditableModel, open_model, windowed_node
from unpool.runtime.rewrite.replace import change, put_forms
from unpool.runtime.rewrite.upgrade import upgrade

OLDEST = 13
"""The first opset in which all operators of the new forms take their numbers as inputs."""

USUAL = 17
"""The opset of ONNX's own operators in a model that imports none of them."""


def lower(
    source: ModelSource,
    target: str | Target,
    *,
    compat: str = "spec",
    index_space: str = "auto",
    sizes: Mapping[str, int] | None = None,
) -> Lowered:
    """The model in operators that the target runs, with the same results, bit for bit where no other node rounds.

    A MaxUnpool of the indices of a MaxPool in the same model becomes a comparison of elements with the largest of their
    window, which needs no indices; any other becomes a ScatterElements. The pads of MaxPool and ConvTranspose are
    written out. A model below opset 13 is upgraded to it. The result is run in onnxruntime, onnx's ReferenceEvaluator
    and OpenVINO, as far as they are installed, and compared with the first model. Model-local functions are inlined.

    Args:
        source: path of a model, its bytes, or a ModelProto, which is not changed.
        target: "openvino", "tensorrt", "coreml", "tflite", "onnxruntime-web", "any" for what all of them run; or a
            record of another target.
        compat: how the model is to be read where the standard's text and ONNX Runtime differ.
        index_space: in which tensor MaxUnpool's indices count where that is not certain.
        sizes: for names of sizes that the model leaves open, used for the random inputs.

    Raises:
        UnsupportedError: there is no such target; a MaxUnpool is inside a body, or cannot be written so; or the result
            cannot be checked, or is another in one of the runtimes.
        UnpoolError: the model cannot be read, or breaks a contract.
    """
    wanted, semantics = target_of(target), Semantics(compat, index_space)
    with model_errors(source), spill_weights(source) as (first, restore):
        draft = _Draft(first, semantics, sizes or {})
        draft.put_explicit_pads()
        draft.put_channels_first()
        draft.raise_nodes()
        parts = draft.lower_unpoolings(wanted)
        draft.drop_indices()
        draft.pad_pools(wanted)
        check_model(draft.model)
        expected = expected_results(first, semantics, sizes or {})
        opset = next(one.version for one in draft.model.opset_import if one.domain == "")
        probes = [probe(part, opset, draft.model.ir_version) for part in parts]
        checks = checked(draft.model, [one for one in probes if one is not None], expected)
        lowered = Lowered(draft.model, wanted, tuple(draft.changes), tuple(left_over(draft.model, wanted)), checks)
        _require_run(lowered)
        return replace(lowered, model=restore(lowered.model))


class _Draft:
    """The model as it is after the steps so far."""

    def __init__(self, first: onnx.ModelProto, semantics: Semantics, sizes: Mapping[str, int]) -> None:
        self._semantics = semantics
        self.changes: list[NodeChange] = []
        self.model = first
        opsets = {one.domain: one.version for one in first.opset_import}
        if opsets.get("", opsets.get("ai.onnx", OLDEST)) < OLDEST:
            newer = upgrade(first, OLDEST, compat=semantics.compat, index_space=semantics.index_space, sizes=sizes)
            self.model, self.changes = newer.model, list(newer.changes)
        self._refuse_inner()

    def put_explicit_pads(self) -> None:
        """Write auto_pad and output_shape as pads, wherever these are the same for all sizes."""
        opened = self._open()
        forms = [_form_or_none(opened, place) for place in range(len(opened.inference.resolved))]
        put_forms(self.model, forms)
        pairs = zip(opened.inference.resolved, forms, strict=True)
        found = [change(one, one.spec.row, form) for one, form in pairs if form is not None]
        self.changes += [one for one in found if one is not None]

    def put_channels_first(self) -> None:
        """Write nodes of the channels-last domain as ONNX's own."""
        opened = self._open()
        dtypes = {name: shapes.dtype(type_) for name, type_ in opened.inference.types.items()}
        edits = list(channels_first_edits(opened.inference.resolved, unused_names(opened.graph), dtypes))
        if not edits:
            return
        apply_to_model(self.model, edits)
        kept = [one for one in self.model.opset_import if one.domain in {node.domain for node in self.model.graph.node}]
        if not any(one.domain == "" for one in kept):
            kept.append(helper.make_opsetid("", USUAL))
        del self.model.opset_import[:]
        self.model.opset_import.extend(kept)
        self.changes += [edit.change for edit in edits]

    def raise_nodes(self) -> None:
        """Replace decomposed unpoolings by MaxUnpool, so that they are lowered as such."""
        opened = self._open()
        for edits in fuse_unpool_patterns(opened.graph, opened.inference.types, self._infer).rounds:
            apply_to_model(self.model, edits)
            self.changes += [edit.change for edit in edits]

    def lower_unpoolings(self, target: Target) -> list[Part]:
        """Replace every MaxUnpool."""
        opened = self._open()
        flow = DimFlow(opened.graph, opened.inference.types)
        space = "output" if self._semantics == Semantics("ort") else self._semantics.index_space
        found = list(lowered_unpoolings(flow, unused_names(opened.graph), target.doubled, space))
        apply_to_model(self.model, [edit for edit, _ in found])
        self.changes += [edit.change for edit, _ in found]
        return [part for _, part in found]

    def drop_indices(self) -> None:
        """Take the Indices away from every MaxPool of which nobody reads them."""
        needed = {value.name for value in self.model.graph.output}
        needed.update(name for node in self.model.graph.node for name in reads(node))
        dropped = set()
        for node in self.model.graph.node:
            if (
                is_unpool_op(node)
                and node.op_type == "MaxPool"
                and len(node.output) > 1
                and node.output[1] not in needed
            ):
                dropped.add(node.output.pop(1))
        known = [value for value in self.model.graph.value_info if value.name not in dropped]
        del self.model.graph.value_info[:]
        self.model.graph.value_info.extend(known)

    def pad_pools(self, target: Target) -> None:
        """Write every ceil_mode that is left as padding, where nobody reads indices."""
        opened = self._open()
        names, of_integers = unused_names(opened.graph), not target.drops_windows
        edits = list(padded_pools(opened.graph, opened.inference.types, names, of_integers=of_integers))
        apply_to_model(self.model, edits)
        self.changes += [edit.change for edit in edits]

    def _open(self) -> EditableModel:
        opened = open_model(self.model, self._semantics)
        self.model = opened.model
        return opened

    def _infer(self, graph: Graph) -> Types:
        return infer(graph, self._semantics).types

    def _refuse_inner(self) -> None:
        for holder in self.model.graph.node:
            for node in subgraph_nodes(holder):
                if is_unpool_op(node) and (node.op_type == "MaxUnpool" or domain(node) != ""):
                    raise UnsupportedError(
                        f"{node.op_type} node {node_name(node)!r}: expected it outside of the bodies of If, Loop and "
                        f"Scan, got it in {holder.op_type} node {node_name(holder)!r}. Move it out."
                    )


def _form_or_none(opened: EditableModel, place: int) -> Form | None:
    """The new form of a node of ours; None if it stays, as it must where its pads depend on a size that is open.

    A ceil_mode becomes pads too, for OpenVINO keeps windows that begin in the padding, which ONNX drops. Where they
    would be as long as the kernel, `pad_pools` writes them.
    """
    resolved = opened.inference.resolved[place]
    try:
        if isinstance(resolved.spec, MaxPoolSpec) and resolved.spec.ceil:
            return explicit(windowed_node(opened, resolved), resolved.spec.row)
        return explicit_form(opened, resolved)
    except UnsupportedError:
        return None


def _require_run(lowered: Lowered) -> None:
    """Refuse a model that the target's own runtime, or every runtime, refuses."""
    run = [one for one in lowered.checks if not one.refusal]
    for one in lowered.checks:
        is_own = lowered.target.runtime and one.runtime.startswith(lowered.target.runtime)
        if one.refusal and (is_own or not run):
            raise UnsupportedError(
                f"the lowered model: expected {one.runtime} to run it, got: {one.refusal}. Keep the first model."
            )
