"""Walks over a graph for inputs of given shapes, and notes how every value depends on the tiled inputs.

A value that depends on them is a field: some of its axes are spatial axes of the image. A value that does not is the
same for every tile. Numbers that are made of sizes alone, such as those of Shape, are computed on the way.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from unpool.errors import ShapeError, UnpoolError, UnsupportedError, suggest_name
from unpool.runtime.graph import shapes
from unpool.runtime.graph.errors import short_message
from unpool.runtime.graph.graph import Graph
from unpool.runtime.graph.nodes import domain, inner_nodes, node_name, reads
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.graph.weight_files import array_of
from unpool.runtime.graph.without_weights import LARGE, is_large
from unpool.runtime.tiles.links import Edge, Link, Strides

Shape: TypeAlias = tuple[int, ...]
Axes: TypeAlias = tuple[int | None, ...]
Links: TypeAlias = Mapping[int, Link]
Numbers: TypeAlias = np.ndarray[Any, Any]

SAME = Link()
_RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
_FILLING = {"ConstantOfShape": 0, "Expand": 1}
"""Operators that fill a tensor of a shape, by the input that says the shape."""


@dataclass(frozen=True, slots=True)
class Field:
    """The shape of a value, and which spatial axis of the image each of its axes is; None for an axis that is none."""

    shape: Shape
    axes: Axes

    def sizes(self) -> dict[int, int]:
        """Elements by spatial axis."""
        return {axis: size for axis, size in zip(self.axes, self.shape, strict=True) if axis is not None}

    def links(self, links: Sequence[Link]) -> Links:
        """By spatial axis, the links of the axes of this tensor from the first to the last."""
        return {axis: link for axis, link in zip(self.axes, links, strict=True) if axis is not None}


@dataclass(frozen=True)
class Trace:
    """What a walk found.

    Attributes:
        fields: the values that depend on the tiled inputs.
        edges: by spatial axis, in the order in which the values are made.
        strides: by spatial axis.
        pooled: the values that are indices.
        counted: for those of them that count in the order of their elements, the tensor in which they do.
        numbers: made of sizes, that nodes compute with: by node and value; and where channels are cut or padded.
        nodes: by value, the node that makes it, as messages name it.
    """

    fields: Mapping[str, Field]
    edges: tuple[tuple[Edge, ...], ...]
    strides: tuple[Strides, ...]
    pooled: frozenset[str]
    counted: Mapping[str, str]
    numbers: Mapping[tuple[str, str], bytes]
    nodes: Mapping[str, str]


class Walk:
    """What is known in the middle of a walk; the rules of the operators read it and add to it."""

    def __init__(
        self,
        graph: Graph,
        types: shapes.Types,
        semantics: Semantics,
        inputs: Mapping[str, Shape],
        tiled: Mapping[str, Axes],
    ) -> None:
        count = 1 + max(axis for axes in tiled.values() for axis in axes if axis is not None)
        self.opsets, self.semantics = graph.opsets, semantics
        self.fields = {name: Field(inputs[name], axes) for name, axes in tiled.items()}
        self.pools: dict[str, Any] = {}
        self._types, self._inputs = types, inputs
        unfed = {name: tensor for name, tensor in graph.defaults.items() if name not in inputs}
        self._constants = {**unfed, **graph.constants}
        self._sparse = graph.sparse_constants
        self._known: dict[str, Numbers] = {}
        self._sized: set[str] = set()
        self._edges: list[list[Edge]] = [[] for _ in range(count)]
        self._strides = tuple(Strides() for _ in range(count))
        self._counted: dict[str, str] = {}
        self._numbers: dict[tuple[str, str], bytes] = {}
        self._asked: set[str] = set()
        self._nodes: dict[str, str] = {}

    def done(self) -> Trace:
        """Everything that was found."""
        edges = tuple(map(tuple, self._edges))
        return Trace(
            self.fields, edges, self._strides, frozenset(self.pools), self._counted, self._numbers, self._nodes
        )

    def is_tiled(self, node: onnx.NodeProto) -> bool:
        """Whether a node reads a field."""
        return any(name in self.fields for name in reads(node))

    def field(self, node: onnx.NodeProto) -> Field:
        """The field that a node works on, its first input.

        Raises:
            UnsupportedError: it is none, and the node reads one for a parameter.
        """
        if node.input[0] not in self.fields:
            raise refusal(node, "is parametrised by values of the image")
        return self.fields[node.input[0]]

    def shape(self, name: str) -> Shape | None:
        """The shape of any value; None where it is not known."""
        if name in self.fields:
            return self.fields[name].shape
        if name in self._known:
            return tuple(self._known[name].shape)
        if name in self._constants:
            return tuple(self._constants[name].dims)
        if name in self._sparse:
            return tuple(self._sparse[name].dims)
        found = self._inputs.get(name, shapes.sizes(self._types.get(name)))
        return None if found is None or None in found else tuple(size for size in found if size is not None)

    def known(self, name: str) -> Numbers | None:
        """The elements of a value of few that the image does not change; None where they are not known."""
        if name not in self._known and name in self._constants and not is_large(self._constants[name]):
            self._known[name] = np.asarray(array_of(self._constants[name]))
        return self._known.get(name)

    def ints(self, node: onnx.NodeProto, place: int) -> list[int] | None:
        """The elements of an input of a node that says axes; None where there is no such input.

        Where they are made of sizes of the image, they have to be the same for every tile.

        Raises:
            UnsupportedError: they are not known.
        """
        if len(node.input) <= place or not node.input[place]:
            return None
        found = self.known(node.input[place])
        if found is None:
            raise refusal(node, f"takes sizes or axes, {node.input[place]!r}, that it computes from elements")
        return [int(one) for one in found.reshape(-1)]

    def sizes(self, node: onnx.NodeProto, place: int) -> list[int] | None:
        """As `ints`, of an input that says sizes or places: they may follow the size of the image.

        So the rule has to show by the shapes and the links of what the node makes, and by `keep` for what these do not
        say, that the node does the same for a tile.
        """
        found = self.ints(node, place)
        if found is not None:
            self._asked.add(node.input[place])
        return found

    def know(self, name: str, values: Numbers, *, is_sized: bool) -> None:
        """Note the elements of a value, and whether they depend on the size of the image."""
        self._known[name] = values
        if is_sized:
            self._sized.add(name)

    def use(self, node: onnx.NodeProto) -> None:
        """Note the numbers that a node computes with, which must be the same for every tile."""
        for name in reads(node):
            if name in self._sized and name not in self._asked:
                self._numbers[node_name(node), name] = self._known[name].tobytes()
        self._asked.clear()

    def keep(self, node: onnx.NodeProto, places: Sequence[int]) -> None:
        """Note where a node begins along axes that are not the image's, which must be the same for every tile."""
        self._numbers[node_name(node), node.output[0]] = np.array(places, np.int64).tobytes()

    def is_sized(self, node: onnx.NodeProto) -> bool:
        """Whether a node reads numbers that are made of sizes of the image."""
        return not self._sized.isdisjoint(reads(node))

    def count_in(self, indices: str, large: str) -> None:
        """Note in which tensor indices count."""
        self._counted[indices] = large

    def put(self, node: onnx.NodeProto, name: str, field: Field, sources: Mapping[str, Links]) -> None:
        """Note a field that a node makes.

        Args:
            node: that makes it.
            name: of the value; nothing is noted where it is "".
            field: its shape and axes.
            sources: the fields that it is made of, each with its links by spatial axis; without one, the axis stays.

        Raises:
            UnsupportedError: the node joins fields whose elements are not equally far apart.
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

    def compute(self, node: onnx.NodeProto) -> None:
        """Compute what a node makes that reads no field, where all that it reads is known."""
        if any(one.op_type in _RANDOM for one in (node, *inner_nodes(node))):
            raise refusal(node, "makes other numbers in every run")
        read = {name: self.known(name) for name in reads(node)}
        sized = self.is_sized(node)
        if any(values is None for values in read.values()) or domain(node):
            if sized:
                raise refusal(node, "makes more of the size of the image than sizes")
            return
        place = _FILLING.get(node.op_type)
        filled = self.known(node.input[place]) if place is not None else None
        if filled is not None and prod(map(int, filled)) > LARGE:
            if sized:
                raise refusal(node, "fills a tensor of the size of the image")
            return
        try:
            made = _evaluated(node, self.opsets, read)
        except Exception as error:
            if sized:
                raise refusal(node, f"fails for this size of the image ({short_message(error)})") from error
            return
        for name, values in zip(node.output, made, strict=True):
            if sized and np.size(values) > LARGE:
                raise refusal(node, "makes a tensor of the size of the image")
            self.know(name, np.asarray(values), is_sized=sized)


def refusal(node: onnx.NodeProto, why: str) -> UnsupportedError:
    """The error for a node that cannot be tiled exactly; `why` says what it does."""
    return UnsupportedError(
        f"tiles: {node.op_type} node {node_name(node)!r}: expected a node that treats every position of the image "
        f"alike, got one that {why}. Run the image whole, or average overlapping tiles (unpool.tiles.blend, --blend)."
    )


def _evaluated(node: onnx.NodeProto, opsets: Mapping[str, int], read: Mapping[str, Any]) -> Sequence[Any]:
    """What onnx's ReferenceEvaluator makes of a small node."""
    values = [onnx.ValueInfoProto(name=name) for name in read]
    made = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    imports = [helper.make_opsetid("", opsets.get("", 1))]
    model = helper.make_model(helper.make_graph([node], "sizes", values, made), opset_imports=imports)
    with np.errstate(all="ignore"):  # a size of a tile may be a divisor of 0
        found = iter(ReferenceEvaluator(model).run(None, dict(read)))
    return [next(found) if name else np.zeros(0) for name in node.output]


LAYOUTS = ("NCHW", "NHWC")


def image_inputs(shapes: Mapping[str, Shape], layout: str, names: Iterable[str] | None) -> dict[str, Axes]:
    """For every input that is cut, which spatial axis of the image each of its axes is.

    Args:
        shapes: of all inputs that are fed.
        layout: "NCHW" where channels come before the spatial axes, of which there may be one to three, or "NHWC".
        names: the inputs to cut. By default: all of the highest rank that have more than one element on a spatial axis.

    Raises:
        UnpoolError: no input is an image, or one that is named is none.
        ShapeError: an image has no elements.

    >>> image_inputs({"x": (1, 3, 64, 48), "time": (1,)}, "NCHW", None)
    {'x': (None, None, 0, 1)}
    """
    if layout not in LAYOUTS:
        raise UnpoolError(
            f"layout: expected one of {', '.join(LAYOUTS)}; got {layout!r}. {suggest_name(layout, LAYOUTS)}"
        )
    chosen = list(shapes) if names is None else list(names)
    for name in chosen:
        if name not in shapes:
            raise UnpoolError(f"tiles: expected inputs among {', '.join(shapes)}; got {name!r}. Choose one.")
    rank = max((len(shapes[name]) for name in chosen), default=0)
    fitting = [name for name in chosen if len(shapes[name]) == rank > 2 and max(_spatial(shapes[name], layout)) > 1]
    if not fitting or (names is not None and len(fitting) < len(chosen)):
        raise UnpoolError(
            "tiles: expected an input of batch, channels and one spatial axis or more, "
            f"got {', '.join(f'{name} of shape {list(shapes[name])}' for name in chosen) or 'none'}. Run it whole."
        )
    for name in fitting:
        if 0 in shapes[name]:
            raise ShapeError(f"tiles: input {name!r} of shape {list(shapes[name])} has no elements. Run it whole.")
    spatial = tuple(range(rank - 2))
    axes: Axes = (None, None, *spatial) if layout == "NCHW" else (None, *spatial, None)
    return dict.fromkeys(fitting, axes)


def _spatial(shape: Shape, layout: str) -> Shape:
    return shape[2:] if layout == "NCHW" else shape[1:-1]
