"""Follows the sizes that a graph computes: what is known of the integers in a small tensor, whatever its shape.

A size is a product of an int and of sizes of which only a name is known. A name is that of the model, or stands for
one axis of one value, so that two equal sizes are equal in every call.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnx
from onnx import numpy_helper

from unpool.dtypes import AnyArray
from unpool.runtime.graph import shapes
from unpool.runtime.graph.nodes import attributes, domain
from unpool.runtime.graph.record import Graph
from unpool.runtime.graph.symbolic import Dim
from unpool.runtime.graph.without_weights import LARGE, is_large

RESHAPING = ("Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten")
"""What leaves the elements and their order as they are."""


INTEGERS = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)
MOST_OPAQUE = 8
"""Integers of a value that get names of their own, since nothing else is known of them."""

MOST_NAMES = 32
MOST_BITS = 128
"""Names in a product, and bits of its factor: without a limit, a size that is squared again and again doubles both."""

DEEPEST = 100
"""Nodes that are followed back from a value; between a size and its use exporters write fewer."""


class Size(NamedTuple):
    """`factor` times the product of the named sizes; names are sorted."""

    factor: int
    names: tuple[str, ...] = ()

    def __mul__(self, other: object) -> "Size":
        if not isinstance(other, Size):
            return NotImplemented
        return Size(self.factor * other.factor, tuple(sorted(self.names + other.names)))


Sizes: TypeAlias = tuple[Size | None, ...]


def product(sizes: Sequence[Size | None]) -> Size | None:
    """All sizes multiplied; None if one is unknown.

    >>> product([Size(2), Size(3, ("n",))])
    Size(factor=6, names=('n',))
    """
    known = [size for size in sizes if size is not None]
    is_long = sum(len(size.names) for size in known) > MOST_NAMES
    if len(known) < len(sizes) or is_long or sum(size.factor.bit_length() for size in known) > MOST_BITS:
        return None
    return reduce(lambda one, other: one * other, known, Size(1))


def number(size: Size | None) -> int | None:
    """The size as an int, if it is one."""
    return None if size is None or size.names else size.factor


def numbers(sizes: Sequence[Size | None]) -> tuple[int, ...] | None:
    """The sizes as ints, if all of them are."""
    found = [number(size) for size in sizes]
    return tuple(one for one in found if one is not None) if None not in found else None


class SizeFlow:
    """Sizes in a graph whose types are known as far as `types` says."""

    def __init__(self, graph: Graph, types: Mapping[str, onnx.TypeProto]) -> None:
        self.graph = graph
        self.types = types
        self.makers = {name: node for node in graph.nodes for name in node.output if name}
        self._values: dict[str, Sizes | None] = {}
        self.depth = 0

    def dims(self, name: str) -> Sizes | None:
        """Sizes of a value along its axes, each unknown size under a name of its own; None if the rank is unknown."""
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
    return Size(1, (dim or f"{name}[{axis}]",))
