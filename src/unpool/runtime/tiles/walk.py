"""A walk over a graph for inputs of given shapes, which records how every value depends on the tiled inputs.

A value that depends on them is a field: some of its axes are spatial axes of the image. Any other value is equal for
every tile. Numbers that depend on sizes alone, such as those of Shape, are computed during the walk.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
import onnx

from unpool.errors import ShapeError, UnpoolError, UnsupportedError, suggest_name
from unpool.graph.errors import short_message
from unpool.graph.graph import Graph, evaluate_outputs
from unpool.graph.nodes import domain, node_name, reads, subgraph_nodes
from unpool.graph.operators import OperatorFact, having
from unpool.graph.shapes import Types, known_sizes
from unpool.graph.weights import LARGE, array_of, is_large
from unpool.operators.semantics import Semantics
from unpool.runtime.tiles.links import Edge, Link, Strides

Shape: TypeAlias = tuple[int, ...]
Axes: TypeAlias = tuple[int | None, ...]
Links: TypeAlias = Mapping[int, Link]
Numbers: TypeAlias = np.ndarray[Any, Any]

SAME = Link()
LAYOUTS = ("NCHW", "NHWC")
_RANDOM = having(OperatorFact.RANDOM)
_SHAPE_INPUT = {"ConstantOfShape": 0, "Expand": 1}  # the input of an operator that is the shape of a filled tensor


@dataclass(frozen=True, slots=True)
class Field:
    """The shape of a value, and the spatial axis of the image that each of its axes is; None for other axes."""

    shape: Shape
    axes: Axes

    def sizes(self) -> dict[int, int]:
        """Elements by spatial axis."""
        return {axis: size for axis, size in zip(self.axes, self.shape, strict=True) if axis is not None}

    def with_size(self, place: int, size: int) -> "Field":
        """A field with another number of elements along one axis."""
        return Field((*self.shape[:place], size, *self.shape[place + 1 :]), self.axes)

    def shape_for(self, lengths: Sequence[int]) -> Shape:
        """The shape with these elements by spatial axis."""
        pairs = zip(self.shape, self.axes, strict=True)
        return tuple(size if axis is None else lengths[axis] for size, axis in pairs)

    def links(self, links: Sequence[Link]) -> Links:
        """The links of all axes of this tensor, by spatial axis."""
        return {axis: link for axis, link in zip(self.axes, links, strict=True) if axis is not None}


@dataclass(frozen=True)
class Trace:
    """The result of a walk: fields by value, and by spatial axis, edges in the order of the nodes, and strides.

    `indices` are the values that are indices, and `indexed_values` those that they refer to, if in row-major order.
    `numbers` are, by node and value, those that depend on sizes and that a node computes with, and the positions at
    which channels are cut or padded. `nodes` has the node that computes a value, as messages name it.
    """

    fields: Mapping[str, Field]
    edges: tuple[tuple[Edge, ...], ...]
    strides: tuple[Strides, ...]
    indices: frozenset[str]
    indexed_values: Mapping[str, str]
    numbers: Mapping[tuple[str, str], bytes]
    nodes: Mapping[str, str]


class GraphWalk:
    """The state of a walk, which the rules of the operators read and extend."""

    def __init__(
        self, graph: Graph, types: Types, semantics: Semantics, inputs: Mapping[str, Shape], tiled: Mapping[str, Axes]
    ) -> None:
        count = 1 + max(axis for axes in tiled.values() for axis in axes if axis is not None)
        self.opsets, self.semantics = graph.opsets, semantics
        self.fields = {name: Field(inputs[name], axes) for name, axes in tiled.items()}
        self.pool_indices: dict[str, Any] = {}
        self.indexed_values: dict[str, str] = {}
        self._types, self._inputs, self._sparse = types, inputs, graph.sparse_constants
        unfed = {name: tensor for name, tensor in graph.defaults.items() if name not in inputs}
        self._constants = {**unfed, **graph.constants}
        self._values: dict[str, Numbers] = {}
        self._sized: set[str] = set()
        self._edges: list[list[Edge]] = [[] for _ in range(count)]
        self._strides = tuple(Strides() for _ in range(count))
        self._numbers: dict[tuple[str, str], bytes] = {}
        self._size_inputs: set[str] = set()
        self._nodes: dict[str, str] = {}

    def trace(self) -> Trace:
        """The result, after the last node."""
        edges, indices = tuple(map(tuple, self._edges)), frozenset(self.pool_indices)
        return Trace(self.fields, edges, self._strides, indices, self.indexed_values, self._numbers, self._nodes)

    def field(self, node: onnx.NodeProto) -> Field:
        """The field that a node works on, its first input; a node that reads a field as a parameter is refused."""
        if node.input[0] not in self.fields:
            raise refusal(node, "is parametrised by values of the image")
        return self.fields[node.input[0]]

    def shape(self, name: str) -> Shape | None:
        """The shape of any value; None where it is unknown."""
        known = self.fields.get(name, self._values.get(name))
        if known is not None:
            return tuple(known.shape)
        constant = self._constants.get(name) or self._sparse.get(name)
        if constant is not None:
            return tuple(constant.dims)
        return self._inputs.get(name, known_sizes(self._types.get(name)))

    def known_shape(self, node: onnx.NodeProto, name: str) -> Shape:
        """`shape` of a value that a node reads; one of unknown shape is refused."""
        shape = self.shape(name)
        if shape is None:
            raise refusal(node, f"reads {name!r}, whose shape is not known")
        return shape

    def numbers(self, name: str) -> Numbers | None:
        """The elements of a small value that the image does not change; None where they are unknown."""
        if name not in self._values and name in self._constants and not is_large(self._constants[name]):
            self._values[name] = np.asarray(array_of(self._constants[name]))
        return self._values.get(name)

    def ints(self, node: onnx.NodeProto, place: int) -> list[int] | None:
        """The elements of an input that holds axes, which must be equal for every tile; None without such an input."""
        if len(node.input) <= place or not node.input[place]:
            return None
        elements = self.numbers(node.input[place])
        if elements is None:
            raise refusal(node, f"takes sizes or axes, {node.input[place]!r}, that it computes from elements")
        return [int(element) for element in elements.reshape(-1)]

    def sizes(self, node: onnx.NodeProto, place: int) -> list[int] | None:
        """`ints` of an input that holds sizes or positions, which may depend on the size of the image.

        The rule has to show, by shapes, links or `record_positions`, that the node acts alike in a tile.
        """
        elements = self.ints(node, place)
        if elements is not None:
            self._size_inputs.add(node.input[place])
        return elements

    def set_numbers(self, name: str, values: Numbers, *, is_sized: bool) -> None:
        """Record the elements of a value, and whether they depend on the size of the image."""
        self._values[name] = values
        if is_sized:
            self._sized.add(name)

    def record_numbers(self, node: onnx.NodeProto) -> None:
        """Record the numbers that a node computes with, which must be equal for every tile."""
        for name in reads(node):
            if name in self._sized and name not in self._size_inputs:
                self._numbers[node_name(node), name] = self._values[name].tobytes()
        self._size_inputs.clear()

    def record_positions(self, node: onnx.NodeProto, places: Sequence[int]) -> None:
        """Record positions along axes that are not the image's, which must be equal for every tile."""
        self._numbers[node_name(node), node.output[0]] = np.array(places, np.int64).tobytes()

    def add_field(self, node: onnx.NodeProto, name: str, field: Field, sources: Mapping[str, Links]) -> None:
        """Record a field that a node computes, unless its name is "", from fields that must have equal strides.

        These are in `sources`, with their links by spatial axis; an axis without one is unchanged.
        """
        if not name:
            return
        self.fields[name], self._nodes[name] = field, f"{node.op_type} node {node_name(node)!r}"
        for source, links in sources.items():
            for axis in self.fields[source].sizes():
                link = links.get(axis, SAME)
                self._edges[axis].append(Edge(name, source, link, self._nodes[name]))
                if not self._strides[axis].tie(name, source, link.rate):
                    raise refusal(node, "joins values of different strides")

    def add_permuted(self, node: onnx.NodeProto, parts: Sequence[tuple[int, int | None]]) -> None:
        """`add_output` with the size and the spatial axis of each of its axes, which the elements are moved to."""
        self.add_output(node, Field(tuple(size for size, _ in parts), tuple(axis for _, axis in parts)))

    def add_output(self, node: onnx.NodeProto, field: Field, links: Links | None = None) -> None:
        """Record the first output, which a node computes from its first input, linked as in `add_field`."""
        self.add_field(node, node.output[0], field, {node.input[0]: links or {}})

    def evaluate(self, node: onnx.NodeProto) -> None:
        """Compute the outputs of a node that reads no field, where its inputs are known."""
        if any(inner.op_type in _RANDOM for inner in (node, *subgraph_nodes(node))):
            raise refusal(node, "computes random numbers")
        read = {name: self.numbers(name) for name in reads(node)}
        is_sized = not self._sized.isdisjoint(read)
        if any(values is None for values in read.values()) or domain(node):
            if is_sized:
                raise refusal(node, "computes more than sizes from the size of the image")
            return
        place = _SHAPE_INPUT.get(node.op_type)
        shape = self.numbers(node.input[place]) if place is not None else None
        if shape is not None and prod(map(int, shape)) > LARGE:
            if is_sized:
                raise refusal(node, "fills a tensor of the size of the image")
            return
        try:
            outputs = evaluate_outputs(self.opsets, node, read)
        except Exception as error:
            if is_sized:
                raise refusal(node, f"fails for this size of the image ({short_message(error)})") from error
            return
        for name, values in outputs.items():
            if is_sized and np.size(values) > LARGE:
                raise refusal(node, "makes a tensor of the size of the image")
            self.set_numbers(name, values, is_sized=is_sized)


def refusal(node: onnx.NodeProto, why: str) -> UnsupportedError:
    """The error for a node that cannot be tiled exactly; `why` is a verb phrase about it."""
    return UnsupportedError(
        f"tiles: {node.op_type} node {node_name(node)!r} cannot be tiled exactly: it {why}. Run the image whole, or "
        "average overlapping tiles (unpool.tiles.blend, --blend)."
    )


def image_inputs(shapes: Mapping[str, Shape], layout: str, names: Iterable[str] | None) -> dict[str, Axes]:
    """The spatial axis that each axis is, for every input that is cut: by default, the images of the highest rank."""
    if layout not in LAYOUTS:
        raise UnpoolError(
            f"layout: expected one of {', '.join(LAYOUTS)}; got {layout!r}. {suggest_name(layout, LAYOUTS)}"
        )
    requested = list(shapes) if names is None else list(names)
    for name in requested:
        if name not in shapes:
            raise UnpoolError(f"tiles: expected inputs among {', '.join(shapes)}; got {name!r}.")
    rank = max((len(shapes[name]) for name in requested), default=0)
    spatial = slice(2, rank) if layout == "NCHW" else slice(1, rank - 1)
    fitting = [name for name in requested if len(shapes[name]) == rank > 2 and max(shapes[name][spatial]) > 1]
    if not fitting or (names is not None and len(fitting) < len(requested)):
        described = ", ".join(f"{name} of shape {list(shapes[name])}" for name in requested) or "none"
        raise UnpoolError(
            f"tiles: expected an input of batch, channels and one spatial axis or more, got {described}. Run it whole."
        )
    for name in fitting:
        if 0 in shapes[name]:
            raise ShapeError(f"tiles: input {name!r} of shape {list(shapes[name])} has no elements. Run it whole.")
    numbers = tuple(range(rank - 2))
    axes: Axes = (None, None, *numbers) if layout == "NCHW" else (None, *numbers, None)
    return dict.fromkeys(fitting, axes)
