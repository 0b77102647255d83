"""Repair of models from exporters and of copied workarounds: decomposed unpoolings, pools that run twice, and indices
that do not refer to the tensor that MaxUnpool expects.
"""

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace

import onnx

from unpool.display import display_line
from unpool.errors import UnsupportedError
from unpool.graph.dynamic_dims import DimFlow
from unpool.graph.errors import model_errors
from unpool.graph.graph import prune, unused_names
from unpool.graph.load import ModelSource, check_model
from unpool.graph.save import spill_weights
from unpool.graph.shape_inference import infer
from unpool.graph.torch_operators import ADVICE, torch_operators
from unpool.numerics import ROUNDING
from unpool.operators.semantics import Semantics
from unpool.passes.fuse_unpool import fuse_unpool_patterns
from unpool.passes.rewrite import NodeChange, Rewrite, apply_to_graph, apply_to_model
from unpool.runtime.rewrite.open_model import open_model
from unpool.runtime.rewrite.repair_indices import NodeProblem, offset_edits, window_edits
from unpool.runtime.rewrite.verify import output_tolerances, runs, verify, verify_in_onnxruntime, verify_offsets
from unpool.runtime.runtimes import Feed, unpool_session

_AS_WRITTEN = {"fuse_unpool"}  # disabled, so that a decomposed unpooling runs node by node


@dataclass(frozen=True)
class FixResult:
    """A repaired model, its changes, and the nodes that could not be repaired; `print` shows all but the model.

    Attributes:
        model: the new one.
        changes: in the order in which they were made.
        problems: nodes that could not be repaired.
        notes: the parts that were not verified, and why.
    """

    model: onnx.ModelProto
    changes: tuple[NodeChange, ...]
    problems: tuple[NodeProblem, ...] = ()
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [display_line(str(record)) for record in (*self.changes, *self.problems, *self.notes)]
        return "\n".join(lines) or "nothing to change"


def fix(
    source: ModelSource, *, compat: str = "spec", index_space: str = "auto", sizes: Mapping[str, int] | None = None
) -> FixResult:
    """The repaired model: one node for each decomposed unpooling or repeated pool, and indices for the whole tensor.

    Fused nodes and new windows keep the results. This is verified on random inputs in unpool and, if it runs the
    original model, in onnxruntime. Where indices referred to planes, results change, because they were wrong. Then
    random inputs verify that the indices stay inside their planes, and that the results are those that indices in
    planes mean. Model-local functions are inlined.

    Args:
        source: path of a model, its bytes, or a ModelProto, which is not changed.
        compat: "spec" reads the model by the standard's text, "ort" as ONNX Runtime where the two differ.
        index_space: the tensor that MaxUnpool's indices refer to where that is not certain.
        sizes: by the name of a dynamic dimension, its size in the random inputs.

    Returns:
        a record with the new `model` and the `changes`, which `print` shows.

    Raises:
        UnsupportedError: there are problems, but none can be repaired; the model cannot be verified, or its results
            differ; or onnxruntime runs only the original model.
        UnpoolError: the model cannot be read, or a node violates the contract.

    >>> from onnx import parser
    >>> model = parser.parse_model('''
    ...     <ir_version: 8, opset_import: ["" : 17]>
    ...     exported (float[1, 2, 4] x) => (float[1, 2, 4] z) <int64 plane = {4}> {
    ...         y, whole = MaxPool <kernel_shape = [2], strides = [2]> (x)
    ...         i = Mod (whole, plane)
    ...         z = MaxUnpool <kernel_shape = [2], strides = [2]> (y, i)
    ...     }''')
    >>> [node.op_type for node in fix(model).model.graph.node]
    ['MaxPool', 'MaxUnpool']
    """
    with model_errors(source), spill_weights(source) as (model, restore):
        draft = _FixDraft(model, Semantics(compat, index_space), sizes or {})
        draft.add_offsets()
        draft.fuse_nodes()
        draft.fit_windows()
        result = draft.verified_result()
        return replace(result, model=restore(result.model))


class _FixDraft:
    """The model after the repairs so far, with its graph and types."""

    def __init__(self, first: onnx.ModelProto, semantics: Semantics, sizes: Mapping[str, int]) -> None:
        editable = open_model(first, semantics)
        names = torch_operators(editable.graph.nodes)
        if names:
            raise UnsupportedError(f"the model: torch's {', '.join(names)} cannot be changed, nor run. {ADVICE}.")
        self._first, self._semantics, self._sizes = first, semantics, sizes
        self._model, self._graph, self._types = editable.model, editable.graph, editable.inference.types
        self._changes: list[NodeChange] = []
        self._problems: list[NodeProblem] = []
        self._keeps_results = True
        self._feeds: list[Feed] = []

    def add_offsets(self) -> None:
        """Add the offset of their plane to indices that count inside planes."""
        edits = self._put(offset_edits(DimFlow(self._graph, self._types), unused_names(self._graph)))
        if edits:
            self._graph = prune(apply_to_graph(self._graph, edits))
            self._types = infer(self._graph, self._semantics).types
            outputs = [edit.output for edit in edits]
            verify_offsets(self._before, self._model, outputs, self._types, self._semantics, self._sizes)
            self._keeps_results = False

    def fuse_nodes(self) -> None:
        """Replace ScatterND by MaxUnpool, and two pools by one."""
        self._graph, self._types, rounds = fuse_unpool_patterns(self._graph, self._types, self._semantics)
        before = self._model
        for edits in rounds:
            self._put(edits)
        if rounds:
            self._feeds = verify(before, self._model, self._semantics, self._sizes, _AS_WRITTEN)

    def fit_windows(self) -> None:
        """Give every MaxUnpool a window from which its output_shape follows, where that is possible."""
        if self._put(window_edits(DimFlow(self._graph, self._types))):
            self._feeds = verify(self._before, self._model, Semantics(self._semantics.compat, "output"), self._sizes)

    def verified_result(self) -> FixResult:
        """The result, after onnx's checker and onnxruntime have accepted the model."""
        if self._problems and not self._changes:
            reasons = "; ".join(f"{problem.node}: {problem.reason}" for problem in self._problems)
            raise UnsupportedError(f"the model: none of its problems can be repaired: {reasons}.")
        notes: tuple[str, ...] = ()
        if self._changes:
            check_model(self._model)
            feeds = self._feeds or self._random_inputs()
            tolerances = output_tolerances(self._first, self._semantics, ROUNDING) if self._keeps_results else None
            refusal = verify_in_onnxruntime(self._first, self._model, feeds, tolerances)
            if refusal:
                notes = (f"compared in unpool only, because onnxruntime does not run the first model: {refusal}",)
        return FixResult(self._model, tuple(self._changes), tuple(self._problems), notes)

    def _random_inputs(self) -> Iterator[Feed]:
        """Inputs that the first model accepts; it is not loaded before they are needed."""
        session = unpool_session(self._first, Semantics(exact=True), _AS_WRITTEN)
        yield from (feed for feed, _ in runs(session, self._sizes))

    def _put(self, repairs: Iterable[Rewrite | NodeProblem]) -> list[Rewrite]:
        """Apply the edits to a copy of the model and list them; `_before` is the model without them."""
        results = list(repairs)
        edits = [repair for repair in results if isinstance(repair, Rewrite)]
        self._problems += [repair for repair in results if isinstance(repair, NodeProblem)]
        if edits:
            self._before, self._model = self._model, deepcopy(self._model)
            apply_to_model(self._model, edits)
            self._changes += [edit.change for edit in edits]
        return edits
