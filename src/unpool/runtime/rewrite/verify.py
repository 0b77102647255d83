"""Verifies that a rewritten model computes what the first one did, by running both on random inputs."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

import onnx

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError, UnsupportedError
from unpool.numerics import BITWISE, ROUNDING, Tolerance, diff_arrays
from unpool.runtime.graph.nodes import is_unpool_op, with_subgraph_nodes
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.rewrite.workload import Trials
from unpool.runtime.session.executor import Executor, load_as_session
from unpool.runtime.session.random_inputs import random_feed

RUNS = 2

Feed: TypeAlias = Mapping[str, AnyArray]
Load: TypeAlias = Callable[[onnx.ModelProto, Semantics], Executor]


def verify(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    semantics: Semantics,
    sizes: Mapping[str, int],
    load_first: Load = load_as_session,
) -> list[Feed]:
    """Run both models and compare all outputs: pools and integers bit for bit, other floats within a tolerance.

    Args:
        before: the first model.
        after: the rewritten model, which is read as the standard says.
        semantics: how the first model is read.
        sizes: for names of sizes that the model leaves open; for other open sizes several are tried.
        load_first: loads the first model.

    Returns:
        the random inputs of the runs.

    Raises:
        UnsupportedError: the models differ, or the first one runs on none of the inputs that were tried.
    """
    space = "output" if semantics.compat == "ort" and semantics.index_space == "auto" else semantics.index_space
    first = load_first(before, replace(semantics, exact=True))
    second = load_as_session(after, Semantics("spec", space, exact=True))
    is_exact = all(
        is_unpool_op(node) and node.op_type != "ConvTranspose" for node in with_subgraph_nodes(before.graph.node)
    )
    tolerance = BITWISE if is_exact else ROUNDING
    feeds = []
    for feed, expected in runs(first, sizes):
        feeds.append(feed)
        try:
            got = second.run(None, feed)
        except UnpoolError as error:
            raise UnsupportedError(
                f"the rewritten model: expected it to run as the first one does, got: {error}"
            ) from error
        for info, one, other in zip(first.signature.outputs, expected, got, strict=True):
            require_equal(info.name, one, other, tolerance)
    return feeds


def runs(loaded: Executor, sizes: Mapping[str, int]) -> Iterator[tuple[Feed, list[Any]]]:
    """Random feeds that the model accepts, each with the outputs that it gives for them.

    Args:
        loaded: by `load_as_session` or `load_as_written`.
        sizes: for names of sizes that the model leaves open; other open sizes are picked so that a run takes few
            elements, and that two runs have two sizes.

    Raises:
        UnsupportedError: it accepts none of those that are tried.
    """
    trials, done, reason = Trials(loaded, sizes), list[int](), ""
    for size in trials:
        try:
            run = _run(loaded, sizes, size, seed=RUNS - len(done))
        except UnpoolError as error:
            reason = reason or f"with {size} for the sizes that it leaves open: {error}"
            continue
        yield run
        done.append(size)
        if len(done) == RUNS:
            return
    if not done:
        raise UnsupportedError(
            f"the model: expected it to run on random inputs, to compare it with its new form; got: "
            f"{reason or trials.refusal} Give sizes that it takes, such as --size height=64 (sizes={{'height': 64}})."
        )
    for seed in range(RUNS - len(done), 0, -1):
        with suppress(UnpoolError):
            yield _run(loaded, sizes, done[0], seed)


def _run(loaded: Executor, sizes: Mapping[str, int], open_size: int, seed: int) -> tuple[Feed, list[Any]]:
    feed = random_feed(loaded.signature.inputs, sizes, open_size=open_size, seed=seed)
    return feed, loaded.run(None, feed)


def require_equal(name: str, expected: Any, actual: Any, tolerance: Tolerance) -> None:
    """Compare an output of two models.

    Args:
        name: of the output.
        expected: an array, or a list of arrays.
        actual: likewise.
        tolerance: of the comparison.

    Raises:
        UnsupportedError: they differ in type, in shape or, beyond the tolerance, in values.
    """
    if isinstance(expected, list):
        for first, second in zip(expected, actual, strict=True):
            require_equal(name, first, second, tolerance)
        return
    diff = diff_arrays(expected, actual, tolerance)
    if diff.kind in ("type", "shape"):
        raise _mismatch(
            name, f"{expected.dtype.name}{list(expected.shape)}", f"{actual.dtype.name}{list(actual.shape)}"
        )
    if diff.differs:
        raise _mismatch(name, "the values of the first model", f"others on {diff.count} of {diff.size} elements")


def _mismatch(name: str, expected: str, got: str) -> UnsupportedError:
    return UnsupportedError(
        f"output {name!r} of the rewritten model: expected {expected}, got {got}. Keep the first model."
    )
