"""Checks that a model fits the sizes that its plan assumes, once for each combination of input shapes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import onnx

from unpool.errors import UnpoolError
from unpool.operators.max_pool import MaxPoolSpec
from unpool.runtime.graph import shapes
from unpool.runtime.graph.graph import Graph
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.graph.shape_inference import infer
from unpool.runtime.plan.placement import shape_difference

MAX_SHAPES = 256  # combinations of input shapes that are kept


class SizeCheck:
    """The MaxPools that onnxruntime runs on inputs of unknown sizes, where it differs for some sizes.

    Args:
        graph: after all passes; its large weights are not needed.
        semantics: of the session.
        pools: the name of the input of each MaxPool, and its spec.
    """

    def __init__(self, graph: Graph, semantics: Semantics, pools: Sequence[tuple[str, MaxPoolSpec]]) -> None:
        self._graph, self._semantics, self._pools = graph, semantics, pools
        self._names = [value.name for value in graph.inputs]
        self._known: dict[tuple[tuple[int, ...] | None, ...], bool] = {}

    def fit(self, values: Mapping[str, Any]) -> bool:
        """True if no pool gives another result for inputs of these shapes; False also where that is not known."""
        found = tuple([getattr(values.get(name), "shape", None) for name in self._names])
        fits = self._known.get(found)
        if fits is None:
            if len(self._known) >= MAX_SHAPES:
                self._known.clear()
            fits = self._known[found] = self._infer(found)
        return fits

    def _infer(self, found: Sequence[tuple[int, ...] | None]) -> bool:
        inputs = []
        for value, shape in zip(self._graph.inputs, found, strict=True):
            element = shapes.element(value.type)
            is_known = shape is not None and element > 0
            type_ = shapes.tensor_type(element, shape) if is_known else value.type
            inputs.append(onnx.ValueInfoProto(name=value.name, type=type_))
        try:
            types = infer(replace(self._graph, inputs=tuple(inputs)), self._semantics).types
        except UnpoolError:
            return False
        dims = [(shapes.static_dims(types.get(name)), spec) for name, spec in self._pools]
        return all(sizes is not None and shape_difference(spec, sizes) is None for sizes, spec in dims)
