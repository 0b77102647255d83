"""Fuses the five nodes of the activation Snake, and the Add before them, into one node of unpool's domain.

    a, b -> Add -> x -> Mul(frequency) -> Sin -> Pow(2) -> Mul(magnitude) -> Add(x)

Audio decoders (DAC, Oobleck, BigVGAN) have a Snake before every Conv and ConvTranspose. onnxruntime passes over memory
five times and computes the sine in one thread: 3.5 ms for a million elements, which the fused node computes in 0.3 ms.
If other nodes read the sum x too, such as the next Add, it is a second output. A Reshape before a Snake that keeps the
shape is removed.

The results of onnxruntime and unpool differ by rounding, at most by 2**-22 * (|x| + |magnitude|). So a Snake on which
the indices of a MaxPool depend is not fused.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from unpool.dtypes import AnyArray
from unpool.graph import shapes
from unpool.graph.graph import Graph, unused_names
from unpool.graph.nodes import domain, node_name
from unpool.graph.shapes import Types
from unpool.operators.unpool_domain import DOMAIN, VERSION
from unpool.passes.neighbours import Neighbours

LEAST_SIZE = 30_000  # elements, which take 0.1 ms: less is not worth a node of unpool's domain


@dataclass(frozen=True)
class _SnakeMatch:
    """Nodes that are a Snake, by position, in order, and the inputs, outputs and factors of its node."""

    positions: Sequence[int]
    sine: int  # position of the node whose name it has
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    factors: AnyArray  # (2, C): the frequency and the magnitude


def fuse_snake(graph: Graph, types: Types, excluded: Collection[str] = ()) -> Graph:
    """The graph, constants lifted, with every large Snake as one node.

    One that makes one of the `excluded` values stays.
    """
    if not any(node.op_type == "Sin" for node in graph.nodes):
        return graph
    nodes: dict[int, onnx.NodeProto] = dict(enumerate(graph.nodes))
    constants, folded, names = dict(graph.constants), dict(graph.folded_nodes), unused_names(graph)
    around = Neighbours(graph, types)
    for match in _matches(around):
        if not set(excluded).isdisjoint(match.outputs):
            continue
        around.taken.update(match.positions)
        for place in match.positions:
            del nodes[place]
        name, output = node_name(graph.nodes[match.sine]), match.outputs[0]
        factors = names.fresh(f"{output}_factors")
        constants[factors] = numpy_helper.from_array(match.factors, factors)
        x, *residual = match.inputs
        inputs = [x, factors, *residual]
        nodes[match.positions[0]] = helper.make_node("Snake", inputs, match.outputs, name, domain=DOMAIN)
        folded[output] = tuple(node_name(graph.nodes[place]) for place in match.positions if place != match.sine)
    if len(nodes) == len(graph.nodes):
        return graph
    in_order = tuple(nodes[position] for position in sorted(nodes))
    opsets = {**graph.opsets, DOMAIN: VERSION}
    return replace(graph, nodes=in_order, constants=constants, folded_nodes=folded, opsets=opsets)


def _matches(around: Neighbours) -> Iterator[_SnakeMatch]:
    """Every large Snake."""
    nodes = around.graph.nodes
    for position, node in enumerate(nodes):
        before = around.graph.makers.get(node.input[0]) if node.op_type == "Sin" and domain(node) == "" else None
        if before is None or node.input[0] not in around.graph.single:
            continue
        first = nodes[before]
        power = around.next(node.output[0], "Pow")
        after = None if power is None else around.next(nodes[power].output[0], "Mul")
        end = None if after is None else around.next(nodes[after].output[0], "Add")
        if first.op_type != "Mul" or domain(first) or power is None or after is None or end is None:
            continue
        exponent, product = around.array(nodes[power].input[1]), nodes[after].output[0]
        (x,) = [name for name in nodes[end].input if name != product] or [""]
        sizes = shapes.static_dims(around.types.get(x))
        if exponent is None or exponent.size != 1 or exponent.item() != 2 or x not in first.input:
            continue
        if not _is_large(sizes) or sizes is None or shapes.dtype(around.types.get(x)) != np.float32:
            continue
        rank, channels = len(sizes), sizes[1] or 0
        frequency = around.per_channel(first, x, rank, channels)
        magnitude = around.per_channel(nodes[after], nodes[power].output[0], rank, channels)
        if frequency is None or magnitude is None:
            continue
        found = _SnakeMatch(
            [before, position, power, after, end],
            position,
            (x,),
            (nodes[end].output[0],),
            np.stack([frequency, magnitude]),
        )
        yield _with_sum(around, _without_reshape(around, found))


def _without_reshape(around: Neighbours, match: _SnakeMatch) -> _SnakeMatch:
    """A match with the Reshape before it, if that keeps the shape of its input and nothing else reads it."""
    (x,) = match.inputs
    maker = around.graph.makers.get(x)
    node = None if maker is None else around.graph.nodes[maker]
    if maker is None or node is None or node.op_type != "Reshape" or domain(node):
        return match
    sizes = shapes.known_sizes(around.types.get(x))
    is_only = set(around.graph.readers[x]) <= set(match.positions) and x not in around.graph.output_names
    if sizes is None or sizes != shapes.known_sizes(around.types.get(node.input[0])) or not is_only:
        return match
    return replace(match, positions=[maker, *match.positions], inputs=(node.input[0],))


def _with_sum(around: Neighbours, match: _SnakeMatch) -> _SnakeMatch:
    """A match with the Add before it, if that adds two values of the same shape."""
    (x,) = match.inputs
    maker = around.graph.makers.get(x)
    node = None if maker is None else around.graph.nodes[maker]
    if maker is None or node is None or node.op_type != "Add" or domain(node) or maker in around.taken:
        return match
    constants = {*around.graph.constants, *around.graph.sparse_constants}
    sizes = {shapes.known_sizes(around.types.get(name)) for name in (x, *node.input)}
    if len(sizes) > 1 or None in sizes or not constants.isdisjoint(node.input):
        return match
    is_only = set(around.graph.readers[x]) <= set(match.positions) and x not in around.graph.output_names
    outputs = match.outputs if is_only else (*match.outputs, x)
    return replace(match, positions=[maker, *match.positions], inputs=tuple(node.input), outputs=outputs)


def _is_large(sizes: Sequence[int | None] | None) -> bool:
    """True if a value has three axes or more, and enough elements; an unknown size counts as large."""
    if sizes is None or len(sizes) < 3 or not sizes[1]:
        return False
    return None in sizes or math.prod(size for size in sizes if size is not None) >= LEAST_SIZE
