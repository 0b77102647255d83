"""A run of a model node by node, and the facts about its nodes, values, windows and memory."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from unpool.errors import UnpoolError
from unpool.graph.load import ModelSource, load
from unpool.graph.nodes import attributes, domain, node_name, operator_version, reads, with_subgraph_nodes
from unpool.graph.shape_inference import PreparedGraph
from unpool.graph.weights import array_of
from unpool.onnxruntime.session import InferenceSession
from unpool.operators.contract import OPERATORS
from unpool.operators.unpool_domain import DOMAIN
from unpool.runtime.report.accuracy import NodeAccuracy, check_accuracy
from unpool.runtime.report.feature_maps import MapPair, map_pair
from unpool.runtime.report.window_drawing import WindowSettings
from unpool.runtime.runtimes import Feed
from unpool.runtime.tiles.tiler import Tiler
from unpool.runtime.trace import runner_by_domain, trace

MODEL_INPUT = -1  # the producer of the inputs of the model


@dataclass(frozen=True)
class NodeRow:
    """A node of the model after all passes: who computes it, and why that is not onnxruntime."""

    node: str
    operator: str  # with its version
    runner: str
    reason: str


@dataclass(frozen=True)
class ValueLifetime:
    """A value that a node makes, and the positions of the nodes that make and last read it: `MODEL_INPUT` makes an
    input, and the last node of all reads an output.
    """

    name: str
    type: str
    shape: tuple[int, ...] | None
    bytes: int
    producer: int
    last_reader: int


@dataclass(frozen=True)
class MemoryUse:
    """The values of a run as they are made, and by node, the bytes of those that are alive, its outputs included.

    `peak_bytes` forecasts the peak of a whole run, without inputs and session; None, with the reason, where that fails.
    """

    values: tuple[ValueLifetime, ...]
    live_bytes: tuple[int, ...]
    peak_bytes: int | None = None
    reason: str = ""


class Tracer:
    """Runs a model node by node, and collects facts."""

    def __init__(self, session: InferenceSession, source: ModelSource, feed: Feed) -> None:
        self._session, self._feed = session, feed
        self.prepared: PreparedGraph = session.prepared_graph(has_own_nodes=True)
        nodes = [node for node in load(source).graph.node if node.input]
        self._conv_inputs = {node.input[0] for node in nodes if node.op_type == "Conv"}
        self._conv_inputs -= {node.input[0] for node in nodes if node.op_type == "ConvTranspose"}
        self.opsets = {name: version for name, version in self.prepared.graph.opsets.items() if name != DOMAIN}
        self.accuracy: list[NodeAccuracy] = []
        self.maps: list[MapPair] = []
        self.windows: list[tuple[str, WindowSettings]] = []
        self._values = {name: (MODEL_INPUT, *describe(value)) for name, value in feed.items()}
        self._last_readers, self._count = dict[str, int](), 0

    @property
    def rows(self) -> list[NodeRow]:
        """All nodes of the model after its passes, each before those in its subgraphs."""
        placed = {row.node: row for row in self._session.plan}
        rows = []
        for node in with_subgraph_nodes(self.prepared.graph.nodes):
            found, name = placed.get(node_name(node)), node_name(node)
            if found is None:
                rows.append(NodeRow(name, operator_version(node, self.opsets), runner_by_domain(node), ""))
            else:
                rows.append(NodeRow(name, found.operator_version, found.runner, found.text))
        return rows

    def run(self, threads: int | None, *, checks_accuracy: bool) -> None:
        """Run the model once, and check the accuracy of every node."""
        for each in trace(self._session, self._feed):
            self._last_readers |= dict.fromkeys(each.inputs, self._count)
            self._values |= {name: (self._count, *describe(value)) for name, value in each.outputs.items()}
            self._count += 1
            node, semantics = each.node, self.prepared.semantics_of(each.node)
            if checks_accuracy:
                self.accuracy.append(check_accuracy(each, semantics, threads))
            if node.op_type in OPERATORS and domain(node) in ("", DOMAIN):
                constants = self.prepared.graph.constants
                own = {name: array_of(constants[name]) for name in reads(node) if name in constants}
                values = {**own, **each.inputs, **each.outputs}
                pair = map_pair(node, self.prepared, values)
                self.maps += [] if pair is None else [pair]
                if node.op_type != "ConvTranspose" or node.input[0] not in self._conv_inputs:
                    self.windows += _window_settings(node, self.opsets[""], values)

    def memory(self, layout: str) -> MemoryUse:
        """The memory of the run; `layout` is the layout of the inputs."""
        outputs = dict.fromkeys((value.name for value in self._session.get_outputs()), max(self._count - 1, 0))
        last_readers = {**self._last_readers, **outputs}
        lifetimes = tuple(
            ValueLifetime(name, kind, shape, size, producer, last_readers.get(name, producer))
            for name, (producer, kind, shape, size) in self._values.items()
        )
        live_bytes = tuple(
            sum(value.bytes for value in lifetimes if value.producer <= place <= value.last_reader)
            for place in range(self._count)
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
    """The distinct windows along the spatial axes of a node, each with a title."""
    x, y = values.get(node.input[0]), values.get(node.output[0])
    if x is None or y is None:
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
