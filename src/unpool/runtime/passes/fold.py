"""Folds BatchNormalization, Mul and Add behind a ConvTranspose into its weights and bias, if they act per channel.

    (conv(x, W) + b) * scale + shift  =  conv(x, W * scale) + (b * scale + shift)

Once the graph is cut, onnxruntime cannot do this any more: the ConvTranspose and its followers are in two partitions.
The new weights are computed in float64, and rounded once to the type of the old ones.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

from unpool.runtime.graph.graph import Graph, unused_names
from unpool.runtime.graph.nodes import attributes, node_name
from unpool.runtime.graph.weights import array_of

FIRST_OPSET = 7  # before it, Mul and Add had an axis and BatchNormalization trained by default
FLOATS = ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16")
DEFAULT_EPSILON = 1e-5
Array = np.ndarray[Any, np.dtype[Any]]


class Scaling(NamedTuple):
    """y * scale + shift, both (M,) in float64."""

    scale: Array
    shift: Array


def fold(graph: Graph) -> Graph:
    """The graph with every such BatchNormalization, Mul and Add folded away."""
    if graph.opsets.get("", 0) < FIRST_OPSET:
        return graph
    walk = _FoldPass(graph)
    for node in graph.nodes:
        walk.visit(node)
    return replace(
        graph, nodes=tuple(walk.nodes), constants=walk.constants, folded_nodes=walk.folded, origins=walk.origins
    )


class _FoldPass:
    """One pass over the nodes. `_maker` has, by value, the position of the ConvTranspose that makes it."""

    def __init__(self, graph: Graph) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants = dict(graph.constants)
        self.folded, self.origins = dict(graph.folded_nodes), dict(graph.origins)
        self._names = unused_names(graph)
        self._single = {name for name, count in graph.uses().items() if count == 1} - set(graph.output_names)
        self._maker: dict[str, int] = {}

    def visit(self, node: onnx.NodeProto) -> None:
        """Fold the node into the ConvTranspose before it, or keep it."""
        for side, name in enumerate(node.input[: _data_inputs(node)]):
            if name in self._single and name in self._maker:
                others = [other for place, other in enumerate(node.input) if place != side]
                if self._fold_into(self._maker[name], node, others):
                    return
        if node.op_type == "ConvTranspose" and node.domain == "":
            self._maker[node.output[0]] = len(self.nodes)
        self.nodes.append(node)

    def _fold_into(self, position: int, node: onnx.NodeProto, others: Sequence[str]) -> bool:
        conv = self.nodes[position]
        known = [self._array(name) for name in (*conv.input[1:], *others) if name]
        arrays = [array for array in known if array is not None]
        if len(arrays) < len(known):
            return False
        weights, *rest = arrays
        bias, extra = (rest[0], rest[1:]) if len(known) > 1 + len(others) else (None, rest)
        group = attributes(conv).get("group", 1)
        scaling = _scaling(node, [array.astype(np.float64) for array in extra], weights.shape[1] * group, weights.ndim)
        scaled = None if scaling is None else _scaled(weights, bias, scaling, group)
        if scaled is None:
            return False
        self._replace(position, node, scaled)
        return True

    def _replace(self, position: int, node: onnx.NodeProto, tensors: tuple[Array, Array]) -> None:
        conv = onnx.NodeProto()
        conv.CopyFrom(self.nodes[position])
        old_output, stem = conv.output[0], conv.input[1]
        del conv.input[1:]
        conv.input.extend(self._store(f"{stem}_folded_{part}", one) for part, one in zip("Wb", tensors, strict=True))
        conv.output[0] = node.output[0]
        self.nodes[position] = conv
        self._maker[conv.output[0]] = position
        self.folded[conv.output[0]] = (*self.folded.pop(old_output, ()), node_name(node))
        if old_output in self.origins:
            self.origins[conv.output[0]] = self.origins.pop(old_output)

    def _array(self, name: str) -> Array | None:
        tensor = self.constants.get(name)
        if tensor is None or onnx.TensorProto.DataType.Name(tensor.data_type) not in FLOATS:
            return None
        return array_of(tensor)

    def _store(self, wish: str, array: Array) -> str:
        name = self._names.fresh(wish)
        self.constants[name] = numpy_helper.from_array(array, name)
        return name


def _data_inputs(node: onnx.NodeProto) -> int:
    """Number of the first inputs that may come from the ConvTranspose."""
    if node.domain != "":
        return 0
    return {"BatchNormalization": 1, "Mul": 2, "Add": 2}.get(node.op_type, 0)


def _scaling(node: onnx.NodeProto, constants: Sequence[Array], channels: int, rank: int) -> Scaling | None:
    """Scale and shift of each channel; None if the node does something else."""
    if node.op_type == "BatchNormalization":
        return _normalization(node, constants, channels)
    (constant,) = constants
    per_channel = _per_channel(constant, channels, rank)
    if per_channel is None:
        return None
    if node.op_type == "Mul":
        return Scaling(per_channel, np.zeros(channels))
    return Scaling(np.ones(channels), per_channel)


def _normalization(node: onnx.NodeProto, constants: Sequence[Array], channels: int) -> Scaling | None:
    given = attributes(node)
    trains = given.get("training_mode", 0) or not given.get("spatial", 1)
    if trains or any(node.output[1:]) or any(one.shape != (channels,) for one in constants):
        return None
    scale, shift, mean, variance = constants
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + given.get("epsilon", DEFAULT_EPSILON))
        return Scaling(factor, shift - mean * factor)


def _per_channel(constant: Array, channels: int, rank: int) -> Array | None:
    """A broadcast constant as (M,); None when it varies along another axis or adds axes."""
    if constant.ndim > rank:
        return None
    shape = (1,) * (rank - constant.ndim) + constant.shape
    if shape[1] not in (1, channels) or any(size != 1 for axis, size in enumerate(shape) if axis != 1):
        return None
    return np.broadcast_to(constant.reshape(-1), (channels,))


def _scaled(weights: Array, bias: Array | None, scaling: Scaling, group: int) -> tuple[Array, Array] | None:
    """Weights (C, M/group, k...) and bias (M,) of the folded node; None when rounding them would overflow."""
    inputs, outputs, *window = weights.shape
    factor = scaling.scale.reshape(group, 1, outputs, *(1 for _ in window))
    before = np.zeros(outputs * group) if bias is None else bias.astype(np.float64)
    with np.errstate(all="ignore"):
        wide = weights.reshape(group, inputs // group, outputs, *window).astype(np.float64) * factor
        new_weights = wide.reshape(weights.shape).astype(weights.dtype)
        new_bias = (before * scaling.scale + scaling.shift).astype(weights.dtype)
    is_finite = all(np.isfinite(one.astype(np.float64)).all() for one in (new_weights, new_bias))
    return (new_weights, new_bias) if is_finite else None
