"""The body of an If, Loop, Scan or SequenceMap, planned and loaded as a graph of its own."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.runtime.graph import shapes
from unpool.runtime.graph.boundary import failed
from unpool.runtime.graph.record import Graph, dense
from unpool.runtime.graph.shapes import Types
from unpool.runtime.graph.weight_files import array_of
from unpool.runtime.plan.bodies import Body, single_shape
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.runners.loaded_plan import LoadedPlan
from unpool.runtime.runners.schedule import Schedules
from unpool.runtime.runners.stopping import stop_if_told


class LoadedBody:
    """A body that is ready to run; `graph` is the one that was planned, after all passes."""

    def __init__(self, body: Body, graph: Graph, loaded: LoadedPlan) -> None:
        self.steps = loaded.steps
        self.outputs = graph.output_names
        self.single_shapes = [single_shape(value) for value in body.declared]
        self._fed, self._captured = body.fed, body.captured
        self._types = _types_of_outputs(graph, loaded.types)
        self._constants = _constants(graph)
        self._entries = Schedules(loaded).of(self.outputs)

    def run(
        self, fed: Sequence[Any], around: Mapping[str, Any], run_options: onnxruntime.RunOptions | None
    ) -> list[Any]:
        """The outputs in order; one may be, or share memory with, what was fed or captured.

        Args:
            fed: the value of each input.
            around: the values that the body captures, by name; there may be others.
            run_options: of the caller.
        """
        if run_options is not None:
            stop_if_told(run_options)
        values = {name: around[name] for name in self._captured}
        values.update(zip(self._fed, fed, strict=True))
        values.update((name, array.copy()) for name, array in self._constants.items())
        for entry in self._entries:
            try:
                made = entry.loaded.run([values[name] for name in entry.step.inputs], run_options)
            except UnpoolError:
                raise
            except Exception as error:
                raise failed(entry.name, error) from error
            values.update(zip(entry.step.outputs, made, strict=True))
            for name in entry.last_uses:
                del values[name]
        return [values[name] for name in self.outputs]

    def types_for(self, operator: str) -> list[onnx.TypeProto]:
        """The types of the outputs of a node around the body, in order, sizes left out."""
        types = [shapes.without_shape(one) for one in self._types]
        if operator == "SequenceMap":
            return [helper.make_sequence_type_proto(one) for one in types]
        return types[operator == "Loop" :]

    def empty_slices(self, place: int, axis: int) -> AnyArray:
        """The slices of an output of a body that never ran: none; sizes that are not known count as 0."""
        type_ = self._types[place]
        sizes = [size or 0 for size in shapes.sizes(type_) or ()]
        sizes.insert(axis if axis >= 0 else axis + len(sizes) + 1, 0)
        return np.empty(sizes, shapes.dtype(type_) or np.float32)


def _types_of_outputs(graph: Graph, types: Types) -> list[onnx.TypeProto]:
    """The types of the outputs: as inferred, or else as declared."""
    return [types.get(value.name, value.type) for value in graph.outputs]


def _constants(graph: Graph) -> dict[str, AnyArray]:
    """The outputs that are constants."""
    names = graph.output_names
    found = {name: array_of(graph.constants[name]) for name in names if name in graph.constants}
    return found | {name: dense(graph.sparse_constants[name]) for name in names if name in graph.sparse_constants}
