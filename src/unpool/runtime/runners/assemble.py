"""Loads every step of a plan, and gives the nodes that onnxruntime refuses to onnx's ReferenceEvaluator."""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

import onnx
from onnx import TensorProto, helper

from unpool.dtypes import AnyArray
from unpool.errors import ModelError, UnpoolError
from unpool.execute import own_weights
from unpool.execute.autotune import Trial
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.resolve import Spec
from unpool.runtime.graph import type_names
from unpool.runtime.graph.node_contract import Meaning, spec_of
from unpool.runtime.graph.nodes import is_ours, label, reads
from unpool.runtime.graph.record import Graph, dense
from unpool.runtime.graph.serialized import serialize
from unpool.runtime.graph.shapes import Types, dtype, sizes
from unpool.runtime.graph.weight_files import array_of, as_stored, folder_of, with_data
from unpool.runtime.graph.without_weights import without_weights
from unpool.runtime.passes.conv_as_transpose import before_choices
from unpool.runtime.passes.improve import improve
from unpool.runtime.plan.bodies import bodies_of, has_our_bodies
from unpool.runtime.plan.certain_sizes import certain
from unpool.runtime.plan.pieces import at_oldest_opset, cut, single_node_step
from unpool.runtime.plan.plan import Plan, Step, make_plan, with_bodies, with_openvino
from unpool.runtime.runners.control_flow import ControlStep, step_class
from unpool.runtime.runners.loaded_body import LoadedBody
from unpool.runtime.runners.loaded_plan import LoadedPlan, LoadedStep
from unpool.runtime.runners.openvino_loader import OpenVinoLoader
from unpool.runtime.runners.openvino_piece import OpenVinoPiece
from unpool.runtime.runners.ort_given import FOLDER
from unpool.runtime.runners.ort_options import PieceOptions
from unpool.runtime.runners.ort_piece import OrtPiece, RefusedError
from unpool.runtime.runners.ort_weights import are_too_many, ort_values, without_data
from unpool.runtime.runners.reference_piece import ReferencePiece
from unpool.runtime.runners.settings import Settings
from unpool.runtime.runners.unpool_step import UnpoolStep

MOST_POOLS = 64
"""Pieces with threads of their own; further ones run in the caller's, for threads are no endless supply."""

SLOW_BODIES = "unpool does not run the bodies of this operator"

AS_RAISED = Meaning("spec", "output")  # a ScatterND counts in its output, however the model is read


class Shared:
    """What the plans of a model and of its bodies share: how many pieces have threads, and our constants as arrays."""

    def __init__(self) -> None:
        self.pools = 0
        self._arrays: dict[tuple[int, bool], tuple[onnx.TensorProto, AnyArray]] = {}

    def array(self, tensor: onnx.TensorProto, *, is_weight: bool) -> AnyArray:
        """The elements, in an array that cannot change, made once; that of weights keeps their packed forms."""
        key = (id(tensor), is_weight)
        if key not in self._arrays:
            array = array_of(tensor)
            self._arrays[key] = tensor, own_weights(array) if is_weight else _frozen(array)
        return self._arrays[key][1]


def assemble(graph: Graph, types: Types, settings: Settings) -> LoadedPlan:
    """Plan a graph and load every step.

    Raises:
        ModelError: onnxruntime calls a piece invalid, and onnx agrees.
        UnsupportedError: neither onnxruntime nor the ReferenceEvaluator knows a node.
    """
    return _Assembly(_with_weights(graph, settings), types, settings, Shared()).loaded_plan()


def _with_weights(graph: Graph, settings: Settings) -> Graph:
    """The graph with weights that the pieces of onnxruntime find: in their folder, or inside of the graph.

    A caller's own options, which some pieces are made with, are told no folder.
    """
    folder = next((found for found in map(folder_of, graph.constants.values()) if found is not None), None)
    if folder is None:
        return graph
    if settings.options.lends is not None:
        return replace(graph, constants={name: with_data(tensor) for name, tensor in graph.constants.items()})
    for options in (settings.options, settings.one_thread):
        options.copy.add_session_config_entry(FOLDER, folder)
    return graph


class _Assembly:
    """Loads the steps of a plan, and remembers which are loaded, what onnxruntime refused and which types are known."""

    def __init__(self, graph: Graph, types: Types, settings: Settings, shared: Shared) -> None:
        self._graph = graph
        self._types = types
        self._settings = settings
        self._shared = shared
        self._known = certain(graph, types)
        asked = settings.openvino
        self._openvino = None if asked is None else OpenVinoLoader(graph, asked, settings.options, settings.providers)
        self._constants: dict[str, AnyArray] = {}
        self._specs: dict[int, Spec] = {}
        self._take(position for position in range(len(graph.nodes)) if not self._is_delegated(position))
        self._loaded: dict[Step, LoadedStep] = {}
        self._refused: dict[int, str] = {}
        self._inner: dict[int, dict[str, LoadedPlan]] = {}
        self._choosing = before_choices(graph) if any(map(has_our_bodies, graph.nodes)) else set()

    def _is_delegated(self, position: int) -> bool:
        """Whether OpenVINO is asked to compute a node of ours."""
        node = self._graph.nodes[position]
        if self._openvino is None or not self._settings.delegates or node.op_type != "ConvTranspose":
            return False
        return is_ours(node) and self._openvino.takes(position, self._known)

    def _take(self, positions: Iterable[int]) -> None:
        """Have unpool compute the nodes of ours among these."""
        nodes = {position: self._graph.nodes[position] for position in positions}
        ours = {position: node for position, node in nodes.items() if is_ours(node)}
        self._constants |= _our_constants(self._graph, ours.values(), self._shared)
        self._specs |= {position: self._spec(node) for position, node in ours.items()}

    def _spec(self, node: onnx.NodeProto) -> Spec:
        """The spec of a node of ours; with the fastest way, where that is asked for and shapes are known."""
        spec = _spec(self._graph, node, self._settings.meaning)
        tuner, x, w = self._settings.tuner, self._types.get(node.input[0]), self._constants.get((*node.input, "")[1])
        if tuner is None or w is None or dtype(x) != w.dtype or not isinstance(spec, ConvTransposeSpec):
            return spec
        known = sizes(x) or (None,)
        shape = tuple(size for size in known if size is not None)
        if len(shape) < len(known):
            return spec
        with suppress(UnpoolError):  # what is wrong is said when the node runs
            return tuner.tune(label(node), Trial(spec, shape, w, self._settings.threads))
        return spec

    def loaded_plan(self) -> LoadedPlan:
        """Plan and load, and do both again as long as onnxruntime refuses something new."""
        while True:
            plan = make_plan(
                self._graph,
                self._specs,
                self._types,
                exact=self._settings.meaning.exact,
                refused=self._refused,
                device=self._settings.providers.device,
                has_ours=self._settings.cuda is not None,
            )
            if all(self._load(step) for step in plan.steps):
                return self._done(plan)

    def _done(self, plan: Plan) -> LoadedPlan:
        """The plan with its bodies and its loaded steps."""
        inner = {
            number: self._inner[step.nodes[0]]
            for number, step in enumerate(plan.steps)
            if step.runner == "unpool" and step.nodes[0] in self._inner
        }
        slow = {position for step in plan.steps if step.runner == "reference" for position in step.nodes}
        nodes = self._graph.nodes
        refused = {label(nodes[position]): self._refused.get(position, SLOW_BODIES) for position in sorted(slow)}
        for plans in inner.values():
            for loaded in plans.values():
                refused |= loaded.refused
        whole = with_bodies(
            self._with_openvino(plan),
            {number: [(name, one.plan) for name, one in plans.items()] for number, plans in inner.items()},
        )
        return LoadedPlan(whole, tuple(self._loaded[step] for step in plan.steps), refused, self._known)

    def _with_openvino(self, plan: Plan) -> Plan:
        """The plan with the pieces that OpenVINO runs."""
        if self._openvino is None:
            return plan
        steps, unfit = dict(enumerate(plan.steps)), self._openvino.unfit
        taken = [number for number, step in steps.items() if isinstance(self._loaded[step], OpenVinoPiece)]
        return with_openvino(plan, taken, {number: unfit[step] for number, step in steps.items() if step in unfit})

    def _load(self, step: Step) -> bool:
        """Load the step, and say whether that succeeded; if not, `_refused` has new nodes."""
        if step not in self._loaded:
            if step.runner == "unpool" and is_ours(self._graph.nodes[step.nodes[0]]):
                self._loaded[step] = self._unpool_step(step)
            elif step.runner == "unpool":
                self._loaded[step] = self._control_step(step)
            elif step.runner == "reference":
                self._loaded[step] = self._reference(step)
            else:
                self._load_piece(step)
        return step in self._loaded

    def _unpool_step(self, step: Step) -> LoadedStep:
        (position,) = step.nodes
        node = self._graph.nodes[position]
        made = (self._known.get(node.input[0]), helper.make_tensor_type_proto(TensorProto.INT64, None))
        for name, type_ in zip(node.output, made, strict=False):
            if name and type_ is not None:
                self._known.setdefault(name, type_)
        if self._settings.cuda is not None:
            from unpool.runtime.runners.cuda_step import CudaStep

            return CudaStep(node, self._specs[position], self._constants, step.outputs, self._settings.cuda)
        known = sizes(self._types.get(node.input[0]))
        return UnpoolStep(node, self._specs[position], self._constants, step.outputs, self._settings.threads, known)

    def _control_step(self, step: Step) -> ControlStep:
        """The step of a node whose bodies are planned and loaded as the graph around is."""
        (position,) = step.nodes
        node, meaning = self._graph.nodes[position], self._settings.meaning
        is_chosen_from = not self._choosing.isdisjoint(node.output)
        loaded: dict[str, LoadedBody] = {}
        self._inner[position] = {}
        for body in bodies_of(self._graph, node, self._known, meaning, is_chosen_from=is_chosen_from):
            graph, types = improve(body.graph, body.types, meaning, self._settings.changes)
            plan = _Assembly(graph, types, replace(self._settings, cuda=None), self._shared).loaded_plan()
            self._inner[position][body.name] = plan
            loaded[body.name] = LoadedBody(body, graph, plan)
        self._learn(node, loaded)
        opset = self._graph.opsets[""]
        return step_class(node, opset, meaning.compat)(node, step, loaded, self._own_constants(node))

    def _learn(self, node: onnx.NodeProto, bodies: Mapping[str, LoadedBody]) -> None:
        """Note the types of the outputs of a node that its bodies make known, sizes left out."""
        for body in bodies.values():
            for name, type_ in zip(node.output, body.types_for(node.op_type), strict=False):
                if name and type_.WhichOneof("value") is not None:
                    self._known.setdefault(name, type_)

    def _own_constants(self, node: onnx.NodeProto) -> dict[str, AnyArray]:
        """The constants that a node reads, its bodies aside."""
        names, graph = set(node.input), self._graph
        found = {
            name: self._shared.array(graph.constants[name], is_weight=False) for name in names & graph.constants.keys()
        }
        return found | {name: dense(graph.sparse_constants[name]) for name in names & graph.sparse_constants.keys()}

    def _reference(self, step: Step) -> ReferencePiece:
        model = cut(self._graph, step, self._known, with_data)
        return ReferencePiece(model, self._where(step), self._settings.meaning, self._settings.threads)

    def _load_piece(self, step: Step) -> None:
        unknown = {name for name in step.inputs if name not in self._known}
        if unknown:
            reason = f"the type of {', '.join(sorted(unknown))} is unknown before it runs"
            self._refused |= {one: reason for one in step.nodes if unknown & set(reads(self._graph.nodes[one]))}
            return
        is_early = self._shared.pools < MOST_POOLS
        if self._load_openvino(step, is_early=is_early):
            return
        delegated = [one for one in step.nodes if is_ours(self._graph.nodes[one]) and one not in self._specs]
        if delegated:
            self._take(delegated)
            return
        try:
            piece = self._onnxruntime(step, self._settings.options if is_early else self._settings.one_thread)
        except RefusedError as error:
            self._refuse(step, error)
            return
        self._shared.pools += 1
        for name, type_name in piece.output_types.items():
            type_ = type_names.parse(type_name)
            if type_ is not None:
                self._known.setdefault(name, type_)
        self._loaded[step] = piece

    def _load_openvino(self, step: Step, *, is_early: bool) -> bool:
        """Load a piece on OpenVINO, if it is asked for and takes it, and say whether that is so."""
        if self._openvino is None:
            return False
        piece = self._openvino.load(step, self._known, self._where(step), has_threads=is_early)
        if piece is None:
            return False
        for name, type_ in piece.output_types.items():
            self._known.setdefault(name, type_)
        self._loaded[step] = piece
        self._shared.pools += 1
        return True

    def _onnxruntime(self, step: Step, options: PieceOptions) -> OrtPiece:
        model = cut(self._graph, step, self._known, self._stored(step, options))
        try:
            return self._piece(step, model, options)
        except RefusedError as error:
            refusal = error
        older = at_oldest_opset(model)
        if refusal.may_be_invalid and older != model:
            with suppress(RefusedError):
                return self._piece(step, older, options)
        raise refusal

    def _piece(self, step: Step, model: onnx.ModelProto, options: PieceOptions) -> OrtPiece:
        where = self._where(step)
        weights = ort_values(model, self._graph.constants)
        words = serialize(model, where), where, options.with_weights(weights), self._settings.providers
        if self._settings.cuda is None:
            return OrtPiece(*words)
        from unpool.runtime.runners.cuda_piece import CudaPiece

        return CudaPiece(*words, memory=self._settings.cuda)

    def _stored(self, step: Step, options: PieceOptions) -> Callable[[onnx.TensorProto], onnx.TensorProto]:
        """What the model of a piece has of a constant; a caller's own options are told no weights."""
        names = {name for position in step.nodes for name in reads(self._graph.nodes[position])}
        tensors = [self._graph.constants[name] for name in names & self._graph.constants.keys()]
        is_outside = options.lends is None and are_too_many(tensors)
        return (lambda tensor: without_data(as_stored(tensor))) if is_outside else as_stored

    def _refuse(self, step: Step, error: RefusedError) -> None:
        """Note which nodes of a refused piece onnxruntime also refuses alone; if there are none, note all nodes."""
        if error.may_be_invalid:
            self._check_types(step, error)
        found: dict[int, str] = {}
        for position in step.nodes:
            probe = single_node_step(self._graph, position)
            if len(step.nodes) > 1 and all(name in self._known for name in probe.inputs):
                try:
                    self._onnxruntime(probe, self._settings.one_thread)
                except RefusedError as own_error:
                    found[position] = str(own_error)
        self._refused |= found or dict.fromkeys(step.nodes, str(error))

    def _check_types(self, step: Step, error: RefusedError) -> None:
        model = without_weights(cut(self._graph, step, self._known))
        try:
            onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        except onnx.shape_inference.InferenceError as cause:
            raise ModelError(f"{self._where(step)}: expected a valid graph, got: {error}. Export it again.") from cause

    def _where(self, step: Step) -> str:
        names = [label(self._graph.nodes[position]) for position in step.nodes]
        return f"node {names[0]!r}" if len(names) == 1 else f"the piece from {names[0]!r} to {names[-1]!r}"


def _spec(graph: Graph, node: onnx.NodeProto, meaning: Meaning) -> Spec:
    """The spec of a node of ours, with the activation that was fused into it."""
    name = node.output[0]
    spec = spec_of(node, graph.opsets, AS_RAISED if name in graph.raised else meaning)
    return replace(spec, activation=graph.activations[name]) if name in graph.activations else spec


def _our_constants(graph: Graph, ours: Collection[onnx.NodeProto], shared: Shared) -> dict[str, AnyArray]:
    """The constants that our nodes read, as arrays that cannot change; those of weights keep their packed forms."""
    weights = {node.input[1] for node in ours if node.op_type == "ConvTranspose"}
    names = {name for node in ours for name in node.input}
    found = {
        name: shared.array(graph.constants[name], is_weight=name in weights) for name in names & graph.constants.keys()
    }
    for name in names & graph.sparse_constants.keys():
        array = dense(graph.sparse_constants[name])
        found[name] = own_weights(array) if name in weights else _frozen(array)
    return found


def _frozen(array: AnyArray) -> AnyArray:
    own = array.copy()
    own.flags.writeable = False
    return own
