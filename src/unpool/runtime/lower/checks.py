"""Checks a lowered model in other runtimes, before it is written: part by part bit for bit, and as a whole.

Each part, the nodes in the place of one MaxUnpool, runs alone, and must give the bits of unpool's kernels. The whole
model must give what the first one gives: its bits, where no node rounds, and otherwise the same but for rounding. Where
two values are almost equal, rounding decides which of them is the largest, so a small share may end up elsewhere.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError, UnsupportedError
from unpool.runtime.graph.errors import short_message
from unpool.runtime.graph.nodes import with_subgraph_nodes
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.lower.lowered import Check
from unpool.runtime.lower.probes import Probe
from unpool.runtime.lower.runtimes import Runtime, runtimes
from unpool.runtime.lower.target import words
from unpool.runtime.rewrite.verify import Feed, compare, runs
from unpool.runtime.session.executor import load_as_session

STRAYS = 0.05
"""Share of the results that rounding may put elsewhere."""

MOVING = words(
    """
    Abs Cast Concat Constant ConstantOfShape Equal Expand Flatten Gather Identity Max MaxPool MaxUnpool Min Neg Pad
    Range Relu Reshape Resize ScatterElements ScatterND Shape Slice Split Squeeze Tile Transpose Unsqueeze Where
    """
)
"""Operators that only move floats, so that every runtime gives the same bits for finite data."""

SLOW = frozenset({"AveragePool", "Conv", "ConvTranspose", "Gemm", "MatMul", "MaxPool"})
"""Operators for which the reference takes minutes in a model of usual size; it checks the parts only."""


Expected: TypeAlias = Sequence[tuple[Feed, list[Any]]]
"""Random inputs of the first model, each with its outputs."""


def expected_results(first: onnx.ModelProto, semantics: Semantics, sizes: Mapping[str, int]) -> Expected:
    """What the model gives that is lowered.

    Args:
        first: the model before.
        semantics: how it is read.
        sizes: for names of sizes that the model leaves open; for other open sizes several are tried.

    Raises:
        UnsupportedError: it runs on none of the inputs that were tried.
    """
    exact = Semantics(semantics.compat, semantics.index_space, exact=True)
    return list(runs(load_as_session(first, exact), sizes))


def checked(lowered: onnx.ModelProto, probes: Sequence[Probe], expected: Expected) -> tuple[Check, ...]:
    """Run the lowered model and its parts in every runtime that is installed.

    Args:
        lowered: the model after.
        probes: of its parts.
        expected: what the model before gives.

    Returns:
        one record for each runtime.

    Raises:
        UnsupportedError: a runtime gives other results.
    """
    return tuple(_check(runtime, lowered, probes, expected) for runtime in runtimes())


def _check(runtime: Runtime, lowered: onnx.ModelProto, probes: Sequence[Probe], expected: Expected) -> Check:
    narrow = sorted({one.dtype.name for one in probes} & runtime.changes)
    if narrow:
        return Check(runtime.name, f"it computes {narrow[0]} in another type")
    try:
        for one in probes:
            for feed, wanted in one.cases:
                (got,) = runtime.prepare(one.model, feed)()
                _require_equal(f"{runtime.name}: {one.node}", wanted, got, is_exact=True)
        _check_whole(runtime, lowered, expected)
    except UnpoolError:
        raise
    except Exception as error:  # whatever a runtime raises means that it does not run the model
        return Check(runtime.name, short_message(error))
    return Check(runtime.name)


def _check_whole(runtime: Runtime, lowered: onnx.ModelProto, expected: Expected) -> None:
    operators = {node.op_type for node in with_subgraph_nodes(lowered.graph.node)}
    if runtime.is_reference and operators & SLOW:
        return
    for feed, wanted in expected:
        got = runtime.prepare(lowered, feed)()
        for value, one, other in zip(lowered.graph.output, wanted, got, strict=True):
            _require_equal(f"{runtime.name}: {value.name}", one, other, is_exact=operators <= MOVING)


def _require_equal(name: str, expected: Any, got: Any, *, is_exact: bool) -> None:
    if not is_exact or isinstance(expected, list) or expected.dtype.kind not in "fViub":
        compare(name, expected, got, is_exact=is_exact, strays=STRAYS)
    elif _bits(expected) != _bits(got):
        raise UnsupportedError(f"{name}: expected the bits that the first model gives, got others. Keep that model.")


def _bits(array: AnyArray) -> tuple[object, ...]:
    """Type, shape and bits, with +0 in the place of -0: onnxruntime's Where does not keep the sign of a zero."""
    is_float = array.dtype.kind in "fV"
    return (
        array.dtype,
        array.shape,
        (np.where(array == 0, np.zeros_like(array), array) if is_float else array).tobytes(),
    )
