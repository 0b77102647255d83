"""Nodes after a ConvTranspose become part of it, as onnxruntime does for a Conv.

BatchNormalization, Mul and Add that act per channel are folded into weights and bias. The new weights are computed in
float64, and rounded once to the type of the old ones:

    (conv(x, W) + b) * scale + shift  =  conv(x, W * scale) + (b * scale + shift)

With n products per element, results differ by at most (2 * n + 8) * u times n * |x| * |W * scale| + |b * scale| +
|shift|, each the largest of its channel; u is half an ulp of 1, 2**-24 in float32. The sign of zero may be another, and
what overflowed before the scale may be finite. A node stays where new weights or a new bias would overflow, or all
weights of a channel would be subnormal.

An activation, as in Relu(conv(x, W) + b), is applied by the same node, which saves a pass over memory. It gives the
bits of onnxruntime.
"""

import math
from collections.abc import Container, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import starmap
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

from unpool.dtypes import AnyArray
from unpool.graph import shapes
from unpool.graph.graph import Graph, unused_names
from unpool.graph.nodes import attributes, domain, node_name
from unpool.graph.shapes import Types
from unpool.graph.weights import array_of
from unpool.operators.attributes import ACTIVATION_PARAMS, Activation
from unpool.operators.unpool_domain import DOMAIN, VERSION

FIRST_OPSET = 7  # before it, Mul and Add had an axis and BatchNormalization trained by default
FIRST_CLIP_WITH_INPUTS = 11
FLOATS = ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16")
DEFAULT_EPSILON = 1e-5
ACTIVATIONS = ("Relu", "LeakyRelu", "Clip", "HardSigmoid", "HardSwish")
"""Those that a ConvTranspose takes; a Tanh or Sigmoid is faster as a node of onnxruntime."""
DATA_INPUTS = {"BatchNormalization": 1, "Mul": 2, "Add": 2}  # first inputs that may come from the ConvTranspose
DEFAULTS = {"LeakyRelu": {"alpha": 0.01}, "HardSigmoid": {"alpha": 0.2, "beta": 0.5}}


class _Fusion:
    """The nodes written so far; `conv_of` has by value the position of the ConvTranspose that makes it."""

    def __init__(self, graph: Graph, outputs: Container[str] | None = None) -> None:
        self._outputs = outputs
        self._graph, self._folded, self._origins = graph, dict(graph.folded_nodes), dict(graph.origins)
        self.nodes: list[onnx.NodeProto] = []
        self.conv_of: dict[str, int] = {}
        self.single = {name for name, count in graph.uses().items() if count == 1} - set(graph.output_names)

    def keep(self, node: onnx.NodeProto) -> None:
        is_taken = self._outputs is None or node.output[0] in self._outputs
        if node.op_type == "ConvTranspose" and domain(node) == "" and is_taken:
            self.conv_of[node.output[0]] = len(self.nodes)
        self.nodes.append(node)

    def absorb(self, position: int, node: onnx.NodeProto) -> onnx.NodeProto:
        """Put a copy of the ConvTranspose at a position into the place of a node after it, and return the copy."""
        conv = deepcopy(self.nodes[position])
        source, conv.output[0] = conv.output[0], node.output[0]
        self.nodes[position] = conv
        self._folded[conv.output[0]] = (*self._folded.pop(source, ()), node_name(node))
        if source in self._origins:
            self._origins[conv.output[0]] = self._origins.pop(source)
        return conv

    def result(self, **changes: Any) -> Graph:
        changes |= {"nodes": tuple(self.nodes), "folded_nodes": self._folded, "origins": self._origins}
        return replace(self._graph, **changes)


def fold(graph: Graph) -> Graph:
    """The graph with every such BatchNormalization, Mul and Add folded into the ConvTranspose before it."""
    if graph.opsets.get("", 0) < FIRST_OPSET:
        return graph
    fusion, constants, names = _Fusion(graph), dict(graph.constants), unused_names(graph)

    def fold_into(position: int, node: onnx.NodeProto, others: Sequence[str]) -> bool:
        conv = fusion.nodes[position]
        tensors = [constants.get(name) for name in (*conv.input[1:], *others) if name]
        if any(tensor is None or onnx.TensorProto.DataType.Name(tensor.data_type) not in FLOATS for tensor in tensors):
            return False
        weights, *arrays = [array_of(tensor) for tensor in tensors if tensor is not None]
        bias = arrays.pop(0) if len(arrays) > len(others) else None
        group = attributes(conv).get("group", 1)
        wide = [array.astype(np.float64) for array in arrays]
        scaling = _scaling(node, wide, weights.shape[1] * group, weights.ndim)
        scaled = None if scaling is None else _scaled(weights, bias, scaling, group)
        if scaled is None:
            return False
        stem, new = conv.input[1], fusion.absorb(position, node)
        fusion.conv_of[new.output[0]] = position
        del new.input[1:]
        for part, array in zip("Wb", scaled, strict=True):
            name = names.fresh(f"{stem}_folded_{part}")
            constants[name] = numpy_helper.from_array(array, name)
            new.input.append(name)
        return True

    for node in graph.nodes:
        for side, name in enumerate(node.input[: DATA_INPUTS.get(node.op_type, 0) if domain(node) == "" else 0]):
            others = [*node.input[:side], *node.input[side + 1 :]]
            if name in fusion.single and name in fusion.conv_of and fold_into(fusion.conv_of[name], node, others):
                break
        else:
            fusion.keep(node)
    return fusion.result(constants=constants)


Scaling: TypeAlias = tuple[AnyArray, AnyArray]  # `scale` and `shift` of y * scale + shift, both (M,) in float64


def _scaling(node: onnx.NodeProto, constants: Sequence[AnyArray], channels: int, rank: int) -> Scaling | None:
    """Scale and shift of each channel; None if the node does something else."""
    if node.op_type == "BatchNormalization":
        given = attributes(node)
        trains = given.get("training_mode", 0) or not given.get("spatial", 1)
        if trains or any(node.output[1:]) or any(array.shape != (channels,) for array in constants):
            return None
        scale, shift, mean, variance = constants
        with np.errstate(all="ignore"):
            factor = scale / np.sqrt(variance + given.get("epsilon", DEFAULT_EPSILON))
            return factor, shift - mean * factor
    (constant,) = constants
    shape = (1,) * (rank - constant.ndim) + constant.shape
    if len(shape) > rank or shape[1] not in (1, channels) or any(size != 1 for size in (*shape[:1], *shape[2:])):
        return None
    per_channel = np.broadcast_to(constant.reshape(-1), (channels,))
    return (per_channel, np.zeros(channels)) if node.op_type == "Mul" else (np.ones(channels), per_channel)


def _scaled(weights: AnyArray, bias: AnyArray | None, scaling: Scaling, group: int) -> tuple[AnyArray, AnyArray] | None:
    """Weights (C, M/group, k...) and bias (M,) of the folded node; None where rounding would lose more than an ulp.

    An infinite number does so, and a channel with no weight, and no bias, that is a normal number: where one is, those
    below it are exact to half an ulp of the smallest normal number.
    """
    inputs, outputs, *window = weights.shape
    scale, shift = scaling
    factor = scale.reshape(group, 1, outputs, *(1 for _ in window))
    before = np.zeros(outputs * group) if bias is None else bias.astype(np.float64)
    with np.errstate(all="ignore"):
        wide = weights.reshape(group, inputs // group, outputs, *window).astype(np.float64) * factor
        new_weights = wide.reshape(weights.shape).astype(weights.dtype)
        new_bias = (before * scale + shift).astype(weights.dtype)
    rounded, sums = new_weights.astype(np.float64), new_bias.astype(np.float64)
    if not (np.isfinite(rounded).all() and np.isfinite(sums).all()):
        return None
    per_channel = tuple(axis for axis in range(wide.ndim) if axis not in (0, 2))
    largest, exact = (np.abs(array).max(per_channel, initial=0) for array in (rounded.reshape(wide.shape), wide))
    smallest = float(ml_dtypes.finfo(weights.dtype).smallest_normal)  # type: ignore[no-untyped-call]
    is_lost = (exact > 0) & (largest < smallest)
    return None if is_lost.any() else (new_weights, new_bias)


def fuse(graph: Graph, types: Types, outputs: Container[str]) -> Graph:
    """The graph in which ConvTransposes that make these outputs are nodes of unpool's domain with their activations.

    Only float32 and float64: a shorter type would be rounded once where the model rounds twice.
    """
    if graph.opsets.get("", 0) < FIRST_OPSET:
        return graph
    fusion = _Fusion(graph, outputs)
    floats = {name for name in fusion.single if shapes.dtype(types.get(name)) in (np.float32, np.float64)}
    for node in graph.nodes:
        source = next(iter(node.input), "")
        activation = node_activation(node, graph) if source in floats and source in fusion.conv_of else None
        if activation is None or activation.name not in ACTIVATIONS:
            fusion.keep(node)
        else:
            conv = fusion.absorb(fusion.conv_of[source], node)
            conv.domain = DOMAIN
            given = {"opset": graph.opsets[""], **activation_attributes(activation)}
            conv.attribute.extend(starmap(helper.make_attribute, given.items()))
    return fusion.result(opsets={**graph.opsets, DOMAIN: VERSION})


def activation_attributes(activation: Activation) -> dict[str, Any]:
    """The attributes of a node of unpool's domain that ends with an activation."""
    params = {"activation_params": list(activation.params)} if activation.params else {}
    return {"activation": activation.name, **params}


def node_activation(node: onnx.NodeProto, graph: Graph) -> Activation | None:
    """Activation of the node; None for any other node, or bounds that are not constant, or no numbers."""
    if domain(node) != "" or node.op_type not in ACTIVATION_PARAMS:
        return None
    given = DEFAULTS.get(node.op_type, {}) | attributes(node)
    if node.op_type == "Clip" and graph.opsets[""] >= FIRST_CLIP_WITH_INPUTS:
        bounds = zip(("min", "max"), node.input[1:], strict=False)
        given = {word: array_of(graph.constants[name]).item() for word, name in bounds if name in graph.constants}
    if not all(name in given for name in ACTIVATION_PARAMS[node.op_type]):
        return None
    params = tuple(float(given[name]) for name in ACTIVATION_PARAMS[node.op_type])
    return None if any(map(math.isnan, params)) else Activation(node.op_type, params)
