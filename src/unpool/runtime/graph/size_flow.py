"""Follows the sizes that a graph computes: what is known of the integers in a small tensor, whatever its shape.

A name in a size is that of the model, or stands for one axis of one value, so that two equal sizes are equal in every
call. Where the model leaves sizes open, they are followed through the nodes that grow and shrink them (`open_sizes`).
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

from unpool.dtypes import AnyArray
from unpool.runtime.graph import shapes
from unpool.runtime.graph.graph import Graph
from unpool.runtime.graph.nodes import attributes, domain
from unpool.runtime.graph.open_sizes import followed
from unpool.runtime.graph.size import MULTIPLE, Size, Sizes, number, product, quotient
from unpool.runtime.graph.symbolic import Dim
from unpool.runtime.graph.without_weights import LARGE, is_large

RESHAPING = ("Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten")
"""What leaves the elements and their order as they are."""


INTEGERS = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)
MOST_OPAQUE = 8
"""Integers of a value that get names of their own, since nothing else is known of them."""

DEEPEST = 100
"""Nodes that are followed back from a value; between a size and its use exporters write fewer."""


class SizeFlow:
    """Sizes in a graph whose types are known as far as `types` says."""

    def __init__(self, graph: Graph, types: Mapping[str, onnx.TypeProto]) -> None:
        self.graph = graph
        self.types = types
        self.makers = {name: node for node in graph.nodes for name in node.output if name}
        self._values: dict[str, Sizes | None] = {}
        self._dims: dict[str, Sizes] = {}
        self.depth = 0
        self._follow_open_sizes()

    def dims(self, name: str) -> Sizes | None:
        """Sizes of a value along its axes, each unknown size under a name of its own; None if the rank is unknown."""
        if name in self._dims:
            return self._dims[name]
        known = shapes.dims(self.types.get(name))
        return None if known is None else tuple(_size(name, axis, dim) for axis, dim in enumerate(known))

    def rank(self, name: str) -> int | None:
        """How many axes a value has."""
        known = shapes.dims(self.types.get(name))
        return None if known is None else len(known)

    def values(self, name: str) -> Sizes | None:
        """The integers in a value, in row-major order; None where not even their number is known."""
        if name not in self._values:
            self._values[name] = None
            with self.deeper() as is_near:
                self._values[name] = self._follow(name) if is_near else None
        return self._values[name]

    @contextmanager
    def deeper(self) -> Iterator[bool]:
        """Counts one node more on the way back from a value, and says whether the way is short enough to go on."""
        self.depth += 1
        try:
            yield self.depth <= DEEPEST
        finally:
            self.depth -= 1

    def constant(self, name: str) -> AnyArray | None:
        """A constant of the graph that is not large."""
        tensor = self.graph.constants.get(name)
        return None if tensor is None or is_large(tensor) else numpy_helper.to_array(tensor)

    def maker(self, name: str, *operators: str) -> onnx.NodeProto | None:
        """The node of ONNX's own domain that makes a value, if it is one of these operators."""
        node = self.makers.get(name)
        return node if node is not None and domain(node) == "" and node.op_type in operators else None

    def unshaped(self, name: str, rank: int | None = None) -> str:
        """The value before the nodes that only reshape it.

        With a rank, it is the nearest such value that has this rank, or the value itself if there is none.
        """
        now = name
        for _ in range(DEEPEST):
            if rank is not None and self.rank(now) == rank:
                return now
            node = self.maker(now, *RESHAPING)
            if node is None:
                break
            now = node.input[0]
        return now if rank is None else name

    def _follow_open_sizes(self) -> None:
        """Find the sizes that have neither a number nor a name yet, in the order of the nodes."""
        for node in self.graph.nodes:
            for name in filter(None, node.output):
                known = shapes.dims(self.types.get(name))
                if known is None or None not in known:
                    continue
                found = followed(self, node, len(known)) or (None,) * len(known)
                pairs = enumerate(zip(known, found, strict=True))
                self._dims[name] = tuple(
                    size if dim is None and size is not None else _size(name, axis, dim) for axis, (dim, size) in pairs
                )

    def _follow(self, name: str) -> Sizes | None:
        array = self.constant(name)
        if array is not None:
            is_integer = array.dtype.kind in "iu"
            return tuple(Size(int(one)) for one in array.reshape(-1)) if is_integer else None
        node = self.maker(name, *_RULES, *RESHAPING, "Cast")
        if shapes.element(self.types.get(name)) not in INTEGERS:
            return None
        if node is None:
            return self._opaque(name)
        rule = _RULES.get(node.op_type)
        return (self.values(node.input[0]) if rule is None else rule(self, node)) or self._opaque(name)

    def _opaque(self, name: str) -> Sizes | None:
        """The integers in a value of which nothing is known, each under a name of its own."""
        known = self.types.get(name)
        sizes = shapes.sizes(known)
        if shapes.element(known) not in INTEGERS or sizes is None or None in sizes:
            return None
        count = math.prod(size for size in sizes if size is not None)
        return tuple(Size(1, (f"{name}({place})",)) for place in range(count)) if count <= MOST_OPAQUE else None

    def shape_of(self, node: onnx.NodeProto) -> Sizes | None:
        """What a Shape node makes."""
        known, given = self.dims(node.input[0]), attributes(node)
        return None if known is None else known[given.get("start", 0) : given.get("end")]

    def concat(self, node: onnx.NodeProto) -> Sizes | None:
        """What a Concat of vectors makes."""
        parts = [self.values(name) for name in node.input]
        known = [part for part in parts if part is not None]
        fits = len(known) == len(parts) and sum(map(len, known)) <= LARGE
        return tuple(chain.from_iterable(known)) if fits else None

    def gather(self, node: onnx.NodeProto) -> Sizes | None:
        """What a Gather from a vector makes."""
        values, places = self.values(node.input[0]), self.constant(node.input[1])
        if values is None or places is None or any(not -len(values) <= one < len(values) for one in places.flat):
            return None
        return tuple(values[int(one)] for one in places.flat)

    def slice_of(self, node: onnx.NodeProto) -> Sizes | None:
        """What a Slice of a vector makes."""
        values, bounds = self.values(node.input[0]), slice_bounds(self, node)
        if values is None or bounds is None or bounds.axes not in ((0,), (-1,)) or bounds.steps != (1,):
            return None
        return values[bounds.starts[0] : bounds.ends[0]]

    def multiplied(self, node: onnx.NodeProto) -> Sizes | None:
        """What a Mul makes of two vectors, or of a vector and one number."""
        first, second = (self.values(name) for name in node.input)
        if first is None or second is None or (len(first) != len(second) and 1 not in (len(first), len(second))):
            return None
        length = max(len(first), len(second)) if first and second else 0
        pairs = zip(*(part * length if len(part) == 1 else part for part in (first, second)), strict=True)
        return tuple(product(pair) for pair in pairs)

    def added(self, node: onnx.NodeProto) -> Sizes | None:
        """What an Add makes of a vector and one known number."""
        return self._moved(node.input[0], node.input[1], 1) or self._moved(node.input[1], node.input[0], 1)

    def taken_away(self, node: onnx.NodeProto) -> Sizes | None:
        """What a Sub of one known number makes of a vector."""
        return self._moved(node.input[0], node.input[1], -1)

    def divided(self, node: onnx.NodeProto) -> Sizes | None:
        """What a Div of a vector by one known number makes."""
        values, divisor = self.values(node.input[0]), self._only_number(node.input[1])
        if values is None or divisor is None or divisor < 1:
            return None
        return tuple(size and quotient(size, 0, divisor) for size in values)

    def _moved(self, name: str, other: str, sign: int) -> Sizes | None:
        values, plus = self.values(name), self._only_number(other)
        if values is None or plus is None:
            return None
        return tuple(size and quotient(size, sign * plus, 1) for size in values)

    def _only_number(self, name: str) -> int | None:
        """The number that a value holds, if it is one known number."""
        values = self.values(name)
        return number(values[0]) if values is not None and len(values) == 1 else None

    def reduced(self, node: onnx.NodeProto) -> Sizes | None:
        """What a ReduceProd of all its elements makes."""
        values = self.values(node.input[0])
        return None if values is None or self.rank(node.input[0]) not in (0, 1) else (product(values),)


_RULES: Mapping[str, Callable[[SizeFlow, onnx.NodeProto], Sizes | None]] = {
    "Shape": SizeFlow.shape_of,
    "Concat": SizeFlow.concat,
    "Gather": SizeFlow.gather,
    "Slice": SizeFlow.slice_of,
    "Mul": SizeFlow.multiplied,
    "ReduceProd": SizeFlow.reduced,
    "Add": SizeFlow.added,
    "Sub": SizeFlow.taken_away,
    "Div": SizeFlow.divided,
}


class Bounds(NamedTuple):
    """Where a Slice begins and ends, along which axes, in which steps."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    axes: tuple[int, ...]
    steps: tuple[int, ...]


def slice_bounds(flow: SizeFlow, node: onnx.NodeProto) -> Bounds | None:
    """Bounds of a Slice node of any version, if they are constants."""
    starts: Any
    ends: Any
    axes: Any
    steps: Any
    if len(node.input) == 1:
        given = attributes(node)
        starts, ends = given["starts"], given["ends"]
        axes = given.get("axes", range(len(starts)))
        steps = [1] * len(starts)
    else:
        read = [flow.constant(name) if name else None for name in node.input[1:]]
        if any(array is None for array, name in zip(read, node.input[1:], strict=True) if name) or len(read) < 2:
            return None
        starts, ends = read[0], read[1]
        axes, steps = (*read[2:], None, None)[:2]
        assert starts is not None
        axes = np.arange(len(starts)) if axes is None else axes
        steps = np.ones(len(starts), np.int64) if steps is None else steps
    return Bounds(*(tuple(int(one) for one in part) for part in (starts, ends, axes, steps)))


def _size(name: str, axis: int, dim: Dim) -> Size:
    if isinstance(dim, int):
        return Size(dim)
    multiple = MULTIPLE.fullmatch(dim or "")
    if multiple is not None:
        return Size(int(multiple[1]), (multiple[2],))
    return Size(1, (dim or f"{name}[{axis}]",))
