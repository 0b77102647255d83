"""Steps of one If, Loop, Scan or SequenceMap, whose bodies are plans of their own.

    If            the outputs of one of two bodies
    Loop          carried values and a condition go round; slices of the other outputs are stacked
    Scan          carried values go round, and slices of the inputs come in; slices of the other outputs are stacked
    SequenceMap   the body, applied to every element of sequences

Source: ONNX If 1-25, Loop 1-25, Scan 8-25 and SequenceMap 17.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import onnx

from unpool.dtypes import AnyArray
from unpool.errors import ShapeError
from unpool.runtime.graph.nodes import attributes, label
from unpool.runtime.plan.bodies import FIRST_SCAN_OF_AXES
from unpool.runtime.plan.plan import Step
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.loaded_body import LoadedBody
from unpool.runtime.runners.loaded_plan import LoadedStep


class Around(NamedTuple):
    """What a node sees while it runs: the values that its bodies may capture, by name, and the caller's options."""

    values: Mapping[str, Any]
    run_options: onnxruntime.RunOptions | None


class ControlStep(ABC):
    """A step of one node with bodies.

    Args:
        node: the node.
        step: its step of the plan.
        bodies: by the names of the attributes that hold them.
        constants: the inputs of the node that are constants.
    """

    def __init__(
        self, node: onnx.NodeProto, step: Step, bodies: Mapping[str, LoadedBody], constants: Mapping[str, AnyArray]
    ) -> None:
        self._node = node
        self._names = step.inputs
        self._wanted = [list(node.output).index(name) for name in step.outputs]
        self.bodies = bodies
        self._constants = constants

    def run(self, values: Sequence[Any], run_options: onnxruntime.RunOptions | None) -> list[Any]:
        """The wanted outputs in order, each an array of its own.

        Raises:
            UnpoolError: the values break the contract of the node, or of a node in a body; the message names it.
        """
        around = Around(dict(zip(self._names, values, strict=True)), run_options)
        given = [around.values.get(name, self._constants.get(name)) for name in self._node.input]
        made = list(self._compute(given, around))
        return owned([made[place] for place in self._wanted], [*values, *given])

    @abstractmethod
    def _compute(self, given: Sequence[Any], around: Around) -> Iterable[Any]:
        """All outputs from the node's own inputs, of which those left out are None."""

    def _body(self) -> LoadedBody:
        return self.bodies["body"]

    def _single(self, value: AnyArray, what: str) -> Any:
        """The one element of an array."""
        if np.size(value) != 1:
            raise ShapeError(
                f"{self._where()}: expected {what} of one element, got shape {np.shape(value)}. Reshape it."
            )
        return np.asarray(value).item()

    def _same_length(self, lengths: Iterable[int], what: str) -> int:
        """The length that all have."""
        found = sorted(set(lengths))
        if len(found) != 1:
            raise ShapeError(f"{self._where()}: expected {what} of one length, got {found}. Cut them.")
        return found[0]

    def _where(self) -> str:
        return f"{self._node.op_type} node {label(self._node)!r}"


class IfStep(ControlStep):
    """Runs one of two bodies."""

    def _compute(self, given: Sequence[Any], around: Around) -> Iterable[Any]:
        branch = "then_branch" if self._single(given[0], "a condition") else "else_branch"
        return self.bodies[branch].run((), *around)


class LoopStep(ControlStep):
    """Runs a body so many times, or as long as a condition holds.

    A condition that the node leaves out is true; what the body makes of it then only counts for onnxruntime, and
    `counts_always` says whether it does here.
    """

    counts_always = False

    def _compute(self, given: Sequence[Any], around: Around) -> Iterable[Any]:
        body = self._body()
        most, go, *carried = given
        counts = go is not None or self.counts_always
        on: Any = True if go is None else self._single(go, "a condition")
        stacks: list[list[AnyArray]] = [[] for _ in body.outputs[len(carried) + 1 :]]
        for turn in count() if most is None else range(self._single(most, "a trip count")):
            if counts and not on:
                break
            number, flag = (np.full(shape, one) for shape, one in zip(body.single_shapes, (turn, on), strict=False))
            after, *made = body.run((number.astype(np.int64), flag, *carried), *around)
            on = self._single(after, "a condition")
            carried, slices = made[: len(carried)], made[len(carried) :]
            for stack, one in zip(stacks, slices, strict=True):
                stack.append(one)
        first = len(carried) + 1
        return [*carried, *(_stacked(stack, body, first + place, 0) for place, stack in enumerate(stacks))]


class LoopOfOnnxruntime(LoopStep):
    """The same, and the condition that the body makes counts always."""

    counts_always = True


class ScanStep(ControlStep):
    """Runs a body for every slice of its last inputs."""

    def _compute(self, given: Sequence[Any], around: Around) -> Iterable[Any]:
        said, body = attributes(self._node), self._body()
        scanned = said["num_scan_inputs"]
        states, inputs = list(given[: len(given) - scanned]), given[len(given) - scanned :]
        axes = said.get("scan_input_axes") or [0] * scanned
        columns = [np.moveaxis(x, axis, 0) for x, axis in zip(inputs, axes, strict=True)]
        turned = said.get("scan_input_directions") or [0] * scanned
        states, stacks = self._walk(states, _turned(columns, turned), around)
        made = len(stacks)
        out_axes = said.get("scan_output_axes") or [0] * made
        out_turned = said.get("scan_output_directions") or [0] * made
        ends = zip(_turned(stacks, out_turned), out_axes, strict=True)
        first = len(states)
        return [*states, *(_stacked(stack, body, first + place, axis) for place, (stack, axis) in enumerate(ends))]

    def _walk(
        self, states: list[Any], columns: Sequence[AnyArray], around: Around
    ) -> tuple[list[Any], list[list[AnyArray]]]:
        """The last states, and the slices of every other output."""
        body = self._body()
        stacks: list[list[AnyArray]] = [[] for _ in body.outputs[len(states) :]]
        for at in range(self._same_length(map(len, columns), "scanned inputs")):
            made = body.run((*states, *(column[at, ...] for column in columns)), *around)
            states, slices = made[: len(states)], made[len(states) :]
            for stack, one in zip(stacks, slices, strict=True):
                stack.append(one)
        return states, stacks


class BatchedScanStep(ScanStep):
    """Scan-8: for every element of a batch, whose sequences may have lengths of their own; zeros fill the rest."""

    def _compute(self, given: Sequence[Any], around: Around) -> Iterable[Any]:
        said, (lengths, *values) = attributes(self._node), given
        scanned = said["num_scan_inputs"]
        states, inputs = values[: len(values) - scanned], values[len(values) - scanned :]
        turned = said.get("directions") or [0] * scanned
        batch = self._same_length(map(len, values), "batches")
        longest = self._same_length((x.shape[1] for x in inputs), "sequences")
        used = [longest] * batch if lengths is None else [int(one) for one in np.ravel(lengths)]
        if len(used) != batch or any(not 0 <= one <= longest for one in used):
            raise ShapeError(
                f"{self._where()}: expected {batch} lengths from 0 to {longest}, got {used}. Correct sequence_lens."
            )
        ends = []
        for at, length in enumerate(used):
            columns = _turned([x[at, :length] for x in inputs], turned)
            ends.append(self._walk([state[at, ...] for state in states], columns, around))
        last = [np.stack(each) for each in zip(*(states for states, _ in ends), strict=True)]
        body = self._body()
        filled = [
            np.stack([_filled(_stacked(stack, body, len(states) + place, 0), longest) for stack in each])
            for place, each in enumerate(zip(*(stacks for _, stacks in ends), strict=True))
        ]
        return [*last, *filled]


class SequenceMapStep(ControlStep):
    """Runs a body for every element of the first sequence, with those of the others or with whole tensors."""

    def _compute(self, given: Sequence[Any], around: Around) -> Iterable[Any]:
        body = self._body()
        length = self._same_length((len(one) for one in given if isinstance(one, list)), "sequences")
        rows = [body.run([one[at] if isinstance(one, list) else one for one in given], *around) for at in range(length)]
        return [[row[place] for row in rows] for place in range(len(body.outputs))]


def step_class(node: onnx.NodeProto, opset: int, compat: str) -> type[ControlStep]:
    """The class that runs a node, as an opset means it."""
    if node.op_type == "Loop" and compat == "ort":
        return LoopOfOnnxruntime
    if node.op_type == "Scan" and opset < FIRST_SCAN_OF_AXES:
        return BatchedScanStep
    return {"If": IfStep, "Loop": LoopStep, "Scan": ScanStep, "SequenceMap": SequenceMapStep}[node.op_type]


def with_inner_steps(steps: Iterable[LoadedStep]) -> Iterator[LoadedStep]:
    """Steps, and the steps in their bodies at any depth."""
    for step in steps:
        yield step
        if isinstance(step, ControlStep):
            for body in step.bodies.values():
                yield from with_inner_steps(body.steps)


def owned(made: Sequence[Any], read: Sequence[Any]) -> list[Any]:
    """The values, each with memory of its own: none shares it with what was read, nor with another one."""
    taken = list(_arrays(read))
    found = []
    for value in made:
        found.append(_own(value, taken))
        taken.extend(_arrays([value]))
    return found


def _own(value: Any, taken: Sequence[AnyArray]) -> Any:
    if isinstance(value, list):
        return [_own(one, taken) for one in value]
    is_shared = isinstance(value, np.ndarray) and any(np.may_share_memory(value, one) for one in taken)
    return value.copy() if is_shared else value


def _arrays(values: Iterable[Any]) -> Iterator[AnyArray]:
    for value in values:
        if isinstance(value, np.ndarray):
            yield value
        elif isinstance(value, list):
            yield from _arrays(value)


def _turned(columns: Sequence[Any], directions: Sequence[int]) -> list[Any]:
    """The columns, those of direction 1 from their end to their beginning."""
    return [column[::-1] if turned else column for column, turned in zip(columns, directions, strict=True)]


def _stacked(stack: Sequence[AnyArray], body: LoadedBody, place: int, axis: int) -> AnyArray:
    return np.stack(stack, axis) if stack else body.empty_slices(place, axis)


def _filled(stack: AnyArray, length: int) -> AnyArray:
    """The stack with zeros behind it up to a length."""
    full = np.zeros((length, *stack.shape[1:]), stack.dtype)
    full[: len(stack)] = stack
    return full
