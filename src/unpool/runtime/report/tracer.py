"""A run of a model step by step, and the facts about its steps, values, windows and memory."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from unpool.errors import UnpoolError
from unpool.runtime.graph.load import ModelSource, load
from unpool.runtime.graph.nodes import attributes, domain, is_unpool_op, node_name, reads
from unpool.runtime.graph.shape_inference import PreparedGraph
from unpool.runtime.graph.weights import array_of
from unpool.runtime.report.accuracy import AccuracyChecker, StepAccuracy
from unpool.runtime.report.feature_maps import MapPair, map_pair
from unpool.runtime.report.window_drawing import WindowSettings
from unpool.runtime.session.session import InferenceSession, executor_of
from unpool.runtime.tiles.tiler import Tiler

Feed = Mapping[str, Any]

MODEL_INPUT = -1  # the producer of the inputs of the model


@dataclass(frozen=True)
class ValueLifetime:
    """A value that one step hands to another, or to the caller, and the positions of the steps that make and last read
    it: `MODEL_INPUT` makes an input, and the last step of all reads an output.
    """

    name: str
    type: str
    shape: tuple[int, ...] | None
    bytes: int
    producer: int
    last_reader: int


@dataclass(frozen=True)
class MemoryUse:
    """The values of a run as they are made, and by step, the bytes of those that are alive, its outputs included.

    `peak_bytes` forecasts the peak of a whole run, with the values inside of partitions, without inputs and session;
    None, with the reason, where that fails.
    """

    values: tuple[ValueLifetime, ...]
    live_bytes: tuple[int, ...]
    peak_bytes: int | None = None
    reason: str = ""


class StepTracer:
    """Runs a model step by step, and collects facts; feature maps and windows are those of nodes that unpool ran."""

    def __init__(self, session: InferenceSession, source: ModelSource, feed: Feed) -> None:
        self._session, self._feed, self._executor = session, feed, executor_of(session)
        self.prepared: PreparedGraph = session.prepared_graph()
        nodes = [node for node in load(source).graph.node if node.input]
        self._conv_inputs = {node.input[0] for node in nodes if node.op_type == "Conv"}
        self._conv_inputs -= {node.input[0] for node in nodes if node.op_type == "ConvTranspose"}
        self.plan = self._executor.plan
        self.opsets = dict(self.prepared.graph.opsets)
        self.accuracy: list[StepAccuracy] = []
        self.maps: list[MapPair] = []
        self.windows: list[tuple[str, WindowSettings]] = []
        self._values = {name: (MODEL_INPUT, *describe(value)) for name, value in feed.items()}
        self._last_readers, self._count = dict[str, int](), 0

    def run(self, checker: AccuracyChecker | None = None) -> None:
        """Run the model once, and check every step."""
        for trace in self._executor.trace(self._feed):
            self._last_readers |= dict.fromkeys(trace.inputs, self._count)
            self._values |= {name: (self._count, *describe(value)) for name, value in trace.outputs.items()}
            self._count += 1
            if checker is not None:
                self.accuracy.append(checker.check(trace))
            node = self.prepared.graph.nodes[trace.entry.step.nodes[0]]
            if trace.entry.step.runner == "unpool" and is_unpool_op(node):
                constants = self.prepared.graph.constants
                own = {name: array_of(constants[name]) for name in reads(node) if name in constants}
                values = {**own, **trace.inputs, **trace.outputs}
                pair = map_pair(node, self.prepared, values)
                self.maps += [] if pair is None else [pair]
                if node.op_type != "ConvTranspose" or node.input[0] not in self._conv_inputs:
                    self.windows += _window_settings(node, self.opsets[""], values)

    def memory(self, layout: str) -> MemoryUse:
        """The memory of the run; `layout` is that of the inputs."""
        outputs = dict.fromkeys((value.name for value in self._session.get_outputs()), max(self._count - 1, 0))
        last_readers = {**self._last_readers, **outputs}
        lifetimes = tuple(
            ValueLifetime(name, kind, shape, size, producer, last_readers.get(name, producer))
            for name, (producer, kind, shape, size) in self._values.items()
        )
        live_bytes = tuple(
            sum(value.bytes for value in lifetimes if value.producer <= step <= value.last_reader)
            for step in range(self._count)
        )
        shapes = {value.name: value.shape for value in lifetimes if value.producer < 0 and value.shape is not None}
        try:
            return MemoryUse(lifetimes, live_bytes, Tiler(self._session, layout=layout).run_bytes(shapes))
        except UnpoolError as error:
            return MemoryUse(lifetimes, live_bytes, reason=str(error))


def describe(value: Any) -> tuple[str, tuple[int, ...] | None, int]:
    """The type, the shape and the bytes of a value; the shape is None for anything but an array."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.nbytes
    if isinstance(value, list | tuple):
        return f"sequence of {len(value)}", None, sum(describe(part)[2] for part in value)
    return type(value).__name__, None, 0


def node_title(node: str, operator: str) -> str:
    """The name of a node with its operator, which many names begin with.

    >>> node_title("pool_1", "MaxPool"), node_title("MaxPool->y", "MaxPool")
    ('MaxPool pool_1', 'MaxPool->y')
    """
    return node if node.startswith(operator) else f"{operator} {node}"


def _window_settings(
    node: onnx.NodeProto, opset: int, values: Mapping[str, Any]
) -> Iterator[tuple[str, WindowSettings]]:
    """The distinct windows along the spatial axes of a node of ONNX's domain, each with a title."""
    x, y = values.get(node.input[0]), values.get(node.output[0])
    if domain(node) != "" or x is None or y is None:
        return
    settings, rank = attributes(node), x.ndim - 2
    ones, zeros = [1] * rank, [0] * 2 * rank
    kernel, pads = settings.get("kernel_shape") or values[node.input[1]].shape[2:], settings.get("pads") or zeros
    has_size = "output_shape" in settings or (node.op_type == "MaxUnpool" and any(node.input[2:]))
    windows: dict[WindowSettings, int] = {}
    for axis in range(rank):
        window = WindowSettings(
            operator=node.op_type,
            opset=opset,
            size=x.shape[2 + axis],
            kernel=kernel[axis],
            stride=(settings.get("strides") or ones)[axis],
            dilation=(settings.get("dilations") or ones)[axis],
            begin=pads[axis],
            end=pads[axis + rank],
            ceil=bool(settings.get("ceil_mode")),
            auto_pad=(settings.get("auto_pad") or b"NOTSET").decode(),
            output_padding=(settings.get("output_padding") or zeros)[axis],
            output_size=y.shape[2 + axis] if has_size else None,
        )
        windows.setdefault(window, axis)
    for window, axis in windows.items():
        yield f"{node_title(node_name(node), node.op_type)}, axis {axis}", window
