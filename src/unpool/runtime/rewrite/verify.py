"""Verification of rewritten models: both models run on random inputs, in unpool and in onnxruntime."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from unpool import functional
from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError, UnsupportedError
from unpool.graph import shapes
from unpool.graph.errors import short_message
from unpool.graph.narrow_floats import narrowest_floats
from unpool.graph.nodes import attributes, domain, is_unpool_op, node_name, with_subgraph_nodes
from unpool.graph.random_inputs import random_feed
from unpool.graph.shapes import Types
from unpool.indices import to_onnx
from unpool.numerics import BITWISE, ROUNDING, Tolerance, diff_arrays
from unpool.onnxruntime.errors import ort_message
from unpool.onnxruntime.session import InferenceSession
from unpool.operators import resolve
from unpool.operators.semantics import Semantics
from unpool.passes.rewrite import set_items
from unpool.runtime.rewrite.open_model import open_model
from unpool.runtime.rewrite.workload import Trials
from unpool.runtime.runtimes import ONNXRUNTIME, Feed, session_run, unpool_session

RUNS = 2


def verify(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    semantics: Semantics,
    sizes: Mapping[str, int],
    disabled: Collection[str] = (),
) -> list[Feed]:
    """The random inputs on which all outputs of both models agree, pools and integers bit for bit.

    The first model runs without the passes `disabled`, and the rewritten one is read as the standard says. An
    UnsupportedError if the models differ, or if the first one runs on none of the inputs that were tried.
    """
    space = "output" if semantics.compat == "ort" and semantics.index_space == "auto" else semantics.index_space
    first = unpool_session(before, replace(semantics, exact=True), disabled)
    second = unpool_session(after, Semantics("spec", space, exact=True))
    nodes = with_subgraph_nodes(before.graph.node)
    is_exact = all(is_unpool_op(node) and node.op_type != "ConvTranspose" for node in nodes)
    tolerances = output_tolerances(before, semantics, BITWISE if is_exact else ROUNDING)
    feeds = []
    for feed, expected in runs(first, sizes):
        feeds.append(feed)
        try:
            outputs = session_run(second)(feed)
        except UnpoolError as error:
            raise UnsupportedError(f"the rewritten model does not run as the first one does: {error}") from error
        for info, own, other in zip(first.get_outputs(), expected, outputs, strict=True):
            require_equal(info.name, own, other, tolerances[info.name])
    return feeds


def output_tolerances(model: onnx.ModelProto, semantics: Semantics, tolerance: Tolerance) -> dict[str, Tolerance]:
    """The tolerance of every output, by the narrowest float type on the way to it."""
    editable = open_model(model, semantics)
    narrowest = narrowest_floats(editable.graph, editable.inference)
    return {name: tolerance.through(narrowest.get(name, "")) for name in editable.graph.output_names}


def runs(session: InferenceSession, sizes: Mapping[str, int]) -> Iterator[tuple[Feed, list[Any]]]:
    """Random inputs that the model accepts, each with its outputs; an UnsupportedError if it accepts none.

    Dynamic dimensions without a size in `sizes` get sizes with which a run takes few elements, and which differ between
    two runs.
    """
    trials, done, reason = Trials(session, sizes), list[int](), ""
    for size in trials:
        try:
            run = _run(session, sizes, size, seed=RUNS - len(done))
        except UnpoolError as error:
            reason = reason or f"with {size} for the sizes that it leaves open: {error}"
            continue
        yield run
        done.append(size)
        if len(done) == RUNS:
            return
    if not done:
        raise UnsupportedError(
            f"the model: no random inputs to compare it with its new form were accepted: {reason or trials.refusal} "
            "Give sizes that it takes, such as --size height=64 (sizes={'height': 64})."
        )
    for seed in range(RUNS - len(done), 0, -1):
        with suppress(UnpoolError):
            yield _run(session, sizes, done[0], seed)


def _run(session: InferenceSession, sizes: Mapping[str, int], open_size: int, seed: int) -> tuple[Feed, list[Any]]:
    feed = random_feed(session.get_inputs(), sizes, open_size=open_size, seed=seed)
    return feed, session_run(session)(feed)


def require_equal(name: str, expected: Any, actual: Any, tolerance: Tolerance) -> None:
    """Refuse an output, an array or a list of arrays, that differs in type, shape or, beyond the tolerance, values."""
    if isinstance(expected, list):
        for first, second in zip(expected, actual, strict=True):
            require_equal(name, first, second, tolerance)
        return
    diff = diff_arrays(expected, actual, tolerance)
    if not diff.differs:
        return
    if diff.kind in ("type", "shape"):
        wanted, got = (f"{array.dtype.name}{list(array.shape)}" for array in (expected, actual))
    else:
        wanted, got = "the values of the first model", f"others on {diff.count} of {diff.size} elements"
    raise UnsupportedError(
        f"output {name!r} of the rewritten model: expected {wanted}, got {got}. Keep the first model."
    )


def verify_offsets(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    outputs: Sequence[str],
    types: Types,
    semantics: Semantics,
    sizes: Mapping[str, int],
) -> None:
    """Refuse offsets that were added to indices inside planes, if MaxUnpool nodes give other results with them.

    `outputs` are those of these nodes; their results are compared with those of the old indices as `to_onnx` converts
    them. An old index outside of its plane is refused too.
    """
    for output in outputs:
        old, new = (next(node for node in model.graph.node if output in node.output) for model in (before, after))
        first = _load_with_outputs(before, old.input[1:2], types, semantics)
        second = _load_with_outputs(after, [new.input[0], output], types, semantics)
        for feed, (planar,) in runs(first, sizes):
            try:
                x, y = session_run(second)(feed)
                expected = _unpool_plane_indices(after, new, x, planar, y.shape)
            except UnpoolError as error:
                raise UnsupportedError(
                    f"{new.op_type} node {node_name(new)!r}: expected indices inside their planes, got: {error} "
                    "Keep the first model."
                ) from error
            require_equal(output, expected, y, BITWISE)


def verify_in_onnxruntime(
    before: onnx.ModelProto, after: onnx.ModelProto, feeds: Iterable[Feed], tolerances: Mapping[str, Tolerance] | None
) -> str:
    """Compare both models in onnxruntime: its message if it does not run the first one, else "".

    An UnsupportedError if it runs only the first one, or if an output differs beyond its tolerance; without tolerances,
    results may differ.
    """
    try:
        first = ONNXRUNTIME.open(before)
    except Exception as error:  # any exception means that it does not load the model
        return ort_message(error)
    try:
        second = ONNXRUNTIME.open(after)
    except Exception as error:
        raise UnsupportedError(
            f"the new model: onnxruntime runs the first one, but not this one: {ort_message(error)}. Keep the first "
            "model; unpool.InferenceSession fuses decomposed unpoolings while it loads it."
        ) from error
    messages, count = list[str](), 0
    for feed in feeds:
        try:
            expected = first(feed)
        except UnpoolError as error:
            messages.append(short_message(error))
            continue
        count += 1
        outputs = second(feed)
        for output, own, other in zip(before.graph.output, expected, outputs, strict=True):
            if tolerances is not None:
                require_equal(output.name, own, other, tolerances[output.name])
    return "" if count else messages[0]


def _unpool_plane_indices(
    model: onnx.ModelProto, node: onnx.NodeProto, x: AnyArray, planar: AnyArray, shape: tuple[int, ...]
) -> AnyArray:
    """The output of a MaxUnpool for indices that count inside planes, converted by `to_onnx`."""
    opset = next(entry.version for entry in model.opset_import if entry.domain == node.domain)
    spec = resolve.spec("MaxUnpool", attributes(node), domain=domain(node), opset=opset, index_space="output")
    onnx_shape = (shape[0], shape[-1], *shape[1:-1]) if spec.version.is_channels_last else shape
    (output,) = functional.run(spec, [x, to_onnx(planar, onnx_shape[2:]), np.array(onnx_shape, np.int64)])
    return output


def _load_with_outputs(
    model: onnx.ModelProto, outputs: Sequence[str], types: Types, semantics: Semantics
) -> InferenceSession:
    """The model with these values as outputs; a value of unknown type is taken for indices."""
    copy = deepcopy(model)
    elements = {name: shapes.element(types.get(name)) or onnx.TensorProto.INT64 for name in outputs}
    set_items(copy.graph.output, [helper.make_tensor_value_info(*item, None) for item in elements.items()])
    return unpool_session(copy, replace(semantics, exact=True))
