"""Counts the elements and the products of a run before it runs, and picks sizes for open axes by them.

Nodes in the subgraphs of If, Loop and Scan count too: both branches of an If, and the subgraph of a loop
as often as it is known to run.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError
from unpool.graph import shapes
from unpool.graph.dynamic_dims import DimFlow, as_int, as_ints
from unpool.graph.graph import Graph, drop_constant_data, evaluate_node
from unpool.graph.nodes import attributes, domain, reads, subgraphs, writes
from unpool.graph.operators import FACTS, OperatorFact, having
from unpool.graph.random_inputs import feed_shapes
from unpool.graph.shape_inference import Inference, infer
from unpool.graph.weights import LARGE
from unpool.onnxruntime.session import InferenceSession
from unpool.operators.contract import NHWC
from unpool.operators.semantics import Semantics

MOST_ELEMENTS = 2**25  # of all values, in all runs of one search: 128 MiB of float32
MOST_PRODUCTS = 2**30  # of windows and matrices with their weights, and taps of pools, in all runs of one search
PRODUCTS_PER_WEIGHT = 512  # a model with many weights may take more than `MOST_PRODUCTS`: this many per element of them

SIZES = (32, 13, 33, 5, 48, 36, 40, 34, 96, 224, 2, 1)
"""Tried in turn for open sizes; some models only take what leaves one remainder when it is halved often."""

WIDEST_STRIDE = 224
COMPUTED = having(OperatorFact.UNARY, OperatorFact.BROADCASTING, OperatorFact.REDUCING, OperatorFact.MOVES)
COMPUTED |= {"Concat", "Gather", "Shape", "Size", "Slice"}
"""Operators that compute shapes from shapes."""

MOST_ROUNDS = 8  # rounds of type inference; each starts from the result of the round before
Shapes = Mapping[str, tuple[int, ...]]


class Workload(NamedTuple):
    """The size of a run.

    `elements` are those of all values, inputs included; a value of unknown size counts as the largest known one.
    `products` are those of weights with elements, and the elements that pools compare.
    """

    elements: int
    products: int
    is_empty: bool  # an image in it has no elements


class Trials:
    """Sizes to try in turn for the axes that a model leaves open: all runs together stay within the limits above.

    Sizes that leave an image without elements come last. Where a model and a caller leave nothing open, there is one
    size, which means nothing, and no limit. `refusal` has the reason of the last size that was left out, or "".
    """

    def __init__(self, session: InferenceSession, sizes: Mapping[str, int]) -> None:
        graph, _, self._semantics = session.prepared_graph()
        self._graph = drop_constant_data(graph)
        self._inputs, self._sizes = session.get_inputs(), sizes
        self.refusal = ""

    def __iter__(self) -> Iterator[int]:
        if self._shapes(1) == self._shapes(WIDEST_STRIDE):
            yield 1
            return
        weights = sum(math.prod(tensor.dims) for tensor in self._graph.constants.values())
        elements, products = MOST_ELEMENTS + weights, max(MOST_PRODUCTS, PRODUCTS_PER_WEIGHT * weights)
        for size, work in self._workloads():
            if work.elements <= elements and work.products <= products:
                elements, products = elements - work.elements, products - work.products
                yield size
            else:
                self.refusal = (
                    f"with {size} for the sizes that it leaves open, a run takes {work.elements:,} elements and "
                    f"{work.products:,} products, which is above the limit."
                )

    def workload(self, feed: Shapes) -> Workload | None:
        """The size of a run on inputs of these shapes; None where no run is possible."""
        inputs = []
        for value in self._graph.inputs:
            element, shape = shapes.element(value.type), feed.get(value.name)
            is_known = shape is not None and element > 0
            inputs.append(helper.make_tensor_value_info(value.name, element, shape) if is_known else value)
        try:
            work = _workload(replace(self._graph, inputs=tuple(inputs)), self._semantics)
        except UnpoolError:
            return None
        return work._replace(elements=work.elements + sum(map(math.prod, feed.values())))

    def _workloads(self) -> Iterator[tuple[int, Workload]]:
        """The possible sizes, each with its run, those with an empty image last."""
        seen, empty = list[Shapes](), list[tuple[int, Workload]]()
        stride = min(self._total_stride(), WIDEST_STRIDE)
        for size in dict.fromkeys((*SIZES[:2], 2 * stride, stride, *SIZES[2:])):
            feed = self._shapes(size)
            work = None if feed in seen else self.workload(feed)
            seen.append(feed)
            if work is not None and work.is_empty:
                empty.append((size, work))
            elif work is not None:
                yield size, work
        yield from empty

    def _shapes(self, open_size: int) -> Shapes:
        return feed_shapes(self._inputs, self._sizes, open_size)

    def _total_stride(self) -> int:
        """Elements of an input per element of the value that shrinks most."""
        scales: dict[str, Fraction] = {}
        for node in self._graph.nodes:
            scale = max((scales.get(name, Fraction(1)) for name in node.input), default=Fraction(1))
            stride = max(attributes(node).get("strides") or [1]) if domain(node) in ("", NHWC) else 1
            if OperatorFact.SHRINKING in FACTS.get(node.op_type, ()):
                scale = min(scale * stride, Fraction(WIDEST_STRIDE))
            elif OperatorFact.GROWING in FACTS.get(node.op_type, ()):
                scale /= max(stride, 1)
            scales |= dict.fromkeys(writes(node), scale)
        return max(1, math.ceil(max(scales.values(), default=Fraction(1))))


def _workload(graph: Graph, semantics: Semantics) -> Workload:
    """The size of a run of all nodes of a graph whose inputs have shapes."""
    flow, inference = _followed(graph, semantics)
    outputs = [_shape(flow, name) for node in graph.nodes for name in writes(node)]
    inputs = [_shape(flow, value.name) for value in graph.inputs]
    counts = [math.prod(shape) for shape in outputs if shape is not None]
    largest = max(math.prod(shape) for shape in (*outputs, *inputs, (0,)) if shape is not None)
    is_empty = any(shape is not None and len(shape) > 2 and math.prod(shape) == 0 for shape in outputs)
    elements = sum(counts) + (len(outputs) - len(counts)) * largest
    products = sum(_products(flow, node) for node in graph.nodes)
    for parent, subgraph, types in _outer_subgraphs(flow.graph.nodes, inference.subgraph_types):
        try:
            inner = _workload(_subgraph_as_graph(flow.graph, subgraph, types), semantics)
        except UnpoolError:
            continue  # the run itself reports the error of onnx
        times = _times(flow, parent)
        elements += times * inner.elements
        products += times * inner.products
    return Workload(elements, products, is_empty)


def _followed(graph: Graph, semantics: Semantics) -> tuple[DimFlow, Inference]:
    """Inferred shapes of a graph for given input shapes, those that it computes included.

    Where a node chooses elements by their values, it is taken to choose all of them.
    """
    for _ in range(MOST_ROUNDS):
        inference = infer(graph, semantics)
        flow = DimFlow(graph, inference.types)
        values = _computed_values(flow)
        choices = {value.name: value for node in graph.nodes for value in _largest_choice(flow, node)}
        replaced = {*values, *choices}
        if not replaced:
            break
        constants = {name: numpy_helper.from_array(array, name) for name, array in values.items()}
        graph = replace(
            graph,
            nodes=tuple(node for node in graph.nodes if replaced.isdisjoint(writes(node))),
            constants={**graph.constants, **constants},
            inputs=(*graph.inputs, *choices.values()),
        )
    return flow, inference


def _computed_values(flow: DimFlow) -> dict[str, AnyArray]:
    """Small values that a graph computes from the shapes of others, and from constants."""
    values: dict[str, AnyArray] = {}
    for node in flow.graph.nodes:
        if domain(node) == "" and node.op_type in COMPUTED and len(node.output) == 1:
            array = _computed(flow, node, values)
            if array is not None and array.size <= LARGE:
                values[node.output[0]] = array
    return values


def _computed(flow: DimFlow, node: onnx.NodeProto, values: Mapping[str, AnyArray]) -> AnyArray | None:
    if node.op_type in ("Shape", "Size"):
        shape, given = _shape(flow, node.input[0]), attributes(node)
        if shape is None:
            return None
        return np.array(math.prod(shape) if node.op_type == "Size" else shape[given.get("start", 0) : given.get("end")])
    feed = {name: values.get(name, flow.constant(name)) for name in filter(None, node.input)}
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
    """The subgraphs of nodes, without those inside subgraphs: each with its node, and the types that it sees.

    `inner` has the types for each subgraph at any depth, in the order in which the subgraphs end.
    """
    types = iter(inner)
    for node in nodes:
        for _, subgraph in subgraphs(node):
            for _ in _outer_subgraphs(subgraph.node, types):
                pass
            yield node, subgraph, next(types)


def _subgraph_as_graph(graph: Graph, subgraph: onnx.GraphProto, types: Mapping[str, onnx.TypeProto]) -> Graph:
    """A subgraph as a separate graph, whose inputs are the values that it reads from outside."""
    constants = {**graph.constants, **{tensor.name: tensor for tensor in subgraph.initializer}}
    inner = constants.keys() | {name for node in subgraph.node for name in writes(node)}
    names = dict.fromkeys(name for node in subgraph.node for name in reads(node) if name not in inner and name in types)
    inputs = tuple(helper.make_value_info(name, types[name]) for name in names)
    return Graph(tuple(subgraph.node), constants, {}, {}, inputs, (), {}, graph.opsets, graph.ir_version)


def _times(flow: DimFlow, node: onnx.NodeProto) -> int:
    """Number of times that the subgraph of a node certainly runs; a Loop may end before its constant trip count."""
    if node.op_type == "Loop" and node.input[0] and node.input[0] not in flow.graph.constants:
        times = as_int((flow.values(node.input[0]) or (None,))[0])
        return 1 if times is None else max(times, 1)
    if node.op_type == "Scan" and domain(node) == "":
        given = attributes(node)
        count = given.get("num_scan_inputs", 0)
        axes = given.get("scan_input_axes") or [0] * count
        inputs = [_shape(flow, name) or () for name in node.input[len(node.input) - count :]]
        pairs = zip(inputs, axes, strict=False)
        return max((shape[axis] for shape, axis in pairs if -len(shape) <= axis < len(shape)), default=1)
    return 1


def _shape(flow: DimFlow, name: str) -> tuple[int, ...] | None:
    """The sizes of a value; None unless all of them are known."""
    dims = flow.dims(name)
    sizes = None if dims is None else as_ints(dims)
    return sizes and tuple(max(size, 0) for size in sizes)


def _products(flow: DimFlow, node: onnx.NodeProto) -> int:
    """Number of multiplications or comparisons of a node, as far as its sizes are known."""
    names = (*node.input, "", "")[:2] + (*node.output, "")[:1]
    x, w, y = (_shape(flow, name) if name else None for name in names)
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
