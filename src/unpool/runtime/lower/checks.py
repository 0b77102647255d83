"""Checks of a lowered model in other runtimes, before it is written: each unpooling bit for bit, then the whole model.

The nodes that replace a MaxUnpool run as a model of their own, and must give the bits of unpool's kernels. The whole
model must give the results of the original one: the same bits if no node rounds, otherwise the same except for
rounding. Where two values are almost equal, rounding decides which is the maximum, so a small share of the values may
move. Some runtimes compute float16 and bfloat16 in float32 and do not round intermediate values: the results of the
original model in float32 are accepted there, too.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, repeat
from math import prod
from operator import add
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from unpool import functional
from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError, UnsupportedError
from unpool.graph import shapes
from unpool.graph.dynamic_dims import as_ints
from unpool.graph.errors import short_message
from unpool.graph.narrow_floats import HALF_NAMES, HALVES, narrowest_floats, widen
from unpool.graph.nodes import attributes, node_name, with_subgraph_nodes
from unpool.graph.operators import OperatorFact, having
from unpool.numerics import BITWISE, LOWERING, Tolerance, diff_arrays
from unpool.operators import max_unpool, resolve
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.operators.semantics import Semantics
from unpool.operators.tensors import Shape
from unpool.runtime.lower.unpooling import LoweredUnpool
from unpool.runtime.rewrite.open_model import open_model
from unpool.runtime.rewrite.verify import require_equal, runs
from unpool.runtime.runtimes import Feed, Runtime, runtimes, session_run, unpool_session

COPYING = having(OperatorFact.COPYING)

SLOW = frozenset({"AveragePool", "Conv", "ConvTranspose", "Gemm", "MatMul", "MaxPool"})
"""Operators for which the reference takes minutes in a model of usual size; it only checks the unpoolings."""

OUTER = (2, 3)  # batch and channels; no form depends on them
DYNAMIC_SIZES = (9, 12)  # elements along dynamic axes, in addition to the reach of one window
MAX_ELEMENTS = 10_000  # of a plane whose sizes are unknown: with many axes, sizes are smaller than `DYNAMIC_SIZES`


@dataclass(frozen=True)
class TestModel:
    """The nodes that replace one MaxUnpool, as a model of their own."""

    node: str  # the name of the MaxUnpool
    model: onnx.ModelProto
    cases: tuple[tuple[Feed, AnyArray], ...]  # inputs, each with the output of unpool's kernels
    dtype: np.dtype[np.generic]  # element type of the values


@dataclass(frozen=True)
class Baseline:
    """The results of the first model on random inputs."""

    runs: Sequence[tuple[Feed, list[Any]]]  # inputs, each with the outputs
    tolerances: Mapping[str, Tolerance]  # of the outputs, if a node rounds
    unrounded: Callable[[Feed], list[Any]] | None = None  # the outputs in float32; None without narrower types inside

    @classmethod
    def of_model(cls, model: onnx.ModelProto, semantics: Semantics, sizes: Mapping[str, int]) -> "Baseline":
        """The results of unpool."""
        exact = replace(semantics, exact=True)
        editable = open_model(model, exact)
        narrowest = narrowest_floats(editable.graph, editable.inference)
        return cls(
            list(runs(unpool_session(model, exact), sizes)),
            {name: LOWERING.through(narrowest.get(name, "")) for name in editable.graph.output_names},
            None if set(HALF_NAMES).isdisjoint(narrowest.values()) else partial(_run_in_float32, editable.model, exact),
        )


def _run_in_float32(model: onnx.ModelProto, semantics: Semantics, feed: Feed) -> list[Any]:
    """The outputs of a model that computes in float32 instead of float16 and bfloat16, in the types of the model."""
    session = unpool_session(widen(model, HALVES, TensorProto.FLOAT), semantics)
    wide = {name: array.astype(np.float32) if array.dtype.name in HALF_NAMES else array for name, array in feed.items()}
    dtypes = (shapes.dtype(value.type) for value in model.graph.output)
    return [
        output if dtype is None or dtype.name not in HALF_NAMES else output.astype(dtype)
        for dtype, output in zip(dtypes, session_run(session)(wide), strict=True)
    ]


@dataclass(frozen=True)
class RuntimeCheck:
    """The check of a lowered model in a runtime."""

    runtime: str  # its name and version
    reason: str = ""  # why it does not run the model; "" if it does, with the results of the first model

    def __str__(self) -> str:
        return f"{self.runtime}: {f'not checked, {self.reason}' if self.reason else 'equal results'}"


def check_lowering(
    lowered: onnx.ModelProto, tests: Sequence[TestModel], expected: Baseline
) -> tuple[RuntimeCheck, ...]:
    """Run the lowered model and its unpoolings in every installed runtime: an UnsupportedError if results differ."""
    return tuple(_check(runtime, lowered, tests, expected) for runtime in runtimes())


def _check(runtime: Runtime, lowered: onnx.ModelProto, tests: Sequence[TestModel], expected: Baseline) -> RuntimeCheck:
    narrow = sorted({test.dtype.name for test in tests} & runtime.changes)
    if narrow:
        return RuntimeCheck(runtime.name, f"it computes {narrow[0]} in another type")
    try:
        for test in tests:
            run = runtime.open(test.model)
            for feed, output in test.cases:
                (result,) = run(feed)
                _require_bits(f"{runtime.name}: {test.node}", output, result)
        _require_results(runtime, lowered, expected)
    except UnpoolError:
        raise
    except Exception as error:  # any exception of a runtime means that it does not run the model
        return RuntimeCheck(runtime.name, short_message(error))
    return RuntimeCheck(runtime.name)


def _require_results(runtime: Runtime, lowered: onnx.ModelProto, expected: Baseline) -> None:
    """Refuse a lowered model that gives other results than the first one."""
    operators = {node.op_type for node in with_subgraph_nodes(lowered.graph.node)}
    for feed, outputs in () if runtime.is_reference and operators & SLOW else expected.runs:
        results = dict(zip(expected.tolerances, runtime.open(lowered)(feed), strict=True))
        if operators <= COPYING:
            for own, (name, result) in zip(outputs, results.items(), strict=True):
                _require_bits(f"{runtime.name}: {name}", own, result)
            continue
        try:
            _require_close(runtime, expected, outputs, results)
        except UnsupportedError:
            if expected.unrounded is None:
                raise
            _require_close(runtime, expected, expected.unrounded(feed), results)


def _require_close(runtime: Runtime, expected: Baseline, outputs: Sequence[Any], results: Mapping[str, Any]) -> None:
    for own, (name, result) in zip(outputs, results.items(), strict=True):
        require_equal(f"{runtime.name}: {name}", own, result, expected.tolerances[name])


def _require_bits(name: str, expected: Any, actual: Any) -> None:
    """Zeros may differ in sign: onnxruntime's Where does not keep it."""
    if diff_arrays(expected, actual, BITWISE).differs:
        raise UnsupportedError(f"{name}: expected the bits that the first model gives, got others. Keep that model.")


def test_model(part: LoweredUnpool, opset: int, ir_version: int) -> TestModel | None:
    """The model of an unpooling, whose inputs are the values after any Unsqueeze; None if its output is too small."""
    rng = np.random.default_rng(7)
    cases = tuple((_scatter_cases if part.pooling is None else _pool_cases)(part, opset, rng))
    if not cases:
        return None
    inputs = [_value_info(name, array) for name, array in cases[0][0].items()]
    output = _value_info(part.edit.output, cases[0][1])
    tensors = [numpy_helper.from_array(array, name) for name, array in part.edit.constants.items()]
    nodes = [node for node in part.edit.nodes if node.output[0] not in cases[0][0]]
    graph = helper.make_graph(nodes, "part", inputs, [output], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
    return TestModel(node_name(part.unpooling.node), model, cases, part.dtype)


def _value_info(name: str, array: AnyArray) -> onnx.ValueInfoProto:
    """A value of the type and rank of an array; a vector is a shape, whose length is known."""
    sizes = array.shape if array.ndim == 1 else [None] * array.ndim
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), sizes)


def _pool_cases(part: LoweredUnpool, opset: int, rng: np.random.Generator) -> Iterator[tuple[Feed, AnyArray]]:
    """Values for a pool and its unpooling: small integers, many of them equal, and normal numbers."""
    pooling = part.pooling
    assert pooling is not None
    given = {
        "kernel_shape": [window.size for window in pooling.windows],
        "strides": list(pooling.strides),
        "dilations": [window.dilation for window in pooling.windows],
        "pads": [*pooling.begins, *pooling.ends],
        "ceil_mode": int(pooling.ceil),
    }
    pool = resolve.spec("MaxPool", given, opset=opset)
    for size, is_integer in zip(DYNAMIC_SIZES, (True, False), strict=True):
        large = pooling.large or _sizes([window.reach for window in pooling.windows], size)
        x = _numbers((*OUTER, *large), part.dtype, rng, is_integer=is_integer).astype(pooling.dtype)
        y, indices = functional.run(pool, [x], outputs=2)
        feed = {pooling.x: x, pooling.y: y}
        name = part.unpooling.node.input[0]
        values = feed.setdefault(name, _numbers(y.shape, part.dtype, rng, is_integer=False))
        yield feed, _unpooled(part, opset, values, indices, x.shape)


def _scatter_cases(part: LoweredUnpool, opset: int, rng: np.random.Generator) -> Iterator[tuple[Feed, AnyArray]]:
    """Values with indices that are all different; nothing where the output has fewer elements."""
    unpooling = part.unpooling
    asked = as_ints(unpooling.asked or (None,))
    inferred = partial(_inferred, unpooling.spec)
    small = as_ints(unpooling.small)
    if not small:
        largest = _sizes([0] * len(unpooling.spec.windows), DYNAMIC_SIZES[0], inferred)
        small = tuple(map(min, largest, asked or repeat(MAX_ELEMENTS)))
    shape = (*OUTER, *(asked or inferred(small)))
    x = _numbers((*OUTER, *small), part.dtype, rng, is_integer=False)
    if x.size > prod(shape):
        return
    indices = rng.permutation(prod(shape))[: x.size].reshape(x.shape).astype(np.int64)
    feed = {unpooling.node.input[0]: x, unpooling.node.input[1]: indices}
    if unpooling.shape:
        feed[unpooling.shape] = np.array(shape, np.int64)
    yield feed, _unpooled(part, opset, x, indices, shape)


def _inferred(spec: MaxUnpoolSpec, small: Sequence[int]) -> tuple[int, ...]:
    return tuple(max_unpool.inferred_size(spec, axis, size) for axis, size in enumerate(small))


def _sizes(bases: Sequence[int], most: int, counted: Callable[[Shape], Shape] = tuple) -> Shape:
    """Sizes of a plane above these, each by one more than the one before; so few that `counted` of them fit.

    >>> _sizes([2, 2], 9), _sizes([2] * 6, 9), _sizes([2] * 8, 9)
    ((11, 12), (3, 3, 3, 3, 3, 3), (3, 3, 3, 3, 3, 3, 3, 3))
    """
    candidates = (tuple(map(add, bases, count(more))) for more in range(most, 0, -1))
    smallest = tuple(base + 1 for base in bases)
    return next((sizes for sizes in candidates if prod(counted(sizes)) <= MAX_ELEMENTS), smallest)


def _unpooled(part: LoweredUnpool, opset: int, x: AnyArray, indices: AnyArray, shape: Sequence[int]) -> AnyArray:
    spec = resolve.spec("MaxUnpool", attributes(part.unpooling.node), opset=opset, index_space="output")
    assert isinstance(spec, MaxUnpoolSpec)
    output: AnyArray = functional.run(spec, [x, indices, np.array(shape, np.int64)])[0]
    return output


def _numbers(
    shape: Sequence[int], dtype: np.dtype[np.generic], rng: np.random.Generator, *, is_integer: bool
) -> AnyArray:
    """Small integers, both zeros among them, or normal numbers."""
    numbers = rng.integers(-2, 3, shape) * rng.choice([-1.0, 1.0], shape) if is_integer else rng.standard_normal(shape)
    array: AnyArray = numbers.astype(dtype)
    return array
