"""The tiles for a session and the shapes of its inputs; without an image, an overview of sizes, strides and memory."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from unpool.display import format_shape
from unpool.errors import UnpoolError, UnsupportedError
from unpool.graph.errors import short_message
from unpool.graph.graph import drop_constant_data, prune
from unpool.graph.nodes import is_unpool_op, reads, writes
from unpool.graph.shapes import dtype
from unpool.operators.unpool_domain import DOMAIN
from unpool.runtime.tiles import tiling as grid
from unpool.runtime.tiles.links import Strides
from unpool.runtime.tiles.rules.table import IN_PLACE, apply
from unpool.runtime.tiles.tiling import AxisCell, AxisGeometry, Extent, Tiling
from unpool.runtime.tiles.walk import LAYOUTS, SAME, Axes, GraphWalk, Shape, Trace, image_inputs, refusal

if TYPE_CHECKING:
    from unpool.onnxruntime.session import InferenceSession


Geometry: TypeAlias = tuple[dict[str, Axes], Trace, tuple[AxisGeometry, ...]]

DEFAULT_SIZES = {3: 4096, 4: 512, 5: 128}  # by rank of an input, of dynamic spatial dimensions that are not given
MAX_ITEM_BYTES = 8  # assumed for an element of unknown type
BLOCKED_RANK = 4  # of the values that onnxruntime's Conv copies into a layout of its own: pictures
OVERHEAD_BYTES = 16 << 20  # of a run in addition to its values: buffers of threads and allocators
ROUNDING = 1.15  # of values by the arena, whose blocks are split or reused whole: measured on SegNets and U-Nets
ARENA_GROWTH = 2  # the arena of onnxruntime grows by powers of two


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
        graph, self._types, self._semantics = session.prepared_graph()
        self._nodes = graph.nodes
        outputs_kept = tuple(value for value in graph.outputs if value.name in self.outputs)
        self._graph = drop_constant_data(prune(replace(graph, outputs=outputs_kept)))

    def tiling(self, shapes: Mapping[str, Shape], tile: Sequence[int] | int, *, is_even: bool = False) -> Tiling:
        """The tiles of one image.

        Args:
            shapes: of all inputs that are fed.
            tile: elements of the first input for which a tile gives the results, by spatial axis, or one number for
                all; the tile reads a halo around them. They are rounded down to a multiple of the total stride.
            is_even: whether all tiles read parts of one shape, so that backends use their memory again; those at the
                ends of the image then read more than they need.

        Raises:
            UnsupportedError: a node does not treat every position of the image alike; the message names it.
            UnpoolError: no input is an image, or `tile` does not fit it.
        """
        tiled, whole, axes = geometry = self._geometry(shapes)
        lengths = grid.per_axis(tile, len(axes))
        if len(lengths) != len(axes) or min(lengths) < 1:
            raise UnpoolError(
                f"tile: expected {len(axes)} sizes of 1 or more, one per spatial axis; got {list(lengths)}. "
                f"Pass {len(axes)}, such as {[512] * len(axes)}, or one number for all."
            )
        cells = []
        for axis, size in zip(axes, lengths, strict=True):
            along = list(grid.axis_cells(axis, grid.round_length(size, axis.stride)))
            cells.append(tuple(grid.equal_length_cells(along) if is_even else along))
        constant = tuple(name for name in self.outputs if name not in whole.fields)
        tiling = Tiling(axes, tuple(cells), whole, tuple(tiled), axes[0].outputs, constant)
        for cell in tiling.distinct_cells():
            self._require_same_geometry(shapes, geometry, cell)
        return tiling

    def smallest_tiling(self, shapes: Mapping[str, Shape]) -> Tiling:
        """The tiling with the smallest cells of equal length on all axes, whose tiles read parts of one shape."""
        strides = self.strides(shapes)
        return self.tiling(shapes, [max(strides)] * len(strides), is_even=True)

    def extents(self, shapes: Mapping[str, Shape]) -> dict[str, tuple[Extent, ...]]:
        """The receptive field of an element of each output, along each spatial axis, far from the borders.

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
        for number, edges in enumerate(whole.edges):
            sizes = {name: field.sizes().get(number, 0) for name, field in whole.fields.items()}
            for edge in edges:
                size, source = sizes[edge.value], sizes[edge.source]
                if size < 1 or source < edge.link.least or (edge.link == SAME and size != source):
                    return False
        return True

    def strides(self, shapes: Mapping[str, Shape]) -> tuple[int, ...]:
        """The total stride along each spatial axis, in elements of the first input."""
        return tuple(axis.stride for axis in self._geometry(shapes)[2])

    def run_bytes(self, shapes: Mapping[str, Shape], tile: Mapping[str, Shape] | None = None) -> int:
        """Forecast of the peak memory of a run in bytes, without its inputs and the session.

        Args:
            shapes: of all inputs that are fed.
            tile: shapes of the inputs that are cut; by default the whole ones.
        """
        return self._run_bytes(self._trace_image(shapes, tile)[1])

    def arena_bytes(self, shapes: Mapping[str, Shape], tile: Mapping[str, Shape]) -> int:
        """Upper bound of the memory of tiles of many shapes in bytes, with their inputs, where the arena keeps freed
        memory; arguments as for `run_bytes`.
        """
        trace = self._trace_image(shapes, tile)[1]
        return ARENA_GROWTH * self._run_bytes(trace) + self._input_bytes(trace, tile)

    def lean_bytes(self, shapes: Mapping[str, Shape], tile: Mapping[str, Shape] | None = None) -> int:
        """Forecast of the peak memory of a run in bytes, with its inputs, in a process that keeps no freed memory;
        arguments as for `run_bytes`.
        """
        tiled, trace = self._trace_image(shapes, tile)
        return self._run_bytes(trace) + self._input_bytes(trace, tiled)

    def output_bytes(self, tiling: Tiling) -> int:
        """Bytes of all outputs of the image."""
        return sum(prod(tiling.shape(name)) * self._item_bytes(name) for name in tiling.outputs)

    def _run_bytes(self, trace: Trace) -> int:
        """Forecast of the peak memory of a run in bytes, without its inputs.

        Elementwise nodes overwrite their input if no other node reads it. A Conv copies inputs of the graph and results
        of unpool into its own layout, and a node of unpool's what is in that layout.
        """
        sizes = Counter({name: self._value_bytes(trace, name) for name in trace.fields})
        last_read = {name: place for place, node in enumerate(self._nodes) for name in reads(node)}
        unblocked = {*trace.fields}.difference(*map(writes, self._nodes))  # the inputs
        kept = {*unblocked, *self.outputs}
        alive = peak = 0
        for place, node in enumerate(self._nodes):
            is_own = is_unpool_op(node) or node.domain == DOMAIN
            written = sum(sizes[name] for name in writes(node))
            is_reordered = (is_own or node.op_type == "Conv") and is_own != (node.input[0] in unblocked)
            is_blocked = len(trace.fields[node.input[0]].shape) == BLOCKED_RANK if is_reordered else False
            copied = sizes[node.input[0]] if is_blocked else 0
            freed = sum(sizes[name] for name in reads(node) if last_read[name] == place and name not in kept)
            reused = min(written, freed) if node.op_type in IN_PLACE else 0
            peak = max(peak, alive + written - reused + copied)
            alive += written - freed
            if is_own:
                unblocked.update(writes(node))
        return int(ROUNDING * peak) + OVERHEAD_BYTES

    def _value_bytes(self, trace: Trace, name: str) -> int:
        """Bytes of a value of an image or a tile."""
        return prod(trace.fields[name].shape) * self._item_bytes(name)

    def _input_bytes(self, trace: Trace, names: Iterable[str]) -> int:
        """Bytes of inputs of an image or a tile."""
        return sum(self._value_bytes(trace, name) for name in names)

    def _item_bytes(self, name: str) -> int:
        item_type = dtype(self._types.get(name))
        return item_type.itemsize if item_type is not None else MAX_ITEM_BYTES

    def _trace_image(
        self, shapes: Mapping[str, Shape], tile: Mapping[str, Shape] | None = None
    ) -> tuple[dict[str, Axes], Trace]:
        """The inputs that are cut, and the trace of an image or a tile; refusals name the layout that has one."""
        tiled, traced = self.images(shapes), {**shapes, **(tile or {})}
        try:
            return tiled, self._trace(traced, tiled)
        except UnsupportedError as error:
            (other,) = set(LAYOUTS) - {self._layout}
            try:
                self._trace(traced, image_inputs(shapes, other, self._inputs))
            except UnpoolError:
                raise error from error.__cause__
            hint = f"With layout={other!r} (--layout {other.lower()}), no node refuses."
            raise UnsupportedError(f"{error} {hint}") from error

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
        tiled, whole = self._trace_image(shapes)
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
        tiled, whole, axes = geometry
        expected = {}  # by value, its shape in the image less the elements that the tile lacks
        for name, field in whole.fields.items():
            removed = [(cell.begin + cell.end) / axis.steps[name] for axis, cell in zip(axes, cells, strict=True)]
            pairs = zip(field.shape, field.axes, strict=True)
            expected[name] = tuple(size - (0 if axis is None else removed[axis]) for size, axis in pairs)
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


def _require_same_trace(whole: Trace, part: Trace, expected: Mapping[str, tuple[int | Fraction, ...]]) -> None:
    """Refuse a graph with another shape than expected in a tile, or whose padding, factors or numbers change there."""
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


@dataclass(frozen=True)
class SizeRange:
    """The sizes that a model accepts along one spatial axis: the smallest, and the step to others; 0 for one size."""

    least: int
    step: int


def _size_range(tiler: Tiler, shapes: Mapping[str, Shape], axis: int, stride: int) -> SizeRange:
    """The sizes of the first image that a model accepts along one spatial axis, among them the size in `shapes`.

    A graph treats sizes alike that differ by a multiple of its total stride. A smaller size is accepted as long as no
    value is empty, no padding repeats more elements than there are, and joined values have equal sizes. Other axes keep
    their sizes, and other images change with the first. With `stride` 0, the size is fixed.
    """
    own_axes = {name: axes.index(axis) for name, axes in tiler.images(shapes).items()}
    size = next(shapes[name][own] for name, own in own_axes.items())

    def accepts(other: int) -> bool:
        resized = dict(shapes)
        for name, own in own_axes.items():
            length = Fraction(shapes[name][own] * other, size)
            if length.denominator != 1:
                return False
            resized[name] = (*shapes[name][:own], int(length), *shapes[name][own + 1 :])
        return tiler.accepts(resized)

    if not stride:
        return SizeRange(size, 0)
    divisors = (step for step in range(1, stride) if stride % step == 0)
    step = next((step for step in divisors if accepts(size + step)), stride)
    smaller = range(size - step, 0, -step)
    return SizeRange(size - step * bisect_left(smaller, True, key=lambda other: not accepts(other)), step)


@dataclass(frozen=True)
class Overview:
    """The tiling of a model for inputs of these shapes; empty but for the reason where it cannot be tiled exactly.

    By spatial axis, it has the total stride in elements of the first input, the receptive fields of the outputs, and
    the accepted sizes of the first image; None where `shapes` are not accepted. `bytes` forecasts the peak of a run,
    and `lean_bytes` that of a run that keeps no freed memory, as on workers of a cluster with little of it.
    """

    shapes: Mapping[str, Shape]
    stride: tuple[int, ...] = ()
    outputs: Mapping[str, tuple[Extent, ...]] | None = None
    smallest: tuple[SizeRange, ...] | None = None
    bytes: int | None = None
    lean_bytes: int | None = None
    refusal: str | None = None


def overview(session: "InferenceSession", sizes: Mapping[str, int], layout: str = "NCHW") -> Overview:
    """The tiling of a model for the sizes of dynamic dimensions, by name; others get a default."""
    shapes = {}
    for info in session.get_inputs():
        dims = info.shape or ()
        default = DEFAULT_SIZES.get(len(dims), 1)
        shapes[info.name] = tuple(
            size if isinstance(size, int) else sizes.get(size or "", default if axis else 1)
            for axis, size in enumerate(dims)
        )
    try:
        tiler = Tiler(session, layout=layout)
        strides, smallest = tiler.strides(shapes), None
        if tiler.accepts(shapes):
            fixed = _fixed_axes(session, tiler.images(shapes))
            smallest = tuple(
                _size_range(tiler, shapes, axis, 0 if axis in fixed else stride) for axis, stride in enumerate(strides)
            )
        extents = tiler.extents(shapes)
        return Overview(shapes, strides, extents, smallest, tiler.run_bytes(shapes), tiler.lean_bytes(shapes))
    except UnpoolError as error:
        return Overview(shapes, refusal=str(error))


def _fixed_axes(session: "InferenceSession", images: Mapping[str, Axes]) -> set[int | None]:
    inputs = [(images.get(info.name, ()), info.shape or ()) for info in session.get_inputs()]
    return {axis for pair in inputs for axis, size in zip(*pair, strict=False) if isinstance(size, int)}
