"""An InstanceNormalization or GroupNormalization, an Add and the activation after it become one step of unpool.

onnxruntime computes an InstanceNormalization in passes over memory that the activation after it repeats, and runs a
group normalization as exporters write it:

    Reshape (N, G, -1) -> InstanceNormalization -> Reshape back -> Mul and Add per channel

A step of unpool reads a group of channels once for its mean and variance, and writes it while it is in the cache.

The results of onnxruntime and unpool differ by rounding: normalized values by at most (m + 4) * 2**-22 times their
magnitude or 1, where the mean is m times the standard deviation, sqrt(variance + epsilon). onnxruntime loses the digits
of a large mean, unpool does not. So a normalization on which the indices of a MaxPool depend
stays, as a Conv does (`convert_conv.py`).
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from unpool.dtypes import AnyArray
from unpool.graph import shapes
from unpool.graph.graph import Graph, unused_names
from unpool.graph.nodes import attributes, domain, node_name
from unpool.graph.shapes import Types
from unpool.operators.attributes import Activation
from unpool.operators.normalization import SIMPLE_ACTIVATIONS
from unpool.operators.unpool_domain import DOMAIN, VERSION
from unpool.passes.fuse_conv_transpose import DEFAULT_EPSILON, activation_attributes, node_activation
from unpool.passes.neighbours import Neighbours

LEAST_SIZE = 50_000  # elements that are worth a step: it takes some 50 microseconds, and each element 1 ns less
FIRST_SCALE_PER_CHANNEL = 21
OPERATORS = ("InstanceNormalization", "GroupNormalization")


@dataclass(frozen=True)
class _Match:
    """Nodes that compute one normalization, by position, in order."""

    positions: tuple[int, ...]
    main: int  # position of the node that the others are folded into
    inputs: tuple[str, ...]  # x and, if one is added, the residual
    groups: int
    epsilon: float
    scale: AnyArray  # (C,)
    shift: AnyArray  # (C,)
    activation: Activation | None


def fuse_normalization(graph: Graph, types: Types, excluded: Collection[str] = ()) -> Graph:
    """The graph, constants lifted, with every large normalization as one node of unpool's domain.

    One that makes one of the `excluded` values stays.
    """
    if not any(node.op_type in OPERATORS for node in graph.nodes):
        return graph
    finder, names = _Finder(graph, types), unused_names(graph)
    nodes: dict[int, onnx.NodeProto] = dict(enumerate(graph.nodes))
    constants, folded = dict(graph.constants), dict(graph.folded_nodes)
    for position, node in enumerate(graph.nodes):
        match = finder.match(position) if node.op_type in OPERATORS and domain(node) == "" else None
        if match is None or not finder.taken.isdisjoint(match.positions):
            continue
        output = graph.nodes[match.positions[-1]].output[0]
        if output in excluded or not finder.is_large(match.inputs[0]):
            continue
        for place in match.positions:
            del nodes[place]
        finder.taken.update(match.positions)
        x, *inputs = match.inputs
        for array, word in ((match.shift, "shift"), (match.scale, "scale")):
            inputs.insert(0, names.fresh(f"{output}_{word}"))
            constants[inputs[0]] = numpy_helper.from_array(array, inputs[0])
        nodes[match.positions[-1]] = _own_node(match, node_name(node), [x, *inputs], output)
        others = [node_name(graph.nodes[place]) for place in match.positions if place != match.main]
        if others:
            folded[output] = tuple(others)
    in_order = tuple(nodes[position] for position in sorted(nodes))
    opsets = {**graph.opsets, DOMAIN: VERSION}
    return replace(graph, nodes=in_order, constants=constants, folded_nodes=folded, opsets=opsets)


def _own_node(match: _Match, name: str, inputs: Sequence[str], output: str) -> onnx.NodeProto:
    given: dict[str, Any] = {"epsilon": match.epsilon}
    given |= {} if match.activation is None else activation_attributes(match.activation)
    if match.groups == match.scale.size:
        return helper.make_node("InstanceNormalization", inputs, [output], name, domain=DOMAIN, **given)
    given["num_groups"] = match.groups
    return helper.make_node("GroupNormalization", inputs, [output], name, domain=DOMAIN, **given)


class _Finder(Neighbours):
    """Finds normalizations in a graph."""

    def is_large(self, x: str) -> bool:
        """True if a value has enough elements; a size that is not known counts as large."""
        sizes = shapes.static_dims(self.types.get(x)) or (None,)
        return None in sizes or math.prod(size for size in sizes if size is not None) >= LEAST_SIZE

    @property
    def _has_scale_per_channel(self) -> bool:
        """True for a GroupNormalization of this opset; in earlier ones a scale is that of a group."""
        return self.graph.opsets.get("", 0) >= FIRST_SCALE_PER_CHANNEL

    def match(self, position: int) -> _Match | None:
        """The normalization around a node; None for an input of another type, or scales that are not constant."""
        node = self.graph.nodes[position]
        constants = [self.array(name) for name in node.input[1:3]]
        if len(constants) < 2 or any(array is None or array.dtype != np.float32 for array in constants):
            return None
        scale, shift = (array for array in constants if array is not None)
        groups = attributes(node).get("num_groups", scale.size)
        before = self.makers.get(node.input[0])
        if node.op_type == "InstanceNormalization" and before is not None and node.input[0] in self.single:
            decomposed = self._match_groups(before, position, scale, shift)
            if decomposed is not None:
                return decomposed
        sizes = shapes.static_dims(self.types.get(node.input[0]))
        if sizes is None or len(sizes) < 3 or not groups:
            return None
        if scale.size % groups or sizes[1] not in (None, scale.size):
            return None
        if sizes[1] is None and node.op_type == "GroupNormalization" and not self._has_scale_per_channel:
            return None
        return self._with_activation((position,), position, node.input[0], groups, scale, shift)

    def _match_groups(self, before: int, position: int, scale: AnyArray, shift: AnyArray) -> _Match | None:
        """The normalization of groups between two Reshape nodes."""
        first, node = self.graph.nodes[before], self.graph.nodes[position]
        after = self.next(node.output[0], "Reshape")
        x, groups = first.input[0], scale.size
        sizes = shapes.static_dims(self.types.get(x))
        if first.op_type != "Reshape" or domain(first) or after is None or sizes is None or len(sizes) < 3:
            return None
        channels = sizes[1]
        if channels is None or channels % groups or not self._splits_groups(first, sizes, groups):
            return None
        if not self._restores(self.graph.nodes[after], x, sizes) or (scale != 1).any() or (shift != 0).any():
            return None
        positions, scale, shift = (
            [before, position, after],
            np.ones(channels, np.float32),
            np.zeros(channels, np.float32),
        )
        for operator in ("Mul", "Add"):
            output = self.graph.nodes[positions[-1]].output[0]
            place = self.next(output, operator)
            array = None if place is None else self.per_channel(self.graph.nodes[place], output, len(sizes), channels)
            if place is None or array is None:
                continue
            scale, shift = (array, shift) if operator == "Mul" else (scale, array)
            positions.append(place)
        return self._with_activation(tuple(positions), position, x, groups, scale, shift)

    def _with_activation(
        self, positions: tuple[int, ...], main: int, x: str, groups: int, scale: AnyArray, shift: AnyArray
    ) -> _Match | None:
        if shapes.dtype(self.types.get(x)) != np.float32 or scale.shape != shift.shape or not x:
            return None
        epsilon = attributes(self.graph.nodes[main]).get("epsilon", DEFAULT_EPSILON)
        if not epsilon > 0:
            return None  # equal numbers are then 0 / 0, of which onnxruntime makes anything
        inputs: tuple[str, ...] = (x,)
        activation, output = None, self.graph.nodes[positions[-1]].output[0]
        place = self.next(output, "Add")
        residual = "" if place is None else self._residual(self.graph.nodes[place], output, x)
        if place is not None and residual:
            positions, inputs, output = (*positions, place), (x, residual), self.graph.nodes[place].output[0]
        place = self.next(output)
        if place is not None:
            activation = node_activation(self.graph.nodes[place], self.graph)
            if activation is None or self.graph.nodes[place].input[0] != output or not _is_simple(activation):
                activation = None
            else:
                positions = (*positions, place)
        return _Match(positions, main, inputs, groups, float(epsilon), scale, shift, activation)

    def _splits_groups(self, node: onnx.NodeProto, sizes: Sequence[int | None], groups: int) -> bool:
        """True if a Reshape makes (N, groups, rest) of a value of these sizes."""
        target = self.array(node.input[1])
        if target is None or target.size != 3 or attributes(node).get("allowzero", 0) or target[1] != groups:
            return False
        is_batch = target[0] == 0 or (sizes[0] is not None and target[0] == sizes[0])
        rest = math.prod(size for size in sizes[1:] if size is not None) // groups if None not in sizes[1:] else None
        return bool(is_batch and target[2] in (-1, rest))

    def _restores(self, node: onnx.NodeProto, x: str, sizes: Sequence[int | None]) -> bool:
        """True if a Reshape gives the shape of `x` again."""
        maker = self.makers.get(node.input[1])
        if maker is not None:
            shape = self.graph.nodes[maker]
            if shape.op_type == "Shape" and not shape.attribute and shape.input[0] == x:
                return True
        return None not in sizes and shapes.static_dims(self.types.get(node.output[0])) == tuple(sizes)

    def _residual(self, node: onnx.NodeProto, value: str, x: str) -> str:
        """What an Add adds to a value, if that has the type and shape of `x` in every run; otherwise ""."""
        (other,) = [name for name in node.input if name != value] or [""]
        sizes = shapes.static_dims(self.types.get(other))
        is_like = sizes is not None and None not in sizes and sizes == shapes.static_dims(self.types.get(x))
        is_value = other not in self.graph.constants and other not in self.graph.sparse_constants
        return other if is_like and is_value and shapes.dtype(self.types.get(other)) == np.float32 else ""


def _is_simple(activation: Activation) -> bool:
    return activation.name in SIMPLE_ACTIVATIONS and not any(map(math.isnan, activation.params))
