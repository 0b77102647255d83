"""Steps of one If, Loop, Scan or SequenceMap, whose subgraphs have plans of their own.

    If            the outputs of one of two subgraphs
    Loop          carries values and a condition from one iteration to the next; stacks slices of the other outputs
    Scan          carries values, and reads slices of the inputs; stacks slices of the other outputs
    SequenceMap   applies the subgraph to every element of sequences

Source: ONNX If 1-25, Loop 1-25, Scan 8-25 and SequenceMap 17.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper

from unpool.dtypes import AnyArray
from unpool.errors import ShapeError, UnpoolError
from unpool.runtime.backends.step import LoadedPlan, LoadedStep, RunOptions, Targets, Values, check_cancelled
from unpool.runtime.graph import shapes
from unpool.runtime.graph.errors import step_error
from unpool.runtime.graph.graph import Graph, to_dense
from unpool.runtime.graph.nodes import attributes, node_name
from unpool.runtime.graph.weights import array_of
from unpool.runtime.plan.plan import Step
from unpool.runtime.plan.subgraphs import FIRST_SCAN_OF_AXES, Subgraph, single_shape


class LoadedSubgraph:
    """A subgraph that is ready to run; `graph` is the one that was planned, after all passes."""

    def __init__(self, body: Subgraph, graph: Graph, loaded: LoadedPlan) -> None:
        self.steps = loaded.steps
        self.outputs = graph.output_names
        self.single_shapes = [single_shape(value) for value in body.declared]
        self._inputs, self._captured = body.fed, body.captured
        self._types = [loaded.types.get(value.name, value.type) for value in graph.outputs]
        self._constants = constant_outputs(graph)
        self._schedule = loaded.schedule(self.outputs)

    def run(self, inputs: Sequence[Any], outer_values: Mapping[str, Any], run_options: RunOptions | None) -> list[Any]:
        """The outputs in order; one may be, or share memory with, an input or a captured value of `outer_values`."""
        if run_options is not None:
            check_cancelled(run_options)
        values = {name: outer_values[name] for name in self._captured}
        values.update(zip(self._inputs, inputs, strict=True))
        values.update((name, array.copy()) for name, array in self._constants.items())
        for entry in self._schedule:
            try:
                outputs = entry.loaded.run([values[name] for name in entry.step.inputs], run_options)
            except UnpoolError:
                raise
            except Exception as error:
                raise step_error(entry.name, error) from error
            values.update(zip(entry.step.outputs, outputs, strict=True))
            for name in entry.last_uses:
                del values[name]
        return [values[name] for name in self.outputs]

    def types_for(self, operator: str) -> list[onnx.TypeProto]:
        """The types of the outputs of the node with the subgraph, in order, without sizes."""
        types = [shapes.without_shape(type_) for type_ in self._types]
        if operator == "SequenceMap":
            return [helper.make_sequence_type_proto(type_) for type_ in types]
        return types[operator == "Loop" :]

    def empty_slices(self, position: int, axis: int) -> AnyArray:
        """An empty stack of slices, for an output of a subgraph that never ran; unknown sizes count as 0."""
        type_ = self._types[position]
        sizes = [size or 0 for size in shapes.static_dims(type_) or ()]
        sizes.insert(axis if axis >= 0 else axis + len(sizes) + 1, 0)
        return np.empty(sizes, shapes.dtype(type_) or np.float32)


def constant_outputs(graph: Graph) -> dict[str, AnyArray]:
    """The outputs that are constants, which no node makes."""
    names = graph.output_names
    arrays = {name: array_of(graph.constants[name]) for name in names if name in graph.constants}
    return arrays | {name: to_dense(graph.sparse_constants[name]) for name in names if name in graph.sparse_constants}


OuterScope: TypeAlias = tuple[Mapping[str, Any], RunOptions | None]
"""The values that the subgraphs of a running node may capture, by name, and the caller's options."""


class ControlStep(ABC):
    """A step of one node with subgraphs, by the names of the attributes that hold them."""

    def __init__(
        self, node: onnx.NodeProto, step: Step, subgraphs: Mapping[str, LoadedSubgraph], constants: Mapping[str, Any]
    ) -> None:
        self._node, self._constants, self.subgraphs = node, constants, subgraphs
        self._names = step.inputs
        self._wanted = [list(node.output).index(name) for name in step.outputs]

    def run(self, values: Values, run_options: RunOptions | None, targets: Targets | None = None) -> list[Any]:  # noqa: ARG002
        """The wanted outputs, each an array of its own. An UnpoolError names the node, or that in a subgraph."""
        outer_values = dict(zip(self._names, values, strict=True))
        inputs = [outer_values.get(name, self._constants.get(name)) for name in self._node.input]
        outputs = list(self._compute(inputs, (outer_values, run_options)))
        return unshared([outputs[position] for position in self._wanted], [*values, *inputs])

    @abstractmethod
    def _compute(self, inputs: Sequence[Any], scope: OuterScope) -> Iterable[Any]:
        """All outputs from the node's own inputs; an omitted input is None."""

    def _single(self, value: AnyArray, name: str) -> Any:
        if np.size(value) != 1:
            raise self._error(f"expected {name} of one element, got shape {np.shape(value)}. Reshape it.")
        return np.asarray(value).item()

    def _same_length(self, lengths: Iterable[int], name: str) -> int:
        distinct = sorted(set(lengths))
        if len(distinct) != 1:
            raise self._error(f"expected {name} of one length, got {distinct}. Pass inputs of one length.")
        return distinct[0]

    def _error(self, text: str) -> ShapeError:
        return ShapeError(f"{self._node.op_type} node {node_name(self._node)!r}: {text}")


class IfStep(ControlStep):
    """Runs one of two subgraphs."""

    def _compute(self, inputs: Sequence[Any], scope: OuterScope) -> Iterable[Any]:
        branch = "then_branch" if self._single(inputs[0], "a condition") else "else_branch"
        return self.subgraphs[branch].run((), *scope)


class LoopStep(ControlStep):
    """Runs the subgraph up to a trip count, or while a condition holds."""

    always_tests_condition = False  # else the subgraph's condition cannot end the loop where the node has none

    def _compute(self, inputs: Sequence[Any], scope: OuterScope) -> Iterable[Any]:
        body = self.subgraphs["body"]
        trip_count, condition, *carried = inputs
        tests_condition = condition is not None or self.always_tests_condition
        is_true: Any = True if condition is None else self._single(condition, "a condition")
        stacks: list[list[AnyArray]] = [[] for _ in body.outputs[len(carried) + 1 :]]
        for iteration in count() if trip_count is None else range(self._single(trip_count, "a trip count")):
            if tests_condition and not is_true:
                break
            pairs = zip(body.single_shapes, (iteration, is_true), strict=False)
            number, flag = (np.full(shape, value) for shape, value in pairs)
            next_condition, *outputs = body.run((number.astype(np.int64), flag, *carried), *scope)
            is_true = self._single(next_condition, "a condition")
            carried, slices = outputs[: len(carried)], outputs[len(carried) :]
            for stack, value in zip(stacks, slices, strict=True):
                stack.append(value)
        first = len(carried) + 1
        return [*carried, *(_stack(stack, body, first + number, 0) for number, stack in enumerate(stacks))]


class OrtCompatLoop(LoopStep):
    """A Loop that the subgraph's condition can always end, as in onnxruntime."""

    always_tests_condition = True


class ScanStep(ControlStep):
    """Runs the subgraph for every slice of the scanned inputs."""

    def _compute(self, inputs: Sequence[Any], scope: OuterScope) -> Iterable[Any]:
        values, body = attributes(self._node), self.subgraphs["body"]
        n_scanned = values["num_scan_inputs"]
        states, scanned = list(inputs[: len(inputs) - n_scanned]), inputs[len(inputs) - n_scanned :]
        axes = values.get("scan_input_axes") or [0] * n_scanned
        columns = [np.moveaxis(x, axis, 0) for x, axis in zip(scanned, axes, strict=True)]
        directions = values.get("scan_input_directions") or [0] * n_scanned
        states, stacks = self._scan(states, _in_direction(columns, directions), scope)
        output_axes = values.get("scan_output_axes") or [0] * len(stacks)
        output_directions = values.get("scan_output_directions") or [0] * len(stacks)
        pairs = enumerate(zip(_in_direction(stacks, output_directions), output_axes, strict=True), len(states))
        return [*states, *(_stack(stack, body, position, axis) for position, (stack, axis) in pairs)]

    def _scan(self, states: list[Any], columns: Sequence[AnyArray], scope: OuterScope) -> tuple[list[Any], list[Any]]:
        """The last states, and the list of slices of every other output."""
        body = self.subgraphs["body"]
        stacks: list[list[AnyArray]] = [[] for _ in body.outputs[len(states) :]]
        for index in range(self._same_length(map(len, columns), "scanned inputs")):
            outputs = body.run((*states, *(column[index, ...] for column in columns)), *scope)
            states, slices = outputs[: len(states)], outputs[len(states) :]
            for stack, value in zip(stacks, slices, strict=True):
                stack.append(value)
        return states, stacks


class BatchedScanStep(ScanStep):
    """Scan-8: scans every element of a batch. Sequences may have lengths of their own; zeros fill the rest."""

    def _compute(self, inputs: Sequence[Any], scope: OuterScope) -> Iterable[Any]:
        values, (sequence_lens, *batched) = attributes(self._node), inputs
        n_scanned = values["num_scan_inputs"]
        states, scanned = batched[: len(batched) - n_scanned], batched[len(batched) - n_scanned :]
        directions = values.get("directions") or [0] * n_scanned
        batch = self._same_length(map(len, batched), "batches")
        longest = self._same_length((x.shape[1] for x in scanned), "sequences")
        lengths = [longest] * batch if sequence_lens is None else [int(length) for length in np.ravel(sequence_lens)]
        if len(lengths) != batch or any(not 0 <= length <= longest for length in lengths):
            raise self._error(f"expected {batch} lengths from 0 to {longest}, got {lengths}. Change sequence_lens.")
        results = []
        for index, length in enumerate(lengths):
            columns = _in_direction([x[index, :length] for x in scanned], directions)
            results.append(self._scan([state[index, ...] for state in states], columns, scope))
        last_states = [np.stack(batch_states) for batch_states in zip(*(last for last, _ in results), strict=True)]
        outputs = []
        for position, batch_stacks in enumerate(zip(*(stacks for _, stacks in results), strict=True), len(states)):
            arrays = [_stack(stack, self.subgraphs["body"], position, 0) for stack in batch_stacks]
            padded = [np.pad(x, [(0, longest - len(x)), *[(0, 0)] * (x.ndim - 1)]) for x in arrays]
            outputs.append(np.stack(padded))
        return [*last_states, *outputs]


class SequenceMapStep(ControlStep):
    """Runs the subgraph for every element of the sequences; tensors stay whole."""

    def _compute(self, inputs: Sequence[Any], scope: OuterScope) -> Iterable[Any]:
        body = self.subgraphs["body"]
        length = self._same_length((len(x) for x in inputs if isinstance(x, list)), "sequences")
        rows = [body.run([x[i] if isinstance(x, list) else x for x in inputs], *scope) for i in range(length)]
        return [[row[position] for row in rows] for position in range(len(body.outputs))]


def step_class(node: onnx.NodeProto, opset: int, compat: str) -> type[ControlStep]:
    """The class that runs a node in this opset."""
    if node.op_type == "Loop" and compat == "ort":
        return OrtCompatLoop
    if node.op_type == "Scan" and opset < FIRST_SCAN_OF_AXES:
        return BatchedScanStep
    return {"If": IfStep, "Loop": LoopStep, "Scan": ScanStep, "SequenceMap": SequenceMapStep}[node.op_type]


def all_steps(steps: Iterable[LoadedStep]) -> Iterator[LoadedStep]:
    """Steps, and the steps in their subgraphs at any depth."""
    for step in steps:
        yield step
        if isinstance(step, ControlStep):
            for subgraph in step.subgraphs.values():
                yield from all_steps(subgraph.steps)


def unshared(outputs: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """The outputs, each with memory of its own: none shares it with an input or with another output."""
    others = list(_arrays(inputs))
    copies = []
    for value in outputs:
        copies.append(_own(value, others))
        others.extend(_arrays([value]))
    return copies


def _own(value: Any, others: Sequence[AnyArray]) -> Any:
    if isinstance(value, list):
        return [_own(element, others) for element in value]
    is_shared = isinstance(value, np.ndarray) and any(np.may_share_memory(value, other) for other in others)
    return value.copy() if is_shared else value


def _arrays(values: Iterable[Any]) -> Iterator[AnyArray]:
    for value in values:
        if isinstance(value, np.ndarray):
            yield value
        elif isinstance(value, list):
            yield from _arrays(value)


def _in_direction(columns: Sequence[Any], directions: Sequence[int]) -> list[Any]:
    return [column[::-1] if direction else column for column, direction in zip(columns, directions, strict=True)]


def _stack(slices: Sequence[AnyArray], body: LoadedSubgraph, position: int, axis: int) -> AnyArray:
    return np.stack(slices, axis) if slices else body.empty_slices(position, axis)
