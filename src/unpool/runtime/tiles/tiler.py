"""The tiles for a session and the shapes of its inputs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from unpool.display import format_shape
from unpool.errors import UnpoolError, UnsupportedError
from unpool.runtime.graph.errors import short_message
from unpool.runtime.graph.graph import drop_constant_data, prune
from unpool.runtime.graph.shapes import dtype
from unpool.runtime.session.session import prepared_graph
from unpool.runtime.tiles import tiling as grid
from unpool.runtime.tiles.links import Edge, Strides
from unpool.runtime.tiles.memory import run_bytes
from unpool.runtime.tiles.rules.table import apply
from unpool.runtime.tiles.tiling import AxisCell, AxisGeometry, Extent, Tiling
from unpool.runtime.tiles.walk import SAME, Axes, Field, GraphWalk, Shape, Trace, image_inputs, refusal

if TYPE_CHECKING:
    from unpool.runtime.session.session import InferenceSession


Geometry: TypeAlias = tuple[dict[str, Axes], Trace, tuple[AxisGeometry, ...]]

MAX_ITEM_BYTES = 8
"""Assumed for an element of unknown type."""


class Tiler:
    """Cuts the inputs of a session into tiles whose assembled results are those of the whole inputs.

    Args:
        session: that runs the tiles.
        layout: "NCHW" where inputs have channels before the spatial axes, one or more of them; or "NHWC".
        inputs: names of the inputs to cut; by default all of the highest rank.
        outputs: names of the outputs; by default all.

    Raises:
        UnpoolError: the session has no such output, or its model cannot be read again.
    """

    def __init__(
        self,
        session: "InferenceSession",
        *,
        layout: str = "NCHW",
        inputs: Iterable[str] | None = None,
        outputs: Iterable[str] | None = None,
    ) -> None:
        self.session, self._layout = session, layout
        names = [value.name for value in session.get_outputs()]
        self.outputs = tuple(names if outputs is None else outputs)
        self._inputs = None if inputs is None else tuple(inputs)
        unknown = set(self.outputs).difference(names)
        if unknown:
            raise UnpoolError(f"tiles: expected outputs among {', '.join(names)}; got {sorted(unknown)[0]!r}.")
        graph, self._types, self._semantics = prepared_graph(session)
        self._nodes = graph.nodes
        outputs_kept = tuple(value for value in graph.outputs if value.name in self.outputs)
        self._graph = drop_constant_data(prune(replace(graph, outputs=outputs_kept)))

    def tiling(self, shapes: Mapping[str, Shape], tile: Sequence[int], *, is_even: bool = False) -> Tiling:
        """The tiles of one image.

        Args:
            shapes: of all inputs that are fed.
            tile: elements of the first input for which a tile gives the results, by spatial axis; the tile reads a halo
                around them. They are rounded down to a multiple of the total stride.
            is_even: whether all tiles read parts of one shape, so that backends use their memory again; those at the
                ends of the image then read more than they need.

        Raises:
            UnsupportedError: a node does not treat every position of the image alike; the message names it.
            UnpoolError: no input is an image, or `tile` does not fit it.
        """
        tiled, whole, axes = geometry = self._geometry(shapes)
        if len(tile) != len(axes) or min(tile) < 1:
            raise UnpoolError(
                f"tile: expected {len(axes)} sizes of 1 or more, one per spatial axis; got {list(tile)}. "
                f"Pass {len(axes)}, such as {[512] * len(axes)}."
            )
        cells = []
        for axis, size in zip(axes, tile, strict=True):
            along = list(grid.axis_cells(axis, grid.round_length(size, axis.stride)))
            cells.append(tuple(grid.equal_length_cells(along) if is_even else along))
        constant = tuple(name for name in self.outputs if name not in whole.fields)
        tiling = Tiling(axes, tuple(cells), whole, tuple(tiled), axes[0].outputs, constant)
        for cell in tiling.distinct_cells():
            self._require_same_geometry(shapes, geometry, cell)
        return tiling

    def extents(self, shapes: Mapping[str, Shape]) -> dict[str, tuple[Extent, ...]]:
        """The receptive field of an element of each output, along each spatial axis.

        Args:
            shapes: of all inputs that are fed; in a small image all elements may be near a border.

        Raises:
            UnsupportedError: a node does not treat every position of the image alike; the message names it.
        """
        _, _, axes = geometry = self._geometry(shapes)
        self._require_same_geometry(shapes, geometry, [AxisCell(0, -axis.stride, {}) for axis in axes])
        return {name: tuple(grid.extent(axis, name) for axis in axes) for name in axes[0].outputs}

    def images(self, shapes: Mapping[str, Shape]) -> dict[str, Axes]:
        """The spatial axis of the image that each axis is, for every input that is cut."""
        return image_inputs(shapes, self._layout, self._inputs)

    def accepts(self, shapes: Mapping[str, Shape]) -> bool:
        """True if the model accepts these shapes: no value is empty, and joined values have equal sizes."""
        try:
            whole = self._trace(shapes, self.images(shapes))
        except UnpoolError:
            return False
        sizes = {name: field.sizes() for name, field in whole.fields.items()}
        return all(_fits(edge, number, sizes) for number, edges in enumerate(whole.edges) for edge in edges)

    def strides(self, shapes: Mapping[str, Shape]) -> tuple[int, ...]:
        """The total stride along each spatial axis, in elements of the first input."""
        return tuple(axis.stride for axis in self._geometry(shapes)[2])

    def run_bytes(self, shapes: Mapping[str, Shape], tile: Mapping[str, Shape] | None = None) -> int:
        """Forecast of the peak memory of a run in bytes, without its inputs and the session.

        Args:
            shapes: of all inputs that are fed.
            tile: shapes of the inputs that are cut; by default the whole ones.
        """
        fields = self._trace({**shapes, **(tile or {})}, self.images(shapes)).fields
        sizes = {name: prod(field.shape) * self._item_bytes(name) for name, field in fields.items()}
        return run_bytes(self._nodes, self.session.plan, Counter(sizes))

    def output_bytes(self, tiling: Tiling) -> int:
        """Bytes of all outputs of the image."""
        return sum(prod(tiling.shape(name)) * self._item_bytes(name) for name in tiling.outputs)

    def _item_bytes(self, name: str) -> int:
        item_type = dtype(self._types.get(name))
        return item_type.itemsize if item_type is not None else MAX_ITEM_BYTES

    def _trace(self, shapes: Mapping[str, Shape], tiled: Mapping[str, Axes]) -> Trace:
        """The dependence of every value on the inputs that are cut."""
        walk = GraphWalk(self._graph, self._types, self._semantics, shapes, tiled)
        for node in self._graph.nodes:
            try:
                apply(walk, node)
            except UnpoolError:
                raise
            except (ArithmeticError, LookupError, ValueError) as error:  # sizes for which no runtime has a result
                raise refusal(node, f"cannot run on this size ({short_message(error)})") from error
        return walk.trace()

    def _geometry(self, shapes: Mapping[str, Shape]) -> Geometry:
        """The inputs that are cut, the trace of the whole image, and the geometry of each spatial axis."""
        tiled = self.images(shapes)
        whole = self._trace(shapes, tiled)
        outputs = tuple(name for name in self.outputs if name in whole.fields)
        unordered = [name for name in outputs if name in whole.indices and name not in whole.indexed_values]
        if unordered:
            raise UnsupportedError(
                f"tiles: output {unordered[0]!r}: expected indices in row-major order of an NCHW tensor, got others. "
                "Choose other outputs."
            )
        axes, inputs = [], tuple(tiled)
        for number, edges in enumerate(whole.edges):
            sizes = {name: field.sizes()[number] for name, field in whole.fields.items()}
            steps = {name: _step(whole.strides[number], name, inputs, sizes) for name in sizes}
            axes.append(AxisGeometry(sizes[inputs[0]], sizes, steps, edges, inputs, outputs))
        return tiled, whole, tuple(axes)

    def _require_same_geometry(
        self, shapes: Mapping[str, Shape], geometry: Geometry, cells: Sequence[AxisCell]
    ) -> None:
        """Refuse a graph that treats a tile differently from the image."""
        tiled, whole, axes = geometry
        expected = {name: _shape_in_tile(name, field, axes, cells) for name, field in whole.fields.items()}
        read = {**shapes, **{name: tuple(map(int, expected[name])) for name in tiled}}
        try:
            part = self._trace(read, tiled)
        except UnsupportedError:
            raise
        except UnpoolError as error:
            raise UnsupportedError(
                f"tiles: the model accepts the image, but not a part of {list(read[next(iter(tiled))])} elements: "
                f"{short_message(error)}. Take larger tiles, or run the image whole."
            ) from error
        _require_same_trace(whole, part, expected)


def _shape_in_tile(
    name: str, field: Field, axes: Sequence[AxisGeometry], cells: Sequence[AxisCell]
) -> tuple[Fraction, ...]:
    """The shape of a value in a tile, if it lacks the elements that the tile lacks, and is else that in the image."""
    removed = [(cell.begin + cell.end) / axis.steps[name] for axis, cell in zip(axes, cells, strict=True)]
    pairs = zip(field.shape, field.axes, strict=True)
    return tuple(Fraction(size) if axis is None else size - removed[axis] for size, axis in pairs)


def _fits(edge: Edge, axis: int, sizes: Mapping[str, Mapping[int, int]]) -> bool:
    """True if the values of an edge have elements along a spatial axis, and equal sizes where they are joined."""
    size, source = (sizes[name].get(axis, 0) for name in (edge.value, edge.source))
    return size > 0 and source >= edge.link.least and (edge.link != SAME or size == source)


def _step(strides: Strides, name: str, inputs: tuple[str, ...], sizes: Mapping[str, int]) -> Fraction:
    """Elements of the first input per element of a value; derived from the sizes where no node joins them."""
    first = inputs[0]
    joined = strides.between(name, first)
    if joined is not None:
        return joined
    other, own = next((other, own) for other in inputs if (own := strides.between(name, other)) is not None)
    ratio = Fraction(sizes[first], sizes[other])
    if 1 not in (ratio.numerator, ratio.denominator):
        raise UnpoolError(
            f"tiles: expected inputs whose sizes are whole multiples of each other, got {sizes[first]} of {first!r} "
            f"and {sizes[other]} of {other!r}, which no node joins. Run them one by one."
        )
    return own * ratio


def _require_same_trace(whole: Trace, part: Trace, expected: Mapping[str, tuple[Fraction, ...]]) -> None:
    """Refuse a graph that treats an image of another size differently, by the traces of the image and of a tile.

    Every value must have the expected shape in the tile, and no padding, factor or number may change with the size.
    """
    for name, field in whole.fields.items():
        node, tile = whole.nodes.get(name, name), part.fields[name]
        if tile.axes != field.axes:
            raise _size_dependent(node, "puts the axes of the image in another order for a tile")
        if tile.shape != expected[name]:
            shapes = f"{format_shape(tile.shape)} for a tile and {format_shape(field.shape)} for the image"
            raise _size_dependent(node, f"makes {shapes}: the size does not follow the image's")
    for own, other in zip(whole.edges, part.edges, strict=True):
        for edge, same in zip(own, other, strict=True):
            if edge.link != same.link:
                raise _size_dependent(edge.node, "pads or scales by the size of the image")
    for (node, name), values in whole.numbers.items():
        if part.numbers.get((node, name)) != values:
            raise _size_dependent(f"node {node!r}", "computes with the size of the image")


def _size_dependent(node: str, why: str) -> UnsupportedError:
    return UnsupportedError(f"tiles: {node} cannot be tiled exactly: it {why}. Run the image whole.")
