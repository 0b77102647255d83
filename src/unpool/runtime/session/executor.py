"""Executor: plans a model, loads the steps of the plan, and runs them."""

import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx

from unpool.dtypes import AnyArray
from unpool.errors import ShapeError, UnpoolError
from unpool.runtime.backends.build import LoadOptions, build_plan
from unpool.runtime.backends.control_flow import all_steps, constant_outputs
from unpool.runtime.backends.ort_backend import OrtPartition
from unpool.runtime.backends.ort_options import CPU_ONLY, partition_options
from unpool.runtime.backends.step import RunOptions, ScheduledStep, check_cancelled, require_run_options
from unpool.runtime.graph.errors import step_error
from unpool.runtime.graph.graph import Graph, drop_constant_data
from unpool.runtime.graph.nodes import node_name
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.graph.shapes import Types
from unpool.runtime.passes.pipeline import prepare
from unpool.runtime.plan.plan import HOST, Plan, Step
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.session.ort_compat.probes import adapter_parameters, without_adapters
from unpool.runtime.session.ort_compat.profile import Profile
from unpool.runtime.session.signature import ModelMetadata, Signature
from unpool.runtime.session.size_check import SizeCheck

if TYPE_CHECKING:
    from unpool.runtime.backends.cuda import CudaMemory

NO_TARGETS: Mapping[str, AnyArray] = MappingProxyType({})


class StepTrace(NamedTuple):
    """A step that has run, with the values that it read and made, by name."""

    entry: ScheduledStep
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]


class Executor:
    """A model with a plan and loaded steps; many threads may run it at the same time."""

    profile: Profile | None = None  # of all runs

    def __init__(
        self,
        model: onnx.ModelProto,
        options: LoadOptions,
        *,
        keeps_graph: bool = False,
        prepared: tuple[Graph, Types] | None = None,
        load_safe: "Callable[[], Executor] | None" = None,
    ) -> None:
        self.metadata = ModelMetadata.of_model(model)
        graph, types = prepared or prepare(model, options.semantics, options.pass_options)
        self.graph = drop_constant_data(graph) if keeps_graph else None  # after all passes, without large weights
        self.semantics = options.semantics
        self.cuda = options.cuda  # in whose memory values stay; None where they are arrays of the host
        self._loaded_plan = loaded_plan = build_plan(graph, types, options)
        self.plan, self.types, self.refused = loaded_plan.plan, loaded_plan.types, loaded_plan.refused
        self.signature = Signature.of_graph(graph, {**loaded_plan.types, **types})
        self.signature.cuda = options.cuda
        self.signature.owner = weakref.proxy(self)  # a cycle would keep sessions of onnxruntime until it is collected
        self._input_infos = [*self.signature.inputs, *self.signature.optional_inputs]
        self._constant_outputs = constant_outputs(graph)
        self._sizes: SizeCheck | None = None
        if loaded_plan.assumed and load_safe is not None:
            self._sizes = SizeCheck(drop_constant_data(graph), options.semantics, loaded_plan.assumed)
        self._load_safe, self._lock = load_safe, Lock()
        self.folded = _folded(loaded_plan.plan, graph, model)

    @property
    def ort_partitions(self) -> list[OrtPartition]:
        """The partitions of the model and of its subgraphs that onnxruntime runs."""
        return [step for step in all_steps(self._loaded_plan.steps) if isinstance(step, OrtPartition)]

    @property
    def ort_sessions(self) -> list[onnxruntime.InferenceSession]:
        """The sessions of onnxruntime that run them."""
        return [partition.session for partition in self.ort_partitions]

    def run(
        self, output_names: Sequence[str] | None, feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """The outputs, as of `InferenceSession.run`."""
        outputs = self._run(self.signature.choose(output_names), self.signature.bind(feed), run_options)
        return outputs if self.cuda is None else [self.cuda.to_host(value) for value in outputs]

    def trace(self, feed: Mapping[str, Any]) -> Iterator[StepTrace]:
        """Run the model, and yield every step as soon as it has run."""
        values = self.signature.bind(feed)
        if not self._fits(values):
            yield from self._safe.trace(feed)
            return
        values |= self._constant_outputs
        for entry in self._loaded_plan.schedule(self.signature.choose(None)):
            inputs = {name: values[name] for name in entry.step.inputs}
            outputs = self._run_step(entry, list(inputs.values()), None, NO_TARGETS)
            values.update(zip(entry.step.outputs, outputs, strict=True))
            host_outputs = {name: self._to_host(values[name]) for name in entry.step.outputs}
            yield StepTrace(entry, {name: self._to_host(value) for name, value in inputs.items()}, host_outputs)
            for name in entry.last_uses:
                del values[name]

    def run_into(
        self, targets: Mapping[str, Any], feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """The outputs that `targets` names; the step that makes an output writes it to its target, if there is one.

        A target that shares memory with an input or with another target is written at the end, because steps may still
        read that memory. So is every target of a session on a GPU, whose outputs may be tensors.
        """
        values = self.signature.bind(feed)
        unshared = _unshared(targets, values.values()) if self.cuda is None else NO_TARGETS
        outputs = self._run(tuple(targets), values, run_options, unshared, is_bound=True)
        for number, (name, target) in enumerate(targets.items()):
            if target is not None and outputs[number] is not target:
                _write(name, target, outputs[number], self.cuda)
                outputs[number] = target
        return outputs

    def _run(
        self,
        names: tuple[str, ...],
        values: dict[str, Any],
        run_options: RunOptions | None,
        targets: Mapping[str, AnyArray] = NO_TARGETS,
        *,
        is_bound: bool = False,
    ) -> list[Any]:
        if not self._fits(values):
            safe = self._safe
            safe.profile = self.profile
            return safe._run(names, values, run_options, targets, is_bound=is_bound)
        caller_options, profile = run_options, self.profile
        if run_options is not None:
            require_run_options(run_options)
            parameters = adapter_parameters(self._input_infos, run_options)
            if not is_bound:  # onnxruntime applies no adapter to a bound run
                values |= {name: self.signature.accept(name, value) for name, value in parameters.items()}
            run_options = without_adapters(run_options) if parameters else run_options
        not_computed = {*values, *self._constant_outputs}
        values |= self._constant_outputs
        begin = time.perf_counter_ns()
        for entry in self._loaded_plan.schedule(names):
            start = time.perf_counter_ns()
            if caller_options is not None and caller_options is not run_options:  # only the caller's is ever terminated
                check_cancelled(caller_options)
            outputs = self._run_step(entry, [values[name] for name in entry.step.inputs], run_options, targets)
            values.update(zip(entry.step.outputs, outputs, strict=True))
            for name in entry.last_uses:
                del values[name]
            if profile is not None:
                profile.add_step(entry, self.folded[entry.step], start)
        if profile is not None:
            profile.add("Session", "model_run", begin)
        return [self._copy(values[name]) if name in not_computed else values[name] for name in names]

    def _fits(self, values: Mapping[str, Any]) -> bool:
        return self._sizes is None or self._sizes.fit(values)

    @property
    def _safe(self) -> "Executor":
        """The same model with a plan that assumes no sizes, loaded when it is needed first."""
        with self._lock:
            if self._load_safe is not None:
                self._safe_executor, self._load_safe = self._load_safe(), None
            return self._safe_executor

    def _run_step(
        self, entry: ScheduledStep, inputs: list[Any], run_options: RunOptions | None, targets: Mapping[str, AnyArray]
    ) -> Sequence[Any]:
        try:
            if self.cuda is not None and entry.step.device == HOST:
                inputs = [self._to_host(value) for value in inputs]
            if targets and not targets.keys().isdisjoint(entry.step.outputs):
                return entry.loaded.run(inputs, run_options, [targets.get(name) for name in entry.step.outputs])
            return entry.loaded.run(inputs, run_options)
        except UnpoolError:
            raise
        except Exception as error:
            raise step_error(entry.name, error) from error

    def _copy(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.copy()
        return value if self.cuda is None else self.cuda.clone(value)

    def _to_host(self, value: Any) -> Any:
        return value if self.cuda is None else self.cuda.to_host(value)


def load_as_session(model: onnx.ModelProto, semantics: Semantics, *, fuses_unpool: bool = True) -> Executor:
    """The model with its graph, as an `InferenceSession` loads it, but unpool runs every node that it may run."""
    many_threads, one_thread = partition_options(None, None), partition_options(None, 1)
    options = LoadOptions(
        semantics, None, many_threads, one_thread, CPU_ONLY, fuses_unpool=fuses_unpool, checks_profit=False
    )
    return Executor(model, options, keeps_graph=True)


def load_as_written(model: onnx.ModelProto, semantics: Semantics) -> Executor:
    """The same, but a decomposed unpooling runs node by node as it is written."""
    return load_as_session(model, semantics, fuses_unpool=False)


def _unshared(targets: Mapping[str, AnyArray | None], inputs: Iterable[Any]) -> dict[str, AnyArray]:
    """The targets that certainly share no memory with an input or with another target."""
    arrays = {name: target for name, target in targets.items() if target is not None}
    values = list(inputs)
    if not all(isinstance(value, np.ndarray) for value in values):
        return {}
    unshared = {}
    for name, target in arrays.items():
        others = (array for other, array in arrays.items() if other != name)
        if not any(np.may_share_memory(target, other) for other in (*values, *others)):
            unshared[name] = target
    return unshared


def _write(name: str, target: Any, value: Any, cuda: "CudaMemory | None") -> None:
    require_memory(name, _kind(value, cuda), getattr(value, "shape", ()), target, cuda)
    if cuda is None:
        np.copyto(target, value)
    else:
        cuda.copy_to(target, value)


def require_memory(
    name: str, kind: Any, shape: Sequence[int | str | None], target: Any, cuda: "CudaMemory | None"
) -> None:
    """Refuse bound memory of another type or shape than those of an output; only sizes that are ints are compared."""
    target_kind = _kind(target, cuda)
    if target_kind != kind:
        raise UnpoolError(f"output {name!r}: expected memory for {kind}, got {target_kind}. Bind memory of that type.")
    have = list(target.shape)
    if len(have) != len(shape) or any(isinstance(size, int) and size != n for size, n in zip(shape, have, strict=True)):
        raise ShapeError(
            f"output {name!r}: expected memory of shape {list(shape)}, got {have}. Bind memory of that shape."
        )


def _kind(value: Any, cuda: "CudaMemory | None") -> Any:
    """The type of elements of an array or tensor, or the name of the class of any other value."""
    if cuda is not None:
        return cuda.kind(value)
    return value.dtype if isinstance(value, np.ndarray) else type(value).__name__


def _folded(plan: Plan, graph: Graph, model: onnx.ModelProto) -> dict[Step, tuple[tuple[str, str], ...]]:
    """Name and operator of the nodes that were folded into a step, by step."""
    operators = {node_name(node): node.op_type for node in model.graph.node}
    folded = {}
    for step in plan.steps:
        outputs = (graph.nodes[position].output[0] for position in step.nodes)
        names = [name for output in outputs for name in graph.folded_nodes.get(output, ())]
        folded[step] = tuple((name, operators.get(name, "")) for name in names)
    return folded
