"""Loads and runs a model: checks it, lets the passes change it, plans it, loads the steps of the plan and runs them."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx

from unpool.dtypes import AnyArray
from unpool.errors import ShapeError, UnpoolError
from unpool.runtime.graph import node_contract
from unpool.runtime.graph.boundary import failed
from unpool.runtime.graph.constants import lift_constants
from unpool.runtime.graph.inference import infer
from unpool.runtime.graph.node_contract import Meaning
from unpool.runtime.graph.nodes import label
from unpool.runtime.graph.record import Graph, dense, graph_of, without_data
from unpool.runtime.graph.shapes import Types
from unpool.runtime.graph.validity import check_model
from unpool.runtime.graph.weight_files import array_of
from unpool.runtime.passes.domains import shorten
from unpool.runtime.passes.improve import improve
from unpool.runtime.passes.inline import inline
from unpool.runtime.passes.old_opsets import lift_opset
from unpool.runtime.plan.lines import HOST
from unpool.runtime.plan.plan import Plan, Step
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.assemble import assemble
from unpool.runtime.runners.control_flow import with_inner_steps
from unpool.runtime.runners.openvino_piece import OpenVinoPiece
from unpool.runtime.runners.ort_adapters import Adapters, without_adapters
from unpool.runtime.runners.ort_options import piece_options
from unpool.runtime.runners.ort_piece import OrtPiece
from unpool.runtime.runners.ort_traces import PieceTrace
from unpool.runtime.runners.schedule import ScheduledStep, Schedules
from unpool.runtime.runners.settings import Settings
from unpool.runtime.runners.stopping import require_run_options, stop_if_told
from unpool.runtime.runners.unpool_step import UnpoolStep
from unpool.runtime.session.metadata import metadata_of
from unpool.runtime.session.profile import Profile
from unpool.runtime.session.providers import providers_of
from unpool.runtime.session.signature import Signature

if TYPE_CHECKING:
    from unpool.runtime.runners.cuda_memory import CudaMemory

_WRITES_TO_TARGETS = (UnpoolStep, OrtPiece, OpenVinoPiece)
NO_TARGETS: Mapping[str, AnyArray] = MappingProxyType({})


class Watched(NamedTuple):
    """A step that has run.

    Attributes:
        entry: the step.
        read: the values that it got, by name.
        made: the values that it made, by name.
    """

    entry: ScheduledStep
    read: Mapping[str, Any]
    made: Mapping[str, Any]


class LoadedModel:
    """A model whose plan is made and whose steps are loaded; many threads may run it at the same time.

    Args:
        model: with all its tensors inside.
        settings: what the steps are loaded with.
        keeps_graph: whether `graph` is wanted.

    Attributes:
        metadata: what the model says of itself.
        graph: what the steps were made of, without large weights; None unless it is wanted.
        meaning: how the three operators are read.
        folded: for a step, label and operator of every node that was folded into it.
        cuda: the memory of the GPU in which values stay; None where they are arrays of the host.
    """

    def __init__(self, model: onnx.ModelProto, settings: Settings, *, keeps_graph: bool = False) -> None:
        self.metadata = metadata_of(model)
        graph, types = prepare(model, settings)
        self.graph = without_data(graph) if keeps_graph else None
        self.meaning = settings.meaning
        self.cuda = settings.cuda
        loaded_plan = assemble(graph, types, settings)
        self.signature = Signature.of_graph(graph, {**loaded_plan.types, **types})
        self.signature.cuda = settings.cuda
        self._adapters = Adapters(self.signature.tensors)
        self._constant_outputs = _constant_outputs(graph)
        self._schedules = Schedules(loaded_plan)
        self._loaded_plan = loaded_plan
        self._operators = _operators(loaded_plan.plan)
        self.folded = _folded(loaded_plan.plan, graph, model)

    @property
    def plan(self) -> Plan:
        """Which node runs where and why."""
        return self._loaded_plan.plan

    @property
    def types(self) -> Types:
        """What is known of the values, now that onnxruntime was asked too."""
        return self._loaded_plan.types

    @property
    def refused(self) -> Mapping[str, str]:
        """The labels of the nodes that onnxruntime refuses, with the reason it gives for each."""
        return self._loaded_plan.refused

    @property
    def pieces(self) -> list[onnxruntime.InferenceSession]:
        """The sessions of onnxruntime that run pieces of the model and of its bodies."""
        return [piece.session for piece in self._ort_pieces()]

    @property
    def traces(self) -> list[PieceTrace]:
        """The profiles that these sessions write, where they do."""
        return [piece.trace for piece in self._ort_pieces() if piece.trace is not None]

    def _ort_pieces(self) -> list[OrtPiece]:
        return [step for step in with_inner_steps(self._loaded_plan.steps) if isinstance(step, OrtPiece)]

    def run(
        self,
        output_names: Sequence[str] | None,
        feed: Mapping[str, Any],
        run_options: onnxruntime.RunOptions | None = None,
        profile: Profile | None = None,
    ) -> list[Any]:
        """The outputs, as `InferenceSession.run` gives them; every step is noted in the profile, if there is one."""
        wanted = self.signature.choose(output_names)
        return [self._hosted(one) for one in self._run(wanted, self.signature.bind(feed), run_options, profile)]

    def watch(self, feed: Mapping[str, Any]) -> Iterator[Watched]:
        """Run the model, and give every step as soon as it has run, with what it read and made.

        Args:
            feed: as of `run`.

        Raises:
            UnpoolError: as `run`.
        """
        values = self.signature.bind(feed) | self._constant_outputs
        for entry in self._schedules.of(self.signature.choose(None)):
            read = {name: values[name] for name in entry.step.inputs}
            values.update(
                zip(entry.step.outputs, self._made(entry, list(read.values()), None, NO_TARGETS), strict=True)
            )
            made = {name: self._hosted(values[name]) for name in entry.step.outputs}
            yield Watched(entry, {name: self._hosted(one) for name, one in read.items()}, made)
            for name in entry.last_uses:
                del values[name]

    def run_into(
        self,
        targets: Mapping[str, Any],
        feed: Mapping[str, Any],
        run_options: onnxruntime.RunOptions | None = None,
        profile: Profile | None = None,
    ) -> list[Any]:
        """The outputs that `targets` names; the step that makes one writes it to its target, if there is one.

        A target that shares memory with an input or with another target is written at the end, for steps may still
        have to read there. So is every target of a session on a GPU, whose outputs may be tensors.

        Raises:
            UnpoolError: as `run`; or a target has another shape or type than its output.
        """
        values = self.signature.bind(feed)
        apart = _apart(targets, values.values()) if self.cuda is None else NO_TARGETS
        made = self._run(tuple(targets), values, run_options, profile, apart, is_bound=True)
        for (name, target), value in zip(targets.items(), made, strict=True):
            if target is not None and value is not target:
                _write(name, target, value, self.cuda)
        return [value if target is None else target for target, value in zip(targets.values(), made, strict=True)]

    def _run(
        self,
        wanted: tuple[str, ...],
        values: dict[str, Any],
        run_options: onnxruntime.RunOptions | None,
        profile: Profile | None,
        targets: Mapping[str, AnyArray] = NO_TARGETS,
        *,
        is_bound: bool = False,
    ) -> list[Any]:
        asked = run_options
        if run_options is not None:
            require_run_options(run_options)
            adapted = self._adapters.parameters(run_options)
            if not is_bound:  # onnxruntime applies no adapter to a bound run
                values |= {name: self.signature.accept(name, value) for name, value in adapted.items()}
            run_options = without_adapters(run_options) if adapted else run_options
        given = {*values, *self._constant_outputs}
        values |= self._constant_outputs
        begin = time.perf_counter_ns()
        for entry in self._schedules.of(wanted):
            start = time.perf_counter_ns()
            if asked is not None and asked is not run_options:  # the copy without adapters is never terminated
                stop_if_told(asked)
            made = self._made(entry, [values[name] for name in entry.step.inputs], run_options, targets)
            values.update(zip(entry.step.outputs, made, strict=True))
            for name in entry.last_uses:
                del values[name]
            if profile is not None:
                profile.add_step(entry, self._operators[entry.step], start)
                profile.add_folded(entry.name, self.folded.get(entry.step, ()), entry.step.runner)
        if profile is not None:
            profile.add_run(begin)
        return [self._copied(values[name]) if name in given else values[name] for name in wanted]

    def _made(
        self,
        entry: ScheduledStep,
        inputs: list[Any],
        run_options: onnxruntime.RunOptions | None,
        targets: Mapping[str, AnyArray],
    ) -> Sequence[Any]:
        """The outputs of a step, written to their targets where the step can do that."""
        step = entry.loaded
        try:
            if self.cuda is not None and entry.step.device == HOST:
                inputs = [self._hosted(one) for one in inputs]
            if targets and isinstance(step, _WRITES_TO_TARGETS) and not targets.keys().isdisjoint(entry.step.outputs):
                return step.run(inputs, run_options, [targets.get(name) for name in entry.step.outputs])
            return step.run(inputs, run_options)
        except UnpoolError:
            raise
        except Exception as error:
            raise failed(entry.name, error) from error

    def _copied(self, value: Any) -> Any:
        """An array or a tensor with memory of its own; any other value as it is."""
        if isinstance(value, np.ndarray):
            return value.copy()
        return value if self.cuda is None else self.cuda.copied(value)

    def _hosted(self, value: Any) -> Any:
        """A value as it is on the host."""
        return value if self.cuda is None else self.cuda.to_host(value)


def load_as_session(model: onnx.ModelProto, meaning: Meaning) -> LoadedModel:
    """The model, loaded as an `InferenceSession` with default options loads it, with its graph."""
    return LoadedModel(model, _default_settings(meaning), keeps_graph=True)


def load_as_written(model: onnx.ModelProto, meaning: Meaning) -> LoadedModel:
    """The same, but a decomposed unpooling runs node by node as it is written."""
    return LoadedModel(model, replace(_default_settings(meaning), raises=False), keeps_graph=True)


def _default_settings(meaning: Meaning) -> Settings:
    return Settings(meaning, None, piece_options(None, None), piece_options(None, 1), providers_of(None, None))


def prepare(model: onnx.ModelProto, settings: Settings) -> tuple[Graph, Types]:
    """Check the model and bring it into the form that is planned, with what is known of its values."""
    meaning = settings.meaning
    model = shorten(model)
    imports = {one.domain: one.version for one in model.opset_import}
    node_contract.check_nodes(model.graph.node, imports, meaning)
    check_model(model)
    graph = lift_constants(graph_of(lift_opset(inline(model), meaning)))
    node_contract.check_nodes(graph.nodes, graph.opsets, meaning)
    types = infer(graph, meaning).types
    return improve(graph, types, meaning, settings.changes)


def _constant_outputs(graph: Graph) -> dict[str, Any]:
    """The outputs that no node makes, because they are constants."""
    names = graph.output_names
    found = {name: array_of(graph.constants[name]) for name in names if name in graph.constants}
    return found | {name: dense(graph.sparse_constants[name]) for name in names if name in graph.sparse_constants}


def _apart(targets: Mapping[str, AnyArray | None], inputs: Iterable[Any]) -> dict[str, AnyArray]:
    """The targets that surely share no memory with an input or with another target."""
    found = {name: target for name, target in targets.items() if target is not None}
    if not found:
        return found
    read = list(inputs)
    if not all(isinstance(value, np.ndarray) for value in read):
        return {}
    return {
        name: target
        for name, target in found.items()
        if not any(np.may_share_memory(target, other) for other in (*read, *_others(found, name)))
    }


def _others(targets: Mapping[str, AnyArray], name: str) -> list[AnyArray]:
    return [target for other, target in targets.items() if other != name]


def _write(name: str, target: Any, value: Any, cuda: "CudaMemory | None") -> None:
    """Copy an output to its target.

    Raises:
        ShapeError: the target has another shape.
        UnpoolError: it has another type.
    """
    kind_of = _kind if cuda is None else cuda.kind
    kind, have = kind_of(value), kind_of(target)
    if kind != have:
        raise UnpoolError(f"output {name!r}: expected memory for {kind}, got {have}. Bind it anew.")
    shape, room = tuple(value.shape), tuple(target.shape)
    if shape != room:
        raise ShapeError(f"output {name!r}: expected memory of shape {shape}, got {room}. Bind it anew.")
    if cuda is None:
        np.copyto(target, value)
    else:
        cuda.copy_to(target, value)


def _kind(value: Any) -> Any:
    """The type of the elements of an array, or the name of what is none."""
    return value.dtype if isinstance(value, np.ndarray) else type(value).__name__


def _operators(plan: Plan) -> dict[Step, str]:
    """The operators of each step."""
    names: list[list[str]] = [[] for _ in plan.steps]
    for record in plan.records:
        if not record.inner_steps:
            names[record.step].append(record.operator)
    return {step: ", ".join(dict.fromkeys(found)) for step, found in zip(plan.steps, names, strict=True)}


def _folded(plan: Plan, graph: Graph, model: onnx.ModelProto) -> dict[Step, tuple[tuple[str, str], ...]]:
    """Label and operator of the nodes that were folded into a step, of those steps that have any."""
    operators = {label(node): node.op_type for node in model.graph.node}
    found = {}
    for step in plan.steps:
        outputs = [graph.nodes[position].output[0] for position in step.nodes]
        names = [name for output in outputs for name in graph.folded.get(output, ())]
        if names:
            found[step] = tuple((name, operators.get(name, "")) for name in names)
    return found
