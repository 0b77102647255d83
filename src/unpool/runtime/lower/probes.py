"""Makes a small model of each part of a lowered one, with inputs for it and the outputs that unpool's kernels give."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from math import prod

import numpy as np
import onnx
from onnx import helper, numpy_helper

from unpool import functional
from unpool.dtypes import AnyArray
from unpool.geometry import Window
from unpool.operators import max_unpool, resolve
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.runtime.graph.dims import as_ints
from unpool.runtime.graph.nodes import attributes, node_name
from unpool.runtime.lower.lowered import Part
from unpool.runtime.lower.pooling import Pooling

OUTER = (2, 3)
"""Batch and channels; no form depends on them."""

OPEN_SIZES = (9, 12)
"""Elements along axes of unknown size, besides what one window reaches over."""

MOST_ELEMENTS = 10_000
"""Elements of a plane whose sizes are unknown: with many axes, sizes are smaller than `OPEN_SIZES`."""

Feed = Mapping[str, AnyArray]


@dataclass(frozen=True)
class Probe:
    """One part alone.

    Attributes:
        node: name of the MaxUnpool.
        model: the nodes in its place.
        cases: inputs, each with the output.
        dtype: element type of the values.
    """

    node: str
    model: onnx.ModelProto
    cases: tuple[tuple[Feed, AnyArray], ...]
    dtype: np.dtype[np.generic]


def probe(part: Part, opset: int, ir_version: int) -> Probe | None:
    """The part as a model of this opset of ONNX and this IR version; None where its output has too few elements.

    It begins with the values that are pooled, so without an Unsqueeze before them.
    """
    rng = np.random.default_rng(7)
    make = _scattered if part.pooling is None else _followed
    cases = tuple(make(part, opset, rng))
    if not cases:
        return None
    inputs = [_declared(name, array) for name, array in cases[0][0].items()]
    output = _declared(part.edit.output, cases[0][1])
    tensors = [numpy_helper.from_array(array, name) for name, array in part.edit.constants.items()]
    nodes = [node for node in part.edit.nodes if node.output[0] not in cases[0][0]]
    graph = helper.make_graph(nodes, "part", inputs, [output], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
    return Probe(node_name(part.unpooling.node), model, cases, part.dtype)


def _declared(name: str, array: AnyArray) -> onnx.ValueInfoProto:
    """A value of the type and rank of an array; a vector is a shape, whose length is known."""
    sizes = array.shape if array.ndim == 1 else [None] * array.ndim
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), sizes)


def _followed(part: Part, opset: int, rng: np.random.Generator) -> Iterator[tuple[Feed, AnyArray]]:
    """Values that are pooled and unpooled: small integers, many of them equal, and normal numbers."""
    pooling = part.pooling
    assert pooling is not None
    pool = resolve.spec("MaxPool", _pool_attributes(pooling), opset=opset)
    for size, is_whole in zip(OPEN_SIZES, (True, False), strict=True):
        large = pooling.large or _open_sizes(pooling.windows, size)
        x = _numbers((*OUTER, *large), part.dtype, rng, is_whole=is_whole)
        y, indices = functional.run(pool, [x], outputs=2)
        known = {pooling.x: x, pooling.y: y}
        name = part.unpooling.node.input[0]
        values = known.setdefault(name, _numbers(y.shape, part.dtype, rng, is_whole=False))
        yield known, _unpooled(part, opset, values, indices, x.shape)


def _scattered(part: Part, opset: int, rng: np.random.Generator) -> Iterator[tuple[Feed, AnyArray]]:
    """Values that go to places of which none comes twice; nothing where there are fewer places."""
    one = part.unpooling
    asked = as_ints(one.asked or (None,))
    small = as_ints(one.small) or tuple(map(min, _small_sizes(one.spec), asked or repeat(MOST_ELEMENTS)))
    inferred = _inferred(one.spec, small)
    shape = (*OUTER, *(asked or inferred))
    x = _numbers((*OUTER, *small), part.dtype, rng, is_whole=False)
    if x.size > prod(shape):
        return
    indices = rng.permutation(prod(shape))[: x.size].reshape(x.shape).astype(np.int64)
    feed = {one.node.input[0]: x, one.node.input[1]: indices}
    if len(one.node.input) > 2 and one.node.input[2]:
        feed[one.node.input[2]] = np.array(shape, np.int64)
    yield feed, _unpooled(part, opset, x, indices, shape)


def _small_sizes(spec: MaxUnpoolSpec) -> tuple[int, ...]:
    """Sizes of a plane to unpool, the larger ones of which the result has at most `MOST_ELEMENTS` elements."""
    rank = len(spec.windows)
    for most in range(OPEN_SIZES[0], 0, -1):
        sizes = tuple(most + axis for axis in range(rank))
        if prod(_inferred(spec, sizes)) <= MOST_ELEMENTS:
            return sizes
    return (1,) * rank


def _inferred(spec: MaxUnpoolSpec, small: Sequence[int]) -> tuple[int, ...]:
    return tuple(max_unpool.inferred_size(spec, axis, size) for axis, size in enumerate(small))


def _open_sizes(windows: Sequence[Window], most: int) -> tuple[int, ...]:
    """Sizes of a plane, besides what a window needs: along each axis one more than along the axis before it.

    >>> _open_sizes([Window(2)] * 2, 9), _open_sizes([Window(2)] * 6, 9), _open_sizes([Window(2)] * 8, 9)
    ((11, 12), (3, 4, 5, 6, 7, 8), (3, 3, 3, 3, 3, 3, 3, 3))
    """
    for more in range(most, 0, -1):
        sizes = tuple(window.reach + more + axis for axis, window in enumerate(windows))
        if prod(sizes) <= MOST_ELEMENTS:
            return sizes
    return tuple(window.reach + 1 for window in windows)


def _unpooled(part: Part, opset: int, x: AnyArray, indices: AnyArray, shape: Sequence[int]) -> AnyArray:
    given = attributes(part.unpooling.node)
    spec = resolve.spec("MaxUnpool", given, opset=opset, index_space="output")
    assert isinstance(spec, MaxUnpoolSpec)
    made: AnyArray = functional.run(spec, [x, indices, np.array(shape, np.int64)])[0]
    return made


def _pool_attributes(pooling: Pooling) -> dict[str, object]:
    windows = pooling.windows
    return {
        "kernel_shape": [window.size for window in windows],
        "strides": [window.stride for window in windows],
        "dilations": [window.dilation for window in windows],
        "pads": [*pooling.begins, *pooling.ends],
        "ceil_mode": int(pooling.ceil),
    }


def _numbers(
    shape: Sequence[int], dtype: np.dtype[np.generic], rng: np.random.Generator, *, is_whole: bool
) -> AnyArray:
    """Small integers, both zeros among them, or normal numbers."""
    drawn = rng.integers(-2, 3, shape) * rng.choice([-1.0, 1.0], shape) if is_whole else rng.standard_normal(shape)
    array: AnyArray = drawn.astype(dtype)
    return array
