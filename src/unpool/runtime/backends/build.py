"""Loads every step of a plan, and moves nodes that onnxruntime refuses to onnx's ReferenceEvaluator."""

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import onnx
from onnx import TensorProto, helper

from unpool.dtypes import AnyArray
from unpool.errors import ModelError, UnpoolError
from unpool.execute import as_own_weights
from unpool.execute.autotune import Trial, Tuner
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.resolve import Spec
from unpool.runtime.backends import ort_backend
from unpool.runtime.backends.control_flow import ControlStep, LoadedSubgraph, step_class
from unpool.runtime.backends.openvino_backend import OpenVinoLoader, OpenVinoPartition
from unpool.runtime.backends.ort_backend import OrtPartition, RefusedError
from unpool.runtime.backends.ort_options import DATA_FOLDER, PartitionOptions, Providers
from unpool.runtime.backends.step import LoadedPlan, LoadedStep
from unpool.runtime.backends.unpool_backend import ComputationStep, UnpoolStep
from unpool.runtime.graph import weights
from unpool.runtime.graph.graph import Graph, to_dense
from unpool.runtime.graph.nodes import is_unpool_op, node_name, reads, with_subgraph_nodes
from unpool.runtime.graph.semantics import FUSED_UNPOOL, Semantics, spec_of
from unpool.runtime.graph.shapes import Types, dtype, static_dims
from unpool.runtime.passes.convert_conv import CONV_RANKS, values_before_indices
from unpool.runtime.passes.pipeline import PassOptions, run_passes
from unpool.runtime.plan import plan as planning
from unpool.runtime.plan.placement import shape_difference
from unpool.runtime.plan.plan import Step, at_oldest_opset, cut, single_node_step
from unpool.runtime.plan.subgraphs import build_subgraphs, has_unpool_subgraphs, static_shapes
from unpool.runtime.requirements import onnxruntime

if TYPE_CHECKING:
    from unpool.runtime.backends.cuda import CudaMemory

MAX_THREAD_POOLS = 64  # partitions with threads of their own; further ones run in the caller's thread
SLOW_SUBGRAPHS = "unpool does not run the bodies of this operator"


@dataclass(frozen=True)
class LoadOptions:
    """Options with which the steps of a model are loaded."""

    semantics: Semantics
    threads: int | None
    options: PartitionOptions  # of onnxruntime's partitions
    one_thread: PartitionOptions  # of further partitions, which run in the caller's thread
    providers: Providers
    whole: PartitionOptions | None = None  # of a partition that is the whole model
    openvino: Mapping[str, str] | None = None  # its properties, if it is asked for every partition
    fuses_unpool: bool = True  # whether decomposed unpoolings become MaxUnpool again
    tuner: Tuner | None = None  # None where the cost model chooses the algorithm of a ConvTranspose
    openvino_conv_transpose: bool = False  # whether OpenVINO gets every ConvTranspose that it computes as it is written
    convert_conv_before_indices: bool = False  # whether unpool may also compute a Conv on which Indices depend
    checks_profit: bool = True  # whether onnxruntime gets nodes by which unpool would save too little time
    assumes_sizes: bool = False  # whether windows of plain MaxPools fit into sizes that are not known
    cuda: "CudaMemory | None" = None  # in which values stay; None where values are arrays of the host

    @property
    def pass_options(self) -> PassOptions:
        """The changes that passes make.

        1. Where OpenVINO may compute a ConvTranspose, no activation is fused into it.
        2. unpool computes no Conv, which rounds differently, next to the fast ones of OpenVINO and CUDA.
        3. Below the highest level of optimization, Convs and slow nodes stay as they are written.
        4. The time that unpool saves is estimated only where unpool may compute a Conv.
        """
        is_highest = self.options.copy.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        has_fast_conv = self.openvino is not None or self.providers.cuda is not None
        keeps_conv = not is_highest or self.semantics.exact or has_fast_conv
        return PassOptions(
            self.fuses_unpool,
            () if keeps_conv else CONV_RANKS,
            self.convert_conv_before_indices,
            fuses_activations=not self.openvino_conv_transpose,
            fuses_computations=not keeps_conv,
            reduces_strength=is_highest and not has_fast_conv,
            checks_profit=self.checks_profit,
        )


def build_plan(graph: Graph, types: Types, options: LoadOptions) -> LoadedPlan:
    """Plan a graph and load its steps; a ModelError if onnxruntime calls a partition invalid, and onnx agrees."""
    folder = next((name for name in map(weights.folder_of, graph.constants.values()) if name is not None), None)
    if folder is not None and options.options.caller_options is not None:  # the caller's own options get no folder
        constants = {name: weights.with_data_inside(tensor) for name, tensor in graph.constants.items()}
        graph = replace(graph, constants=constants)
    elif folder is not None:
        for partition_options in filter(None, (options.options, options.one_thread, options.whole)):
            partition_options.copy.add_session_config_entry(DATA_FOLDER, folder)
    return PlanBuilder(graph, types, options, SharedState()).build()


def needs_unpool(graph: Graph, types: Types, options: LoadOptions) -> bool:
    """True if the plan of a graph is more than a single step of onnxruntime with the nodes of the model."""
    if graph.origins:
        return True
    inner = with_subgraph_nodes(graph.nodes)
    others = (node for node in inner if is_unpool_op(node) and node.op_type != "MaxPool")
    if any(node.output[0] not in graph.left_to_onnxruntime for node in others):
        return True  # at once: a plan of these packs weights and tunes
    plan = PlanBuilder(graph, types, replace(options, assumes_sizes=False), SharedState()).make_plan()
    return [step.runner for step in plan.steps] != ["onnxruntime"]


class SharedState:
    """State that the plans of a model and of its subgraphs share: number of thread pools, and constants as arrays."""

    def __init__(self) -> None:
        self.thread_pools = 0
        self._arrays: dict[tuple[int, bool], tuple[object, AnyArray]] = {}

    def constants(self, graph: Graph, names: set[str], weight_names: Container[str] = ()) -> dict[str, AnyArray]:
        """The constants among these values in read-only arrays, the same for every call; weights keep packed forms."""
        arrays = {}
        for constants, to_array in ((graph.constants, weights.own_array_of), (graph.sparse_constants, to_dense)):
            for name in names & constants.keys():
                tensor = constants[name]
                key = (id(tensor), name in weight_names)
                if key not in self._arrays:  # which keeps the tensor, so that no other gets its id
                    array = to_array(tensor)
                    array.flags.writeable = False
                    self._arrays[key] = tensor, as_own_weights(array) if name in weight_names else array
                arrays[name] = self._arrays[key][1]
        return arrays


class PlanBuilder:
    """Builds the loaded plan of one graph: keeps loaded steps, onnxruntime's refusals and the types found so far."""

    def __init__(self, graph: Graph, types: Types, options: LoadOptions, shared: SharedState) -> None:
        self._graph, self._types, self._options, self._shared = graph, types, options, shared
        self._known_types = static_shapes(graph, types)
        self._openvino: OpenVinoLoader | None = None
        if options.openvino is not None:
            known = self._known_types
            self._openvino = OpenVinoLoader(graph, known, options.openvino, options.options, options.providers)
        self._constants: dict[str, AnyArray] = {}
        self._specs: dict[int, Spec] = {}
        openvino = self._openvino if options.openvino_conv_transpose else None
        self._add_specs(
            position
            for position, node in enumerate(graph.nodes)
            if graph.left_to_onnxruntime.isdisjoint(node.output[:1])
            and (openvino is None or not openvino.takes(position, self._known_types))
        )
        self._steps: dict[Step, LoadedStep] = {}
        self._refused: dict[int, str] = {}
        self._subgraph_plans: dict[int, dict[str, LoadedPlan]] = {}
        has_subgraphs = any(map(has_unpool_subgraphs, graph.nodes))
        self._values_before_indices = values_before_indices(graph) if has_subgraphs else set()

    def _add_specs(self, positions: Iterable[int]) -> None:
        """Assign the nodes of unpool's operators among these to unpool."""
        nodes = {n: self._graph.nodes[n] for n in positions if is_unpool_op(self._graph.nodes[n])}
        names = {name for node in nodes.values() for name in node.input}
        weight_names = {node.input[1] for node in nodes.values() if node.op_type == "ConvTranspose"}
        self._constants |= self._shared.constants(self._graph, names, weight_names)
        self._specs |= {position: self._spec(node) for position, node in nodes.items()}

    def _spec(self, node: onnx.NodeProto) -> Spec:
        """The spec of a node with its fused activation; with the fastest algorithm, if tuned and shapes are known."""
        graph, name = self._graph, node.output[0]
        spec = spec_of(node, graph.opsets, FUSED_UNPOOL if name in graph.origins else self._options.semantics)
        if name in graph.activations:
            spec = spec._replace(activation=graph.activations[name])
        tuner, x, w = self._options.tuner, self._types.get(node.input[0]), self._constants.get((*node.input, "")[1])
        if tuner is None or w is None or dtype(x) != w.dtype or not isinstance(spec, ConvTransposeSpec):
            return spec
        dims = static_dims(x) or (None,)
        shape = tuple(size for size in dims if size is not None)
        if len(shape) == len(dims):
            with suppress(UnpoolError):  # raised again when the node runs
                return tuner.tune(node_name(node), Trial(spec, shape, w, self._options.threads))
        return spec

    def make_plan(self) -> planning.Plan:
        """The plan, without the nodes that onnxruntime has refused so far."""
        return planning.make_plan(
            self._graph,
            self._specs,
            self._types,
            exact=self._options.semantics.exact,
            refused=self._refused,
            device=self._options.providers.device,
            has_unpool_ops=self._options.cuda is not None,
            assumes_sizes=self._options.assumes_sizes,
        )

    def build(self) -> LoadedPlan:
        """Plan and load, and repeat both while onnxruntime refuses further nodes."""
        while True:
            plan = self.make_plan()
            if all(self._load(step) for step in plan.steps):
                break
        slow = sorted(position for step in plan.steps if step.runner == "reference" for position in step.nodes)
        refused = {node_name(self._graph.nodes[n]): self._refused.get(n, SLOW_SUBGRAPHS) for n in slow}
        bodies = {}
        for number, step in enumerate(plan.steps):
            if step.runner == "unpool" and step.nodes[0] in self._subgraph_plans:
                plans = self._subgraph_plans[step.nodes[0]]
                bodies[number] = [(name, loaded.plan) for name, loaded in plans.items()]
                for loaded in plans.values():
                    refused |= loaded.refused
        steps = tuple(self._steps[step] for step in plan.steps)
        if self._openvino is not None:
            on_openvino = [number for number, step in enumerate(steps) if isinstance(step, OpenVinoPartition)]
            unfit = {number: self._openvino.unfit.get(step, "") for number, step in enumerate(plan.steps)}
            plan = planning.with_openvino(plan, on_openvino, unfit)
        assumed = tuple(self._assumed_pools(plan))
        return LoadedPlan(planning.with_subgraphs(plan, bodies), steps, refused, self._known_types, assumed)

    def _assumed_pools(self, plan: planning.Plan) -> Iterator[tuple[str, MaxPoolSpec]]:
        """The inputs and specs of MaxPools outside unpool that could give another result for some sizes."""
        for step in plan.steps:
            for position in step.nodes if step.runner != "unpool" else ():
                spec = self._specs.get(position)
                if isinstance(spec, MaxPoolSpec):
                    name = self._graph.nodes[position].input[0]
                    if shape_difference(spec, static_dims(self._types.get(name))):
                        yield name, spec

    def _load(self, step: Step) -> bool:
        """Load the step and return True; or return False, with new nodes in `_refused`."""
        if step not in self._steps:
            if step.runner == "unpool":
                self._steps[step] = self._load_unpool_step(step)
            elif step.runner == "reference":
                from unpool.runtime.backends.reference_backend import ReferencePartition  # loads onnx's evaluator

                model = cut(self._graph, step, self._known_types, weights.with_data_inside)
                options = self._options
                self._steps[step] = ReferencePartition(model, self._where(step), options.semantics, options.threads)
            else:
                self._load_partition(step)
        return step in self._steps

    def _load_unpool_step(self, step: Step) -> LoadedStep:
        node = self._graph.nodes[step.nodes[0]]
        if is_unpool_op(node):
            return self._load_node(step)
        computation = self._graph.computations.get(next(iter(node.output), ""))
        if computation is None:
            return self._load_control_flow(step)
        self._add_types((name, self._known_types.get(node.input[0])) for name in node.output)
        return ComputationStep(node, computation, step.outputs, self._options.threads)

    def _load_node(self, step: Step) -> LoadedStep:
        (position,) = step.nodes
        node, options = self._graph.nodes[position], self._options
        types = (self._known_types.get(node.input[0]), helper.make_tensor_type_proto(TensorProto.INT64, None))
        self._add_types(zip(node.output, types, strict=False))
        if options.cuda is not None:
            from unpool.runtime.backends.cuda import CudaStep

            return CudaStep(node, self._specs[position], self._constants, step.outputs, options.cuda)
        x_shape = static_dims(self._types.get(node.input[0]))
        return UnpoolStep(node, self._specs[position], self._constants, step.outputs, options.threads, x_shape)

    def _load_control_flow(self, step: Step) -> ControlStep:
        """The step of a node whose subgraphs are planned and loaded like the graph around it."""
        (position,) = step.nodes
        graph, node, semantics = self._graph, self._graph.nodes[position], self._options.semantics
        has_indices_after = not self._values_before_indices.isdisjoint(node.output)
        subgraphs: dict[str, LoadedSubgraph] = {}
        self._subgraph_plans[position] = {}
        for body in build_subgraphs(graph, node, self._known_types, semantics, has_indices_after=has_indices_after):
            inner, types = run_passes(body.graph, body.types, semantics, self._options.pass_options)
            # the body is not the whole model, and nothing checks sizes in it
            inner_options = replace(self._options, whole=None, cuda=None, assumes_sizes=False)
            plan = PlanBuilder(inner, types, inner_options, self._shared).build()
            self._subgraph_plans[position][body.name] = plan
            subgraphs[body.name] = LoadedSubgraph(body, inner, plan)
        for subgraph in subgraphs.values():
            self._add_types(zip(node.output, subgraph.types_for(node.op_type), strict=False))
        constants = self._shared.constants(graph, set(node.input))
        return step_class(node, graph.opsets[""], semantics.compat)(node, step, subgraphs, constants)

    def _load_partition(self, step: Step) -> None:
        """Load a partition in OpenVINO or onnxruntime; or note its nodes as refused, or as unpool's."""
        unknown = {name for name in step.inputs if name not in self._known_types}
        if unknown:
            reason = f"the type of {', '.join(sorted(unknown))} is unknown before it runs"
            self._refused |= {n: reason for n in step.nodes if unknown & set(reads(self._graph.nodes[n]))}
            return
        has_threads = self._shared.thread_pools < MAX_THREAD_POOLS
        partition: OpenVinoPartition | OrtPartition | None = None
        if self._openvino is not None:
            partition = self._openvino.load(step, self._known_types, self._where(step), has_threads=has_threads)
        if partition is None:
            only_openvino = [n for n in step.nodes if is_unpool_op(self._graph.nodes[n]) and n not in self._specs]
            if only_openvino and self._openvino is not None:
                self._add_specs(only_openvino)
                return
            try:
                partition = self._load_in_ort(step, self._partition_options(step, has_threads=has_threads))
            except RefusedError as error:
                self._add_refused(step, error)
                return
        self._shared.thread_pools += 1
        self._steps[step] = partition
        self._add_types(partition.output_types.items())

    def _partition_options(self, step: Step, *, has_threads: bool) -> PartitionOptions:
        if self._options.whole is not None and len(step.nodes) == len(self._graph.nodes):
            return self._options.whole
        return self._options.options if has_threads else self._options.one_thread

    def _add_types(self, types: Iterable[tuple[str, onnx.TypeProto | None]]) -> None:
        for name, type_ in types:
            if name and type_ is not None and type_.WhichOneof("value") is not None:
                self._known_types.setdefault(name, type_)

    def _load_in_ort(self, step: Step, options: PartitionOptions) -> OrtPartition:
        constants = self._graph.constants
        names = {name for position in step.nodes for name in reads(self._graph.nodes[position])}
        tensors = [constants[name] for name in names & constants.keys()]
        # the caller's own options cannot hold weights
        is_outside = options.caller_options is None and ort_backend.exceeds_message_limit(tensors)
        stored = ort_backend.placeholder if is_outside else weights.without_folder
        model = cut(self._graph, step, self._known_types, stored)
        try:
            return self._ort_partition(step, model, options)
        except RefusedError as refusal:  # no variable may outlive this: it would be in a cycle with these frames
            older = at_oldest_opset(model)
            if refusal.may_be_invalid and older != model:
                with suppress(RefusedError):
                    return self._ort_partition(step, older, options)
            raise

    def _ort_partition(self, step: Step, model: onnx.ModelProto, options: PartitionOptions) -> OrtPartition:
        where = self._where(step)
        values = ort_backend.weight_values(model, self._graph.constants)
        arguments = weights.serialize(model, where), where, options, self._options.providers, values
        if self._options.cuda is None:
            return OrtPartition(*arguments)
        from unpool.runtime.backends.cuda import CudaPartition

        return CudaPartition(*arguments, memory=self._options.cuda)

    def _add_refused(self, step: Step, error: RefusedError) -> None:
        """Note the nodes of a refused partition that onnxruntime also refuses alone; if there are none, all nodes.

        Those of unpool's operators become unpool's.
        """
        if error.may_be_invalid:
            model = weights.strip_initializers(cut(self._graph, step, self._known_types))
            try:
                onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
            except onnx.shape_inference.InferenceError as cause:
                where = self._where(step)
                raise ModelError(f"{where}: the graph is invalid: {error}. Export the model again.") from cause
        reasons: dict[int, str] = {}
        for position in step.nodes:
            node_step = single_node_step(self._graph, position)
            if len(step.nodes) > 1 and all(name in self._known_types for name in node_step.inputs):
                try:
                    self._load_in_ort(node_step, self._options.one_thread)
                except RefusedError as own_error:
                    reasons[position] = str(own_error)
        refused = reasons or dict.fromkeys(step.nodes, str(error))
        self._add_specs(position for position in refused if position not in self._specs)
        self._refused |= refused

    def _where(self, step: Step) -> str:
        names = [node_name(self._graph.nodes[position]) for position in step.nodes]
        return f"node {names[0]!r}" if len(names) == 1 else f"the partition from {names[0]!r} to {names[-1]!r}"
