"""A run of a model step by step, and the facts about its steps, values, windows and memory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.runtime.graph.load import ModelSource, load
from unpool.runtime.graph.nodes import attributes, domain, is_unpool_op, node_name, reads
from unpool.runtime.graph.weights import array_of
from unpool.runtime.report.accuracy import AccuracyChecker, StepAccuracy
from unpool.runtime.report.feature_maps import MapPair, map_pair
from unpool.runtime.report.window_drawing import WindowSettings
from unpool.runtime.session.inspect import PreparedGraph, executor_of, prepared_graph
from unpool.runtime.session.session import InferenceSession
from unpool.runtime.tiles.tiler import Tiler

Feed = Mapping[str, Any]

MODEL_INPUT = -1
"""`ValueLifetime.producer` of the inputs of the model."""


@dataclass(frozen=True)
class ValueLifetime:
    """A value that one step hands to another, or to the caller.

    Attributes:
        name: of the value.
        type: of its elements; of other values than arrays their kind.
        shape: of an array; None for anything else.
        bytes: of its elements.
        producer: position of the step that makes it; `MODEL_INPUT` for an input.
        last_reader: position of the last step that reads it; for an output, of the last step of all.
    """

    name: str
    type: str
    shape: tuple[int, ...] | None
    bytes: int
    producer: int
    last_reader: int


@dataclass(frozen=True)
class MemoryUse:
    """The memory that a run takes.

    Attributes:
        values: in the order in which they are made.
        live_bytes: by step, bytes of the values that are alive while it runs, its outputs included.
        peak_bytes: forecast of a whole run's peak, with the values inside of partitions, without inputs and session;
            None where it cannot be forecast.
        reason: why it cannot be.
    """

    values: tuple[ValueLifetime, ...]
    live_bytes: tuple[int, ...]
    peak_bytes: int | None = None
    reason: str = ""


class StepTracer:
    """Runs a model step by step.

    Args:
        session: of the model.
        source: of the model.
        feed: an array for every input.

    Attributes:
        plan: the runner of each node.
        opsets: version by domain.
        accuracy: of every step, with a checker.
        maps: feature maps of poolings and unpoolings that unpool ran.
        windows: of the nodes that unpool ran, by name.
    """

    def __init__(self, session: InferenceSession, source: ModelSource, feed: Feed) -> None:
        self._executor = executor_of(session)
        self._session, self._feed = session, feed
        self._prepared: PreparedGraph = prepared_graph(session)
        nodes = [node for node in load(source).graph.node if node.input]
        self._conv_inputs = {node.input[0] for node in nodes if node.op_type == "Conv"}
        self._conv_inputs -= {node.input[0] for node in nodes if node.op_type == "ConvTranspose"}
        self.plan = self._executor.plan
        self.opsets = dict(self._prepared.graph.opsets)
        self.accuracy: list[StepAccuracy] = []
        self.maps: list[MapPair] = []
        self.windows: list[tuple[str, WindowSettings]] = []
        self._memory = _MemoryTracker(feed)

    def checker(self, threads: int | None) -> AccuracyChecker:
        """Evaluates the steps once more, with at most this number of threads; None for all cores."""
        return AccuracyChecker(self._prepared, self._executor.types, threads)

    def run(self, checker: AccuracyChecker | None = None) -> None:
        """Run the model once, and check every step."""
        for trace in self._executor.trace(self._feed):
            self._memory.add_step(trace.inputs, trace.outputs)
            if checker is not None:
                self.accuracy.append(checker.check(trace))
            node = self._prepared.graph.nodes[trace.entry.step.nodes[0]]
            if trace.entry.step.runner == "unpool" and is_unpool_op(node):
                values = {**self._constants(node), **trace.inputs, **trace.outputs}
                pair = map_pair(trace, self._prepared, values)
                self.maps += [] if pair is None else [pair]
                was_conv = node.op_type == "ConvTranspose" and node.input[0] in self._conv_inputs
                if not was_conv:
                    self.windows += window_settings(node, self.opsets[""], values)

    def memory(self) -> MemoryUse:
        """The memory of the run."""
        return self._memory.result(
            [value.name for value in self._session.get_outputs()], *_forecast_peak(self._session, self._feed)
        )

    def _constants(self, node: onnx.NodeProto) -> dict[str, AnyArray]:
        constants = self._prepared.graph.constants
        return {name: array_of(constants[name]) for name in reads(node) if name in constants}


class _MemoryTracker:
    """Types, sizes and lifetimes of values while a model runs; the values themselves are not kept."""

    def __init__(self, feed: Feed) -> None:
        self._values = {name: (MODEL_INPUT, *_describe(value)) for name, value in feed.items()}
        self._last_readers: dict[str, int] = {}
        self._steps = 0

    def add_step(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        self._last_readers |= dict.fromkeys(inputs, self._steps)
        self._values |= {name: (self._steps, *_describe(value)) for name, value in outputs.items()}
        self._steps += 1

    def result(self, outputs: Sequence[str], peak_bytes: int | None, reason: str) -> MemoryUse:
        """`outputs` are the names of the model's outputs."""
        last_readers = self._last_readers | dict.fromkeys(outputs, max(self._steps - 1, 0))
        values = tuple(
            ValueLifetime(name, kind, shape, size, producer, last_readers.get(name, producer))
            for name, (producer, kind, shape, size) in self._values.items()
        )
        live_bytes = tuple(
            sum(value.bytes for value in values if value.producer <= step <= value.last_reader)
            for step in range(self._steps)
        )
        return MemoryUse(values, live_bytes, peak_bytes, reason)


def _describe(value: Any) -> tuple[str, tuple[int, ...] | None, int]:
    """Type, shape and bytes of a value."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.nbytes
    if isinstance(value, list | tuple):
        return f"sequence of {len(value)}", None, sum(_describe(part)[2] for part in value)
    return type(value).__name__, None, 0


def _forecast_peak(session: InferenceSession, feed: Feed) -> tuple[int | None, str]:
    """Bytes of a run at its peak, or None and the reason why they cannot be forecast."""
    try:
        return Tiler(session).run_bytes({name: tuple(np.shape(value)) for name, value in feed.items()}), ""
    except UnpoolError as error:
        return None, str(error)


def node_title(operator: str, node: str) -> str:
    """The name of a node with its operator, which many names begin with.

    >>> node_title("MaxPool", "pool_1"), node_title("MaxPool", "MaxPool->y")
    ('MaxPool pool_1', 'MaxPool->y')
    """
    return node if node.startswith(operator) else f"{operator} {node}"


def window_settings(
    node: onnx.NodeProto, opset: int, values: Mapping[str, Any]
) -> Iterator[tuple[str, WindowSettings]]:
    """The window of a node along each spatial axis whose window is another one, with a title.

    Args:
        node: MaxPool, MaxUnpool or ConvTranspose of ONNX's own domain.
        opset: that the model imports.
        values: the arrays that it reads and makes, by name.
    """
    x, y = values.get(node.input[0]), values.get(node.output[0])
    if domain(node) != "" or x is None or y is None:
        return
    seen: set[WindowSettings] = set()
    for axis in range(x.ndim - 2):
        settings = _axis_settings(node, opset, axis, x, y, values)
        if settings not in seen:
            seen.add(settings)
            yield f"{node_title(node.op_type, node_name(node))}, axis {axis}", settings


def _axis_settings(
    node: onnx.NodeProto, opset: int, axis: int, x: AnyArray, y: AnyArray, values: Mapping[str, Any]
) -> WindowSettings:
    words, rank = attributes(node), x.ndim - 2
    kernel = words.get("kernel_shape") or values[node.input[1]].shape[2:]
    pads = words.get("pads") or [0] * 2 * rank
    has_size = len(node.input) > 2 and bool(node.input[2]) if node.op_type == "MaxUnpool" else "output_shape" in words
    return WindowSettings(
        operator=node.op_type,
        opset=opset,
        size=x.shape[2 + axis],
        kernel=kernel[axis],
        stride=(words.get("strides") or [1] * rank)[axis],
        dilation=(words.get("dilations") or [1] * rank)[axis],
        begin=pads[axis],
        end=pads[axis + rank],
        ceil=bool(words.get("ceil_mode")),
        auto_pad=(words.get("auto_pad") or b"NOTSET").decode(),
        output_padding=(words.get("output_padding") or [0] * rank)[axis],
        output_size=y.shape[2 + axis] if has_size else None,
    )
