"""A run of a model step by step, and the facts about its steps, values, windows and memory."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx

from unpool.errors import UnpoolError
from unpool.runtime.graph.load import ModelSource, load
from unpool.runtime.graph.nodes import attributes, domain, is_unpool_op, node_name, reads
from unpool.runtime.graph.weights import array_of
from unpool.runtime.report.accuracy import AccuracyChecker, StepAccuracy
from unpool.runtime.report.feature_maps import MapPair, map_pair
from unpool.runtime.report.window_drawing import WindowSettings
from unpool.runtime.session.session import InferenceSession, PreparedGraph, executor_of, prepared_graph
from unpool.runtime.tiles.tiler import Tiler

Feed = Mapping[str, Any]
_Description: TypeAlias = tuple[str, tuple[int, ...] | None, int]

MODEL_INPUT = -1
"""`ValueLifetime.producer` of the inputs of the model."""


@dataclass(frozen=True)
class ValueLifetime:
    """A value that one step hands to another, or to the caller; `shape` is None for anything but an array.

    `producer` and `last_reader` are positions of steps: `MODEL_INPUT` is the producer of an input, and the last step of
    all reads an output.
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
            None with the reason where it cannot be forecast.
    """

    values: tuple[ValueLifetime, ...]
    live_bytes: tuple[int, ...]
    peak_bytes: int | None = None
    reason: str = ""


class StepTracer:
    """Runs a model step by step, and collects facts: accuracy with a checker, feature maps and windows by name.

    Feature maps and windows are those of nodes that unpool ran.
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
        self._steps: list[tuple[tuple[str, ...], dict[str, _Description]]] = []

    def checker(self, threads: int | None) -> AccuracyChecker:
        """Evaluates the steps once more, with at most this number of threads; None for all cores."""
        return AccuracyChecker(self._prepared, self._executor.types, threads)

    def run(self, checker: AccuracyChecker | None = None) -> None:
        """Run the model once, and check every step."""
        for trace in self._executor.trace(self._feed):
            outputs = {name: _describe(value) for name, value in trace.outputs.items()}
            self._steps.append((tuple(trace.inputs), outputs))
            if checker is not None:
                self.accuracy.append(checker.check(trace))
            node = self._prepared.graph.nodes[trace.entry.step.nodes[0]]
            if trace.entry.step.runner == "unpool" and is_unpool_op(node):
                constants = self._prepared.graph.constants
                own = {name: array_of(constants[name]) for name in reads(node) if name in constants}
                values = {**own, **trace.inputs, **trace.outputs}
                pair = map_pair(trace, self._prepared, values)
                self.maps += [] if pair is None else [pair]
                was_conv = node.op_type == "ConvTranspose" and node.input[0] in self._conv_inputs
                if not was_conv:
                    self.windows += window_settings(node, self.opsets[""], values)

    def memory(self) -> MemoryUse:
        """The memory of the run."""
        last_step = max(len(self._steps) - 1, 0)
        values = {name: (MODEL_INPUT, *_describe(value)) for name, value in self._feed.items()}
        last_readers: dict[str, int] = {}
        for number, (inputs, outputs) in enumerate(self._steps):
            last_readers |= dict.fromkeys(inputs, number)
            values |= {name: (number, *described) for name, described in outputs.items()}
        last_readers |= {value.name: last_step for value in self._session.get_outputs()}
        lifetimes = tuple(
            ValueLifetime(name, kind, shape, size, producer, last_readers.get(name, producer))
            for name, (producer, kind, shape, size) in values.items()
        )
        live_bytes = tuple(
            sum(value.bytes for value in lifetimes if value.producer <= step <= value.last_reader)
            for step in range(len(self._steps))
        )
        try:
            shapes = {name: tuple(np.shape(value)) for name, value in self._feed.items()}
            return MemoryUse(lifetimes, live_bytes, Tiler(self._session).run_bytes(shapes))
        except UnpoolError as error:
            return MemoryUse(lifetimes, live_bytes, reason=str(error))


def _describe(value: Any) -> _Description:
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.nbytes
    if isinstance(value, list | tuple):
        return f"sequence of {len(value)}", None, sum(_describe(part)[2] for part in value)
    return type(value).__name__, None, 0


def node_title(operator: str, node: str) -> str:
    """The name of a node with its operator, which many names begin with.

    >>> node_title("MaxPool", "pool_1"), node_title("MaxPool", "MaxPool->y")
    ('MaxPool pool_1', 'MaxPool->y')
    """
    return node if node.startswith(operator) else f"{operator} {node}"


def window_settings(
    node: onnx.NodeProto, opset: int, values: Mapping[str, Any]
) -> Iterator[tuple[str, WindowSettings]]:
    """The window of a MaxPool, MaxUnpool or ConvTranspose along each spatial axis with another window, with a title.

    `opset` is that of the model, and `values` the arrays that the node reads and makes. Other domains give none.
    """
    x, y = values.get(node.input[0]), values.get(node.output[0])
    if domain(node) != "" or x is None or y is None:
        return
    settings, rank = attributes(node), x.ndim - 2
    kernel = settings.get("kernel_shape") or values[node.input[1]].shape[2:]
    pads = settings.get("pads") or [0] * 2 * rank
    is_unpool = node.op_type == "MaxUnpool"
    has_size = len(node.input) > 2 and bool(node.input[2]) if is_unpool else "output_shape" in settings
    seen: set[WindowSettings] = set()
    for axis in range(rank):
        window = WindowSettings(
            operator=node.op_type,
            opset=opset,
            size=x.shape[2 + axis],
            kernel=kernel[axis],
            stride=(settings.get("strides") or [1] * rank)[axis],
            dilation=(settings.get("dilations") or [1] * rank)[axis],
            begin=pads[axis],
            end=pads[axis + rank],
            ceil=bool(settings.get("ceil_mode")),
            auto_pad=(settings.get("auto_pad") or b"NOTSET").decode(),
            output_padding=(settings.get("output_padding") or [0] * rank)[axis],
            output_size=y.shape[2 + axis] if has_size else None,
        )
        if window not in seen:
            seen.add(window)
            yield f"{node_title(node.op_type, node_name(node))}, axis {axis}", window
