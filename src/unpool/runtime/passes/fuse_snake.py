"""The five nodes of the activation Snake become one step of unpool.

    x -> Mul(frequency) -> Sin -> Pow(2) -> Mul(magnitude) -> Add(x)

Decoders of sound (DAC, Oobleck, BigVGAN) have one before every Conv and ConvTranspose. onnxruntime passes over memory
five times and computes the sine in one thread: 3.5 ms for a million elements, of which a step takes 0.3. A Reshape
before it, which keeps the shape, is left out.

The results of onnxruntime and unpool differ by rounding, so a Snake on which the indices of a MaxPool depend stays.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper

from unpool.execute.snake import Snake
from unpool.runtime.graph import shapes
from unpool.runtime.graph.graph import Graph
from unpool.runtime.graph.nodes import domain, node_name
from unpool.runtime.graph.shapes import Types
from unpool.runtime.passes.neighbours import Neighbours

LEAST_SIZE = 30_000  # elements whose 0.1 ms are worth a step and the cut before and after it


def fuse_snake(graph: Graph, types: Types, excluded: Collection[str] = ()) -> Graph:
    """The graph, constants lifted, with every large Snake as one Sin; `computations` lists these.

    One that makes one of the `excluded` values stays.
    """
    if not any(node.op_type == "Sin" for node in graph.nodes):
        return graph
    nodes: dict[int, onnx.NodeProto] = dict(enumerate(graph.nodes))
    computations, folded = dict(graph.computations), dict(graph.folded_nodes)
    for positions, x, computation in _matches(Neighbours(graph, types)):
        matched = [graph.nodes[place] for place in positions]
        (sine,) = [node for node in matched if node.op_type == "Sin"]
        output = matched[-1].output[0]
        if output in excluded:
            continue
        fused = helper.make_node("Sin", [x], [output], node_name(sine))
        for place in positions:
            del nodes[place]
        nodes[positions[-1]] = fused
        computations[output] = computation
        folded[output] = tuple(node_name(node) for node in matched if node is not sine)
    in_order = tuple(nodes[position] for position in sorted(nodes))
    return replace(graph, nodes=in_order, computations=computations, folded_nodes=folded)


def _matches(around: Neighbours) -> Iterator[tuple[list[int], str, Snake]]:
    """The positions of the nodes of every large Snake, in order, its input, and what it computes."""
    for position, node in enumerate(around.graph.nodes):
        before = around.makers.get(node.input[0]) if node.op_type == "Sin" and domain(node) == "" else None
        if before is None or node.input[0] not in around.single:
            continue
        first = around.graph.nodes[before]
        power = around.next(node.output[0], "Pow")
        after = None if power is None else around.next(around.graph.nodes[power].output[0], "Mul")
        end = None if after is None else around.next(around.graph.nodes[after].output[0], "Add")
        if first.op_type != "Mul" or domain(first) or power is None or after is None or end is None:
            continue
        exponent = around.array(around.graph.nodes[power].input[1])
        product = around.graph.nodes[after].output[0]
        (x,) = [name for name in around.graph.nodes[end].input if name != product] or [""]
        sizes = shapes.static_dims(around.types.get(x))
        if exponent is None or exponent.size != 1 or exponent.item() != 2 or x not in first.input:
            continue
        if not _is_large(sizes) or sizes is None or shapes.dtype(around.types.get(x)) != np.float32:
            continue
        rank, channels = len(sizes), sizes[1] or 0
        frequency = around.per_channel(first, x, rank, channels)
        magnitude = around.per_channel(around.graph.nodes[after], around.graph.nodes[power].output[0], rank, channels)
        if frequency is None or magnitude is None:
            continue
        yield _without_reshape(around, [before, position, power, after, end], x, Snake(frequency, magnitude))


def _without_reshape(around: Neighbours, positions: list[int], x: str, snake: Snake) -> tuple[list[int], str, Snake]:
    """A match, from before a Reshape that keeps the shape of its input and that nothing else reads."""
    maker = around.makers.get(x)
    node = None if maker is None else around.graph.nodes[maker]
    if maker is None or node is None or node.op_type != "Reshape" or domain(node):
        return positions, x, snake
    sizes = shapes.static_dims(around.types.get(x))
    is_same = sizes is not None and None not in sizes and sizes == shapes.static_dims(around.types.get(node.input[0]))
    is_only = set(around.readers[x]) <= set(positions) and x not in around.graph.output_names
    return ([maker, *positions], node.input[0], snake) if is_same and is_only else (positions, x, snake)


def _is_large(sizes: Sequence[int | None] | None) -> bool:
    """True if a value has three axes or more, and enough elements; an unknown size counts as large."""
    if sizes is None or len(sizes) < 3 or not sizes[1]:
        return False
    return None in sizes or math.prod(size for size in sizes if size is not None) >= LEAST_SIZE
