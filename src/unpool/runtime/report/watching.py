"""Runs a model step by step, and notes what a report says about the steps."""

from collections.abc import Mapping
from typing import Any

import onnx

from unpool.dtypes import AnyArray
from unpool.runtime.graph.load import ModelSource, load
from unpool.runtime.graph.nodes import is_unpool_op, reads
from unpool.runtime.graph.weight_files import array_of
from unpool.runtime.report.accuracy import Judge, StepAccuracy
from unpool.runtime.report.drawing import Settings
from unpool.runtime.report.maps import MapPair, map_pair
from unpool.runtime.report.memory import Ledger, Memory, forecast
from unpool.runtime.report.presets import presets_of
from unpool.runtime.session.inspect import PreparedGraph, executor_of, prepared_graph
from unpool.runtime.session.session import InferenceSession

Feed = Mapping[str, Any]

CONVOLUTIONS = ("ConvTranspose", "Conv")


class Seen:
    """What is found while a model runs step by step.

    Args:
        session: of the model.
        source: of the model.
        feed: an array for every input.

    Attributes:
        plan: which node runs where.
        opsets: version by domain.
        accuracy: of every step, if it was judged.
        maps: feature maps of poolings and unpoolings that unpool ran.
        windows: of what unpool ran, by name.
    """

    def __init__(self, session: InferenceSession, source: ModelSource, feed: Feed) -> None:
        self._loaded = loaded = executor_of(session)
        self._session, self._feed = session, feed
        self._prepared: PreparedGraph = prepared_graph(session)
        nodes = [node for node in load(source).graph.node if node.input]
        self._read_by = {kind: {node.input[0] for node in nodes if node.op_type == kind} for kind in CONVOLUTIONS}
        self.plan = loaded.plan
        self.opsets = dict(self._prepared.graph.opsets)
        self.accuracy: list[StepAccuracy] = []
        self.maps: list[MapPair] = []
        self.windows: list[tuple[str, Settings]] = []
        self._ledger = Ledger(feed)
        self._outputs = [value.name for value in session.get_outputs()]
        self._judge: Judge | None = None

    def judge(self, threads: int | None) -> None:
        """Have every step evaluated once more, with so many threads at most."""
        self._judge = Judge(self._prepared, self._loaded.types, threads)

    def run(self) -> None:
        """Run the model once."""
        for ran in self._loaded.trace(self._feed):
            self._ledger.note(ran.inputs, ran.outputs)
            if self._judge is not None:
                self.accuracy.append(self._judge.accuracy(ran))
            node = self._prepared.graph.nodes[ran.entry.step.nodes[0]]
            if ran.entry.step.runner == "unpool" and is_unpool_op(node):
                values = {**self._constants(node), **ran.inputs, **ran.outputs}
                pair = map_pair(ran, self._prepared, values)
                self.maps += [] if pair is None else [pair]
                if not self._is_turned(node):
                    self.windows += presets_of(node, self.opsets[""], values)

    def _is_turned(self, node: onnx.NodeProto) -> bool:
        """Whether a ConvTranspose stands for a Conv of the model."""
        own, other = (node.input[0] in self._read_by[kind] for kind in CONVOLUTIONS)
        return node.op_type == "ConvTranspose" and other and not own

    def _constants(self, node: onnx.NodeProto) -> dict[str, AnyArray]:
        constants = self._prepared.graph.constants
        return {name: array_of(constants[name]) for name in reads(node) if name in constants}

    def memory(self) -> Memory:
        """What the values take."""
        return self._ledger.memory(self._outputs, *forecast(self._session, self._feed))
