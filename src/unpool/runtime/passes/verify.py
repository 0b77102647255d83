"""Does a rewritten model compute what the first one did? Both run on random inputs."""

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx

from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError, UnsupportedError
from unpool.runtime.bound import Meaning
from unpool.runtime.nodes import is_ours, with_inner
from unpool.runtime.random_inputs import random_array
from unpool.runtime.session import FallbackWarning, InferenceSession
from unpool.runtime.signature import ValueInfo

SEED = 20
RUNS = 2
BATCH = 2
SIZES = (32, 48, 96, 224, 13, 5, 2, 1)  # tried in turn for axes of unknown size
TOLERANCE = {"float64": 1e-10, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}

Feed = Mapping[str, AnyArray]


def verify(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    meaning: Meaning,
    sizes: Mapping[str, int],
    first_session: type[InferenceSession] = InferenceSession,
) -> None:
    """Run both models and compare all outputs: pools and integers bit for bit, other floats within a tolerance.

    Args:
        before: read as `meaning` says.
        after: read as the standard says.
        meaning: of the first model.
        sizes: for names of unknown sizes; others are tried.
        first_session: runs the first model.

    Raises:
        UnsupportedError: the models differ, or the first one runs on none of the inputs that were tried.
    """
    space = "output" if meaning.compat == "ort" and meaning.index_space == "auto" else meaning.index_space
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        first = first_session(before, compat=meaning.compat, index_space=meaning.index_space, exact=True)
        second = InferenceSession(after, index_space=space, exact=True)
    is_exact = all(is_ours(node) and node.op_type != "ConvTranspose" for node in with_inner(before.graph.node))
    for feed, expected in runs(first, sizes):
        try:
            got = second.run(None, feed)
        except UnpoolError as error:
            raise UnsupportedError(
                f"the rewritten model: expected it to run as the first one does, got: {error}"
            ) from error
        for info, one, other in zip(first.get_outputs(), expected, got, strict=True):
            compare(info.name, one, other, is_exact)


def runs(session: InferenceSession, sizes: Mapping[str, int]) -> Iterator[tuple[Feed, list[Any]]]:
    """Feeds that the session accepts, with what it returns.

    Raises:
        UnsupportedError: it accepts none of those that are tried.
    """
    rng = np.random.default_rng(SEED)
    left, reason = RUNS, ""
    for size in SIZES:
        while left:
            feed = {info.name: random_array(info, _shape(info, sizes, size), rng) for info in session.get_inputs()}
            try:
                made = session.run(None, feed)
            except UnpoolError as error:
                reason = str(error)
                break
            left -= 1
            yield feed, made
    if left == RUNS:
        raise UnsupportedError(
            f"the model: expected it to run on random inputs, to compare it with its new form; got: {reason} "
            "Give the sizes of its inputs."
        )


def _shape(info: ValueInfo, sizes: Mapping[str, int], size: int) -> list[int]:
    """The shape of an input, `size` where it is open."""
    return [
        dim if isinstance(dim, int) else sizes.get(dim or "", size if axis else min(size, BATCH))
        for axis, dim in enumerate(info.shape)
    ]


def compare(name: str, expected: Any, got: Any, is_exact: bool) -> None:
    """Compare an output of two models.

    Raises:
        UnsupportedError: they differ in type, shape or, beyond a tolerance, in values.
    """
    if isinstance(expected, list):
        for one, other in zip(expected, got, strict=True):
            compare(name, one, other, is_exact)
        return
    if expected.dtype != got.dtype or expected.shape != got.shape:
        raise _mismatch(name, f"{expected.dtype.name}{list(expected.shape)}", f"{got.dtype.name}{list(got.shape)}")
    tolerance = 0.0 if is_exact else TOLERANCE.get(expected.dtype.name, 0.0)
    if expected.dtype == object:
        is_equal = bool((expected == got).all())
    else:
        wide = expected.astype(np.complex128 if expected.dtype.kind == "c" else np.float64)
        largest = float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))
        is_equal = np.allclose(got.astype(wide.dtype), wide, tolerance, tolerance * largest, equal_nan=True)
    if not is_equal:
        raise _mismatch(name, "the values of the first model", f"others on {expected.size} elements")


def _mismatch(name: str, expected: str, got: str) -> UnsupportedError:
    return UnsupportedError(
        f"output {name!r} of the rewritten model: expected {expected}, got {got}. Keep the first model."
    )
