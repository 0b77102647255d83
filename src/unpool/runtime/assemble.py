"""Plan -> what runs: every step is loaded, and what onnxruntime refuses goes to onnx's ReferenceEvaluator."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from unpool.dtypes import AnyArray
from unpool.errors import ModelError
from unpool.execute import own_weights
from unpool.operators.resolve import Spec
from unpool.runtime import plan as planning
from unpool.runtime import type_names
from unpool.runtime.bound import Meaning, bind
from unpool.runtime.certain import certain
from unpool.runtime.graph import Graph, dense
from unpool.runtime.light import lighten
from unpool.runtime.nodes import is_ours, label, reads
from unpool.runtime.ort_options import Providers
from unpool.runtime.ort_piece import OrtPiece, RefusedError
from unpool.runtime.our_node import OurNode
from unpool.runtime.pieces import alone, at_oldest_opset, cut, serialize
from unpool.runtime.plan import Plan, Step
from unpool.runtime.reference import ReferencePiece
from unpool.runtime.shapes import Types, sizes

MOST_POOLS = 64
"""Pieces with threads of their own; further ones run in the caller's, for threads are no endless supply."""

AS_RAISED = Meaning("spec", "output")  # a ScatterND counts in its output, however the model is read


class Runner(Protocol):
    """A loaded step."""

    def run(self, values: Sequence[Any], run_options: onnxruntime.RunOptions | None) -> Sequence[Any]:
        """The step's outputs from its inputs, both in its order."""


@dataclass(frozen=True)
class Settings:
    """What every step is loaded with."""

    meaning: Meaning
    exact: bool
    threads: int | None
    options: onnxruntime.SessionOptions
    one_thread: onnxruntime.SessionOptions
    providers: Providers


@dataclass(frozen=True)
class Program:
    """A plan, its steps loaded in the same order, and the labels of the nodes that onnxruntime refused."""

    plan: Plan
    runners: tuple[Runner, ...]
    refused: Mapping[str, str]


def assemble(graph: Graph, types: Types, settings: Settings) -> Program:
    """Plan a graph and load every step.

    Raises:
        ModelError: onnxruntime calls a piece invalid, and onnx agrees.
        UnsupportedError: neither onnxruntime nor the ReferenceEvaluator knows a node.
    """
    return _Assembly(graph, types, settings).program()


class _Assembly:
    """The state of loading: which steps are loaded, what onnxruntime refused, and what is known of types so far."""

    def __init__(self, graph: Graph, types: Types, settings: Settings) -> None:
        self._graph = graph
        self._types = types
        self._settings = settings
        self._specs = {
            position: _spec(graph, node, settings.meaning) for position, node in enumerate(graph.nodes) if is_ours(node)
        }
        self._constants = _our_constants(graph)
        self._known = certain(graph, types)
        self._loaded: dict[Step, Runner] = {}
        self._refused: dict[int, str] = {}
        self._pools = 0

    def program(self) -> Program:
        """Plan and load, again and again until nothing more is refused."""
        while True:
            plan = planning.make(
                self._graph, self._specs, self._types, exact=self._settings.exact, refused=self._refused
            )
            if all(self._load(step) for step in plan.steps):
                refused = {label(self._graph.nodes[position]): why for position, why in self._refused.items()}
                return Program(plan, tuple(self._loaded[step] for step in plan.steps), refused)

    def _load(self, step: Step) -> bool:
        """Whether the step is loaded; otherwise there are new refusals."""
        if step not in self._loaded:
            if step.runner == "unpool":
                self._loaded[step] = self._our_node(step)
            elif step.runner == "reference":
                self._loaded[step] = self._reference(step)
            else:
                self._load_onnxruntime(step)
        return step in self._loaded

    def _our_node(self, step: Step) -> OurNode:
        (position,) = step.nodes
        node = self._graph.nodes[position]
        made = (self._known.get(node.input[0]), helper.make_tensor_type_proto(TensorProto.INT64, None))
        for name, type_ in zip(node.output, made, strict=False):
            if name and type_ is not None:
                self._known.setdefault(name, type_)
        known = sizes(self._types.get(node.input[0]))
        return OurNode(node, self._specs[position], self._constants, step.outputs, self._settings.threads, known)

    def _reference(self, step: Step) -> ReferencePiece:
        model = cut(self._graph, step, self._known)
        return ReferencePiece(model, self._where(step), self._settings.meaning, self._settings.threads)

    def _load_onnxruntime(self, step: Step) -> None:
        unknown = {name for name in step.inputs if name not in self._known}
        if unknown:
            words = f"the type of {', '.join(sorted(unknown))} is unknown before it runs"
            self._refused |= {one: words for one in step.nodes if unknown & set(reads(self._graph.nodes[one]))}
            return
        is_early = self._pools < MOST_POOLS
        try:
            piece = self._onnxruntime(step, self._settings.options if is_early else self._settings.one_thread)
        except RefusedError as error:
            self._refuse(step, error)
            return
        self._pools += 1
        for name, words in piece.output_types.items():
            type_ = type_names.parse(words)
            if type_ is not None:
                self._known.setdefault(name, type_)
        self._loaded[step] = piece

    def _onnxruntime(self, step: Step, options: onnxruntime.SessionOptions) -> OrtPiece:
        model = cut(self._graph, step, self._known)
        try:
            return self._piece(step, model, options)
        except RefusedError as error:
            refusal = error
        older = at_oldest_opset(model)
        if refusal.may_be_invalid and older != model:
            with suppress(RefusedError):
                return self._piece(step, older, options)
        raise refusal

    def _piece(self, step: Step, model: onnx.ModelProto, options: onnxruntime.SessionOptions) -> OrtPiece:
        where = self._where(step)
        return OrtPiece(serialize(model, where), where, options, self._settings.providers)

    def _refuse(self, step: Step, error: RefusedError) -> None:
        """Find the nodes of a refused piece that are to blame; all of them when none is alone."""
        if error.may_be_invalid:
            self._check_types(step, error)
        found: dict[int, str] = {}
        for position in step.nodes:
            probe = alone(self._graph, position)
            if len(step.nodes) > 1 and all(name in self._known for name in probe.inputs):
                try:
                    self._onnxruntime(probe, self._settings.one_thread)
                except RefusedError as own_error:
                    found[position] = str(own_error)
        self._refused |= found or dict.fromkeys(step.nodes, str(error))

    def _check_types(self, step: Step, error: RefusedError) -> None:
        model = lighten(cut(self._graph, step, self._known))
        try:
            onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        except onnx.shape_inference.InferenceError as cause:
            raise ModelError(f"{self._where(step)}: expected a valid graph, got: {error}. Export it again.") from cause

    def _where(self, step: Step) -> str:
        names = [label(self._graph.nodes[position]) for position in step.nodes]
        return f"node {names[0]!r}" if len(names) == 1 else f"the piece from {names[0]!r} to {names[-1]!r}"


def _spec(graph: Graph, node: onnx.NodeProto, meaning: Meaning) -> Spec:
    """What a node of ours means, with what was raised to it and what was fused into it."""
    name = node.output[0]
    spec = bind(node, graph.opsets, AS_RAISED if name in graph.raised else meaning)
    return replace(spec, activation=graph.activations[name]) if name in graph.activations else spec


def _our_constants(graph: Graph) -> dict[str, AnyArray]:
    """The constants that nodes of ours read, as arrays that cannot change; weights keep what is derived from them."""
    ours = [node for node in graph.nodes if is_ours(node)]
    weights = {node.input[1] for node in ours if node.op_type == "ConvTranspose"}
    names = {name for node in ours for name in node.input}
    found = {name: numpy_helper.to_array(graph.constants[name]) for name in names & graph.constants.keys()}
    found |= {name: dense(graph.sparse_constants[name]) for name in names & graph.sparse_constants.keys()}
    return {name: own_weights(array) if name in weights else _frozen(array) for name, array in found.items()}


def _frozen(array: AnyArray) -> AnyArray:
    own = array.copy()
    own.flags.writeable = False
    return own
