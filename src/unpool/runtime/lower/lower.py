"""Lowering of models: only operators of a deployment target, no MaxUnpool, no Indices, no channels-last domain."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import onnx
from onnx import helper

from unpool.display import display_line
from unpool.errors import UnsupportedError
from unpool.graph import shapes
from unpool.graph.dynamic_dims import DimFlow
from unpool.graph.errors import model_errors
from unpool.graph.graph import unused_names
from unpool.graph.load import ModelSource, check_model
from unpool.graph.nodes import domain, is_unpool_op, node_name, reads, subgraph_nodes
from unpool.graph.save import spill_weights
from unpool.graph.shape_inference import ResolvedNode
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.semantics import Semantics
from unpool.passes.fuse_unpool import fuse_unpool_patterns
from unpool.passes.rewrite import NodeChange, Rewrite, apply_to_model, set_items
from unpool.runtime.lower.checks import Baseline, RuntimeCheck, check_lowering, test_model
from unpool.runtime.lower.node_edits import channels_first_edits, pad_ceil_pools
from unpool.runtime.lower.targets import LoweringTarget, find_target, unsupported_nodes
from unpool.runtime.lower.unpooling import LoweredUnpool, lower_unpoolings
from unpool.runtime.rewrite.canonicalise import explicit_form
from unpool.runtime.rewrite.open_model import EditableModel, open_model, windowed_node
from unpool.runtime.rewrite.repair_indices import NodeProblem
from unpool.runtime.rewrite.upgrade import upgrade
from unpool.runtime.rewrite.window_forms import Form, apply_forms, explicit_pads_form

MIN_OPSET = 13  # the first in which all operators of the new forms take their numbers as inputs
DEFAULT_OPSET = 17  # of ONNX's own operators in a model that imports none of them


@dataclass(frozen=True)
class LoweringResult:
    """A lowered model; `print` shows everything but the model.

    Attributes:
        model: for the target.
        target: of the lowering.
        changes: of the nodes.
        problems: nodes that the target may not support.
        checks: in other runtimes.
    """

    model: onnx.ModelProto
    target: LoweringTarget
    changes: tuple[NodeChange, ...]
    problems: tuple[NodeProblem, ...]
    checks: tuple[RuntimeCheck, ...]

    @property
    def lines(self) -> list[str]:
        """A line for each record."""
        return [display_line(str(record)) for record in (*self.changes, *self.problems, *self.checks)]

    def __str__(self) -> str:
        return "\n".join(self.lines)


def lower(
    source: ModelSource,
    target: str | LoweringTarget,
    *,
    compat: str = "spec",
    index_space: str = "auto",
    sizes: Mapping[str, int] | None = None,
) -> LoweringResult:
    """The model in operators that the target runs, with the same results, bit for bit where no other node rounds.

    A MaxUnpool with the indices of a MaxPool in the same model becomes a comparison of elements with the maximum of
    their window, which needs no indices. Any other MaxUnpool becomes a ScatterElements. MaxPool and ConvTranspose get
    explicit pads. A model below opset 13 is upgraded to 13. The result runs in onnxruntime, onnx's ReferenceEvaluator
    and, if it is installed, OpenVINO, and is compared with the original model. Model-local functions are inlined.

    Args:
        source: path of a model, its bytes, or a ModelProto, which is not changed.
        target: "openvino", "tensorrt", "coreml", "tflite", "onnxruntime-web", "any" for all of them, or a record of
            another target.
        compat: "spec" reads the model by the standard's text, "ort" as ONNX Runtime where the two differ.
        index_space: the tensor that MaxUnpool's indices refer to where that is not certain.
        sizes: by the name of a dynamic dimension, its size in the random inputs.

    Returns:
        a record with the new `model`, its `changes` and the checks, which `print` shows.

    Raises:
        UnsupportedError: there is no such target; a MaxUnpool is in a subgraph, or cannot be lowered; or the result
            cannot be checked, or differs in one of the runtimes.
        UnpoolError: the model cannot be read, or a node violates the contract.

    >>> from onnx import parser
    >>> model = parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["" : 17]>
    ...     shrink_and_grow (float[1, 1, 4] x) => (float[1, 1, 4] z) {
    ...         y, i = MaxPool <kernel_shape = [2], strides = [2]> (x)
    ...         z = MaxUnpool <kernel_shape = [2], strides = [2]> (y, i)
    ...     }''')
    >>> "MaxUnpool" in {node.op_type for node in lower(model, "any").model.graph.node}
    False
    """
    target, semantics = find_target(target), Semantics(compat, index_space)
    with model_errors(source), spill_weights(source) as (first, restore):
        draft = _Draft(first, semantics, sizes or {})
        draft.put_explicit_pads()
        draft.put_channels_first()
        draft.fuse_decomposed_unpoolings()
        unpools = draft.lower_unpoolings(target)
        draft.drop_unread_indices()
        draft.pad_pools(target)
        check_model(draft.model)
        expected = Baseline.of_model(first, semantics, sizes or {})
        opset = next(entry.version for entry in draft.model.opset_import if entry.domain == "")
        tests = [test_model(unpool, opset, draft.model.ir_version) for unpool in unpools]
        checks = check_lowering(draft.model, [test for test in tests if test is not None], expected)
        problems = tuple(unsupported_nodes(draft.model, target))
        result = LoweringResult(draft.model, target, tuple(draft.changes), problems, checks)
        _require_run(result)
        return replace(result, model=restore(result.model))


class _Draft:
    """The model after the steps so far, and their changes."""

    def __init__(self, first: onnx.ModelProto, semantics: Semantics, sizes: Mapping[str, int]) -> None:
        self._semantics, self.model = semantics, first
        self.changes: list[NodeChange] = []
        opsets = {entry.domain: entry.version for entry in first.opset_import}
        if opsets.get("", opsets.get("ai.onnx", MIN_OPSET)) < MIN_OPSET:
            newer = upgrade(first, MIN_OPSET, compat=semantics.compat, index_space=semantics.index_space, sizes=sizes)
            self.model, self.changes = newer.model, list(newer.changes)
        for parent in self.model.graph.node:
            for node in subgraph_nodes(parent):
                if is_unpool_op(node) and (node.op_type == "MaxUnpool" or domain(node) != ""):
                    where = f"a subgraph of {parent.op_type} node {node_name(parent)!r}"
                    raise UnsupportedError(f"{node.op_type} node {node_name(node)!r} is in {where}. Move it out.")

    def put_explicit_pads(self) -> None:
        """Write auto_pad and output_shape as pads, wherever these are the same for all sizes."""
        editable = self._open()
        nodes = editable.inference.resolved
        self.changes += apply_forms(self.model, nodes, [_form_or_none(editable, node) for node in nodes])

    def put_channels_first(self) -> None:
        editable = self._open()
        dtypes = {name: shapes.dtype(type_) for name, type_ in editable.inference.types.items()}
        edits = list(channels_first_edits(editable.inference.resolved, unused_names(editable.graph), dtypes))
        self._put(edits)
        if edits:
            domains = {node.domain for node in self.model.graph.node}
            imports = [entry for entry in self.model.opset_import if entry.domain in domains]
            if not any(entry.domain == "" for entry in imports):
                imports.append(helper.make_opsetid("", DEFAULT_OPSET))
            set_items(self.model.opset_import, imports)

    def fuse_decomposed_unpoolings(self) -> None:
        editable = self._open()
        for edits in fuse_unpool_patterns(editable.graph, editable.inference.types, self._semantics).rounds:
            self._put(edits)

    def lower_unpoolings(self, target: LoweringTarget) -> list[LoweredUnpool]:
        editable = self._open()
        flow = DimFlow(editable.graph, editable.inference.types)
        space = "output" if self._semantics == Semantics("ort") else self._semantics.index_space
        unpools = list(lower_unpoolings(flow, unused_names(editable.graph), target.max_rank_for_broadcast, space))
        pools = {unpool.pool_edit.output: unpool.pool_edit for unpool in unpools if unpool.pool_edit is not None}
        self._put([*pools.values(), *(unpool.edit for unpool in unpools)])
        return unpools

    def drop_unread_indices(self) -> None:
        used = {value.name for value in self.model.graph.output}
        used.update(name for node in self.model.graph.node for name in reads(node))
        unused = set()
        for node in self.model.graph.node:
            is_pool = is_unpool_op(node) and node.op_type == "MaxPool"
            if is_pool and len(node.output) > 1 and node.output[1] not in used:
                unused.add(node.output.pop(1))
        values = self.model.graph.value_info
        set_items(values, (value for value in values if value.name not in unused))

    def pad_pools(self, target: LoweringTarget) -> None:
        """Write every remaining ceil_mode as padding, except of pools with Indices."""
        editable = self._open()
        names, pads_integers = unused_names(editable.graph), not target.drops_partial_windows
        self._put(list(pad_ceil_pools(editable.graph, editable.inference.types, names, pads_integers=pads_integers)))

    def _open(self) -> EditableModel:
        editable = open_model(self.model, self._semantics)
        self.model = editable.model
        return editable

    def _put(self, edits: Sequence[Rewrite]) -> None:
        apply_to_model(self.model, edits)
        self.changes += [edit.change for edit in edits]


def _form_or_none(editable: EditableModel, resolved: ResolvedNode) -> Form | None:
    """The explicit form of a node; None where there is none, as its pads depend on a dynamic dimension.

    A ceil_mode becomes pads too, because OpenVINO keeps windows that begin in the padding, which ONNX drops. Pads as
    long as the kernel are left to `pad_pools`.
    """
    with suppress(UnsupportedError):
        if isinstance(resolved.spec, MaxPoolSpec) and resolved.spec.ceil:
            return explicit_pads_form(windowed_node(editable, resolved), resolved.spec.version)
        return explicit_form(editable, resolved)
    return None


def _require_run(result: LoweringResult) -> None:
    """Refuse a model that the target's own runtime, or no runtime at all, runs."""
    runs_anywhere = any(not check.reason for check in result.checks)
    for check in result.checks:
        is_own = result.target.runtime and check.runtime.startswith(result.target.runtime)
        if check.reason and (is_own or not runs_anywhere):
            raise UnsupportedError(
                f"the lowered model does not run in {check.runtime}: {check.reason}. Keep the first model."
            )
