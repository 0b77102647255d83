"""Counts the elements and the products of a run before it runs, and picks sizes for open axes by them.

Nodes in the subgraphs of If, Loop and Scan count too: both branches of an If, and the subgraph of a loop
as often as it surely runs.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.operators.contract import NHWC
from unpool.runtime.graph import shapes
from unpool.runtime.graph.dynamic_dims import DimFlow, as_int
from unpool.runtime.graph.graph import Graph, evaluate_node
from unpool.runtime.graph.nodes import attributes, domain, reads, subgraphs, writes
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.graph.shape_inference import Inference, infer
from unpool.runtime.graph.weights import LARGE
from unpool.runtime.session.executor import Executor
from unpool.runtime.session.random_inputs import feed_shapes

MOST_ELEMENTS = 2**25
"""Elements of all values, in all runs of one search: 128 MiB of float32."""

MOST_PRODUCTS = 2**30
"""Products of windows and matrices with their weights, and taps of pools, in all runs of one search."""

PRODUCTS_PER_WEIGHT = 512
"""A model with many weights may take more than `MOST_PRODUCTS`: so many times the elements of its constants."""

SIZES = (32, 13, 33, 5, 48, 36, 40, 34, 96, 224, 2, 1)
"""Tried in turn for open sizes; some models only take what leaves one remainder when it is halved often."""

WIDEST_STRIDE = 224
SHRINKING = ("AveragePool", "Conv", "LpPool", "MaxPool")
GROWING = ("ConvTranspose", "MaxUnpool")

COMPUTED = (
    *("Abs", "Add", "Cast", "Ceil", "Concat", "Div", "Equal", "Exp", "Floor", "Gather", "Greater", "Identity", "Less"),
    *("Log", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Pow", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum"),
    *("Reshape", "Round", "Shape", "Size", "Slice", "Sqrt", "Squeeze", "Sub", "Unsqueeze", "Where"),
)
"""Operators of which shapes are computed."""

MOST_ROUNDS = 8
"""Number of passes of type inference; each starts from the result of the one before."""

Shapes = Mapping[str, tuple[int, ...]]


class Workload(NamedTuple):
    """The size of a run.

    Attributes:
        elements: of all values, those of the inputs included; a value of unknown size counts as the largest known one.
        products: of weights with elements, and elements that pools compare.
        is_empty: whether an image in it has no elements.
    """

    elements: int
    products: int
    is_empty: bool

    def without(self, other: "Workload") -> "Workload":
        """Remaining budget after a run of another size."""
        return Workload(self.elements - other.elements, self.products - other.products, self.is_empty)


@dataclass(frozen=True)
class SizedGraph:
    """A graph without its large weights, whose input shapes may be filled in.

    Attributes:
        graph: after all passes.
        semantics: how the three operators are read.
    """

    graph: Graph
    semantics: Semantics

    def workload(self, feed: Shapes) -> Workload | None:
        """The size of a run on inputs of these shapes; None where no run is possible."""
        inputs = tuple(_with_shape(value, feed.get(value.name)) for value in self.graph.inputs)
        try:
            work = self._of_nodes(replace(self.graph, inputs=inputs))
        except UnpoolError:
            return None
        return work._replace(elements=work.elements + sum(map(math.prod, feed.values())))

    def _of_nodes(self, graph: Graph) -> Workload:
        """The size of a run of all nodes of a graph whose inputs have shapes."""
        flow, inference = _followed(graph, self.semantics)
        made = [_shape(flow, name) for node in graph.nodes for name in writes(node)]
        read = [_shape(flow, value.name) for value in graph.inputs]
        counts = [math.prod(one) for one in made if one is not None]
        largest = max(math.prod(one) for one in (*made, *read, (0,)) if one is not None)
        is_empty = any(one is not None and len(one) > 2 and math.prod(one) == 0 for one in made)
        elements = sum(counts) + (len(made) - len(counts)) * largest
        products = sum(_products(flow, node) for node in graph.nodes)
        for parent, subgraph, types in _outer_subgraphs(flow.graph.nodes, inference.subgraph_types):
            try:
                inner = self._of_nodes(_subgraph_as_graph(flow.graph, subgraph, types))
            except UnpoolError:
                continue  # what onnx refuses of it, a run will tell
            times = _times(flow, parent)
            elements += times * inner.elements
            products += times * inner.products
        return Workload(elements, products, is_empty)

    def most(self) -> Workload:
        """The size of all runs of one search together, at most."""
        weights = sum(math.prod(tensor.dims) for tensor in self.graph.constants.values())
        products = max(MOST_PRODUCTS, PRODUCTS_PER_WEIGHT * weights)
        return Workload(MOST_ELEMENTS + weights, products, is_empty=False)

    def sizes(self) -> Iterator[int]:
        """Sizes to try for open axes: 32, an odd one, multiples of the total stride, and others."""
        stride = min(self._total_stride(), WIDEST_STRIDE)
        yield from dict.fromkeys((*SIZES[:2], 2 * stride, stride, *SIZES[2:]))

    def _total_stride(self) -> int:
        """Elements of an input per element of the value that shrinks most."""
        scales: dict[str, Fraction] = {}
        for node in self.graph.nodes:
            scale = max((scales.get(name, Fraction(1)) for name in node.input), default=Fraction(1))
            stride = max(attributes(node).get("strides") or [1]) if domain(node) in ("", NHWC) else 1
            if node.op_type in SHRINKING:
                scale = min(scale * stride, Fraction(WIDEST_STRIDE))
            elif node.op_type in GROWING:
                scale /= max(stride, 1)
            scales |= dict.fromkeys(writes(node), scale)
        return max(1, math.ceil(max(scales.values(), default=Fraction(1))))


class Trials:
    """Sizes to try in turn for the axes that a model leaves open: all runs together stay within `SizedGraph.most`.

    Sizes that leave an image without elements come last. Where a model and a caller leave nothing open, there is one
    size, which means nothing, and no limit. `refusal` has the reason of the last size that was left out, or "".
    """

    def __init__(self, loaded: Executor, sizes: Mapping[str, int]) -> None:
        assert loaded.graph is not None
        self._sized = SizedGraph(loaded.graph, loaded.semantics)
        self._inputs, self._sizes = loaded.signature.inputs, sizes
        self.refusal = ""

    def __iter__(self) -> Iterator[int]:
        if self._shapes(1) == self._shapes(WIDEST_STRIDE):
            yield 1
            return
        left, seen = self._sized.most(), list[Shapes]()
        empty: list[tuple[int, Workload]] = []
        for size in self._sized.sizes():
            wanted = self._shapes(size)
            work = None if wanted in seen else self._sized.workload(wanted)
            seen.append(wanted)
            if work is None:
                continue
            if work.is_empty:
                empty.append((size, work))
            elif self._fits(size, work, left):
                left = left.without(work)
                yield size
        for size, work in empty:
            if self._fits(size, work, left):
                left = left.without(work)
                yield size

    def _shapes(self, open_size: int) -> Shapes:
        return feed_shapes(self._inputs, self._sizes, open_size)

    def _fits(self, size: int, work: Workload, most: Workload) -> bool:
        fits = work.elements <= most.elements and work.products <= most.products
        if not fits:
            self.refusal = (
                f"with {size} for the sizes that it leaves open, a run takes {work.elements:,} elements and "
                f"{work.products:,} products, more than are taken unasked."
            )
        return fits


def _followed(graph: Graph, semantics: Semantics) -> tuple[DimFlow, Inference]:
    """Inferred shapes of a graph for given input shapes, those that it computes included.

    Where a node chooses elements by their values, it is taken to choose all of them.
    """
    for _ in range(MOST_ROUNDS):
        inference = infer(graph, semantics)
        flow = DimFlow(graph, inference.types)
        values = _computed_values(flow)
        choices = {value.name: value for node in graph.nodes for value in _largest_choice(flow, node)}
        found = {*values, *choices}
        if not found:
            break
        constants = {name: numpy_helper.from_array(array, name) for name, array in values.items()}
        graph = replace(
            graph,
            nodes=tuple(node for node in graph.nodes if found.isdisjoint(writes(node))),
            constants={**graph.constants, **constants},
            inputs=(*graph.inputs, *choices.values()),
        )
    return flow, inference


def _computed_values(flow: DimFlow) -> dict[str, AnyArray]:
    """Small values that a graph computes from the shapes of others, and from constants."""
    found: dict[str, AnyArray] = {}
    for node in flow.graph.nodes:
        if domain(node) != "" or node.op_type not in COMPUTED or len(node.output) != 1:
            continue
        array = _computed(flow, node, found)
        if array is not None and array.size <= LARGE:
            found[node.output[0]] = array
    return found


def _computed(flow: DimFlow, node: onnx.NodeProto, found: Mapping[str, AnyArray]) -> AnyArray | None:
    if node.op_type in ("Shape", "Size"):
        shape, given = _shape(flow, node.input[0]), attributes(node)
        if shape is None:
            return None
        return np.array(math.prod(shape) if node.op_type == "Size" else shape[given.get("start", 0) : given.get("end")])
    feed = {name: found.get(name, flow.constant(name)) for name in filter(None, node.input)}
    known = {name: array for name, array in feed.items() if array is not None}
    return evaluate_node(flow.graph, node, known) if len(known) == len(feed) else None


def _largest_choice(flow: DimFlow, node: onnx.NodeProto) -> list[onnx.ValueInfoProto]:
    """The outputs of a NonZero, Compress or Unique that chooses all elements; none of another node."""
    if domain(node) != "" or node.op_type not in ("NonZero", "Compress", "Unique"):
        return []
    x = _shape(flow, node.input[0])
    if x is None:
        return []
    count = math.prod(x)
    shape = (len(x), count) if node.op_type == "NonZero" else x if "axis" in attributes(node) else (count,)
    kinds = {name: shapes.element(flow.types.get(name)) for name in writes(node)}
    return [helper.make_tensor_value_info(name, kind, shape) for name, kind in kinds.items() if kind > 0]


def _outer_subgraphs(
    nodes: Iterable[onnx.NodeProto], inner: Iterable[Mapping[str, onnx.TypeProto]]
) -> Iterator[tuple[onnx.NodeProto, onnx.GraphProto, Mapping[str, onnx.TypeProto]]]:
    """The subgraphs of nodes, without those inside subgraphs: each with its node, and the types of what it sees.

    `inner` has the types for each subgraph at any depth, in the order in which the subgraphs end.
    """
    types = iter(inner)
    for node in nodes:
        for _, subgraph in subgraphs(node):
            for _ in _outer_subgraphs(subgraph.node, types):
                pass
            yield node, subgraph, next(types)


def _subgraph_as_graph(graph: Graph, subgraph: onnx.GraphProto, types: Mapping[str, onnx.TypeProto]) -> Graph:
    """A subgraph as a graph of its own, which has what it reads from around it as inputs."""
    constants = {**graph.constants, **{tensor.name: tensor for tensor in subgraph.initializer}}
    made = {name for node in subgraph.node for name in writes(node)}
    read = dict.fromkeys(name for node in subgraph.node for name in reads(node))
    names = [name for name in read if name not in made and name not in constants and name in types]
    inputs = tuple(helper.make_value_info(name, types[name]) for name in names)
    return Graph(tuple(subgraph.node), constants, {}, {}, inputs, (), {}, graph.opsets, graph.ir_version)


def _times(flow: DimFlow, node: onnx.NodeProto) -> int:
    """Number of times that the subgraph of a node certainly runs; a Loop may end before its constant trip count."""
    if node.op_type == "Loop" and node.input[0] and node.input[0] not in flow.graph.constants:
        known = flow.values(node.input[0])
        times = as_int(known[0]) if known else None
        return 1 if times is None else max(times, 1)
    if node.op_type == "Scan" and domain(node) == "":
        given = attributes(node)
        count = given.get("num_scan_inputs", 0)
        axes = given.get("scan_input_axes") or [0] * count
        whole = [_shape(flow, name) for name in node.input[len(node.input) - count :]]
        lengths = [one[axis] for one, axis in zip(whole, axes, strict=False) if one and -len(one) <= axis < len(one)]
        return max(lengths, default=1)
    return 1


def _with_shape(value: onnx.ValueInfoProto, shape: tuple[int, ...] | None) -> onnx.ValueInfoProto:
    element = shapes.element(value.type)
    return value if shape is None or element < 1 else helper.make_tensor_value_info(value.name, element, shape)


def _shape(flow: DimFlow, name: str) -> tuple[int, ...] | None:
    """The sizes of a value; None unless all of them are known."""
    known = [as_int(size) for size in flow.dims(name) or (None,)] if flow.dims(name) != () else []
    found = tuple(max(size, 0) for size in known if size is not None)
    return found if len(found) == len(known) else None


def _products(flow: DimFlow, node: onnx.NodeProto) -> int:
    """Number of multiplications or comparisons of a node, as far as its sizes are known."""
    x, y = (_shape(flow, name) if name else None for name in (*node.input[:1], *node.output[:1], "", "")[:2])
    w = _shape(flow, node.input[1]) if len(node.input) > 1 and node.input[1] else None
    if node.op_type in ("MaxPool", "AveragePool", "LpPool") and x and y:
        image = x[1:-1] if domain(node) == NHWC else x[2:]
        window: list[int] = attributes(node).get("kernel_shape", [])
        return math.prod(y) * math.prod(map(min, window, image))
    if node.op_type == "Conv" and w and y:
        return math.prod(y) * math.prod(w[1:])
    if node.op_type == "ConvTranspose" and w and x:
        return math.prod(x) * math.prod(w[1:])
    if node.op_type in ("MatMul", "Gemm") and w and y:
        return math.prod(y) * max(w[-2:])
    return 0
