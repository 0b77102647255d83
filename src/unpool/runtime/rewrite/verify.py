"""Verification of rewritten models: both models run on random inputs, in unpool and in onnxruntime."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper

from unpool import functional
from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError, UnsupportedError
from unpool.indices import to_onnx
from unpool.numerics import BITWISE, ROUNDING, Tolerance, diff_arrays
from unpool.operators import resolve
from unpool.runtime.backends.ort_backend import OrtPartition, RefusedError
from unpool.runtime.backends.ort_options import CPU_ONLY, PartitionOptions
from unpool.runtime.graph import shapes
from unpool.runtime.graph.errors import short_message
from unpool.runtime.graph.nodes import attributes, domain, is_unpool_op, node_name, with_subgraph_nodes
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.graph.shapes import Types
from unpool.runtime.graph.weights import initializers_as_inputs, serialize
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.rewrite.workload import Trials
from unpool.runtime.session.executor import Executor, load_as_session
from unpool.runtime.session.random_inputs import random_feed

RUNS = 2
FATAL = 4  # onnxruntime's log level for fatal errors only

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

    The rewritten model is read as the standard says; several sizes are tried for dynamic dimensions without a size.
    Returns the random inputs of the runs.

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
            outputs = second.run(None, feed)
        except UnpoolError as error:
            raise UnsupportedError(
                f"the rewritten model: expected it to run as the first one does, got: {error}"
            ) from error
        for info, own, other in zip(first.signature.outputs, expected, outputs, strict=True):
            require_equal(info.name, own, other, tolerance)
    return feeds


def runs(executor: Executor, sizes: Mapping[str, int]) -> Iterator[tuple[Feed, list[Any]]]:
    """Random inputs that the model accepts, each with its outputs.

    Dynamic dimensions without a size in `sizes` get sizes with which a run takes few elements, and which differ between
    two runs.

    Raises:
        UnsupportedError: the model accepts none of the sizes that are tried.
    """
    trials, done, reason = Trials(executor, sizes), list[int](), ""
    for size in trials:
        try:
            run = _run(executor, sizes, size, seed=RUNS - len(done))
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
            yield _run(executor, sizes, done[0], seed)


def _run(executor: Executor, sizes: Mapping[str, int], open_size: int, seed: int) -> tuple[Feed, list[Any]]:
    feed = random_feed(executor.signature.inputs, sizes, open_size=open_size, seed=seed)
    return feed, executor.run(None, feed)


def require_equal(name: str, expected: Any, actual: Any, tolerance: Tolerance) -> None:
    """Refuse an output, an array or a list of arrays, that differs in type, shape or, beyond the tolerance, values."""
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


def verify_offsets(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    outputs: Sequence[str],
    types: Types,
    semantics: Semantics,
    sizes: Mapping[str, int],
) -> None:
    """Run MaxUnpool nodes whose indices got offsets, and compare them with the conversion of the old indices.

    `before` has indices inside planes, `after` has offsets added to them; `outputs` are those of the MaxUnpool nodes.

    Raises:
        UnsupportedError: an old index is outside its plane, or the output of a node differs.
    """
    for output in outputs:
        old, new = (_producer(model, output) for model in (before, after))
        first = _load_with_outputs(before, old.input[1:2], types, semantics)
        second = _load_with_outputs(after, [new.input[0], output], types, semantics)
        for feed, (planar,) in runs(first, sizes):
            try:
                x, y = second.run([new.input[0], output], feed)
                expected = _unpool_plane_indices(after, new, x, planar, y.shape)
            except UnpoolError as error:
                raise UnsupportedError(
                    f"{new.op_type} node {node_name(new)!r}: expected indices inside their planes, got: {error} "
                    "Keep the first model."
                ) from error
            require_equal(output, expected, y, BITWISE)


def verify_in_onnxruntime(
    before: onnx.ModelProto, after: onnx.ModelProto, feeds: Iterable[Feed], *, keeps_results: bool
) -> str:
    """Compare both models in onnxruntime: its message if it does not run the first one, else "".

    Raises:
        UnsupportedError: onnxruntime runs only the first one, or the results differ although `keeps_results`.
    """
    try:
        first, first_weights = _load_in_onnxruntime(before)
    except RefusedError as error:
        return short_message(error)
    try:
        second, second_weights = _load_in_onnxruntime(after)
    except RefusedError as error:
        raise UnsupportedError(
            f"the new model: expected onnxruntime to run it as it runs the first one, got: {error}. "
            "Keep the first model; unpool.InferenceSession raises what is decomposed while it loads it."
        ) from error
    messages, count = list[str](), 0
    for feed in feeds:
        values = list(feed.values())
        try:
            expected = first.run([*values, *first_weights], None)
        except UnpoolError as error:
            messages.append(short_message(error))
            continue
        count += 1
        outputs = second.run([*values, *second_weights], None)
        for info, own, other in zip(first.session.get_outputs(), expected, outputs, strict=True):
            if keeps_results:
                require_equal(info.name, own, other, ROUNDING)
    return "" if count else messages[0]


def _unpool_plane_indices(
    model: onnx.ModelProto, node: onnx.NodeProto, x: AnyArray, planar: AnyArray, shape: tuple[int, ...]
) -> AnyArray:
    """The output of a MaxUnpool for indices that count inside planes, converted by `to_onnx`."""
    opset = next(entry.version for entry in model.opset_import if entry.domain == node.domain)
    where = domain(node)
    spec = resolve.spec("MaxUnpool", attributes(node), domain=where, opset=opset, index_space="output")
    onnx_shape = (shape[0], shape[-1], *shape[1:-1]) if spec.row.is_channels_last else shape
    indices = to_onnx(planar, onnx_shape[2:])
    (output,) = functional.run(spec, [x, indices, np.array(onnx_shape, np.int64)])
    return output


def _producer(model: onnx.ModelProto, output: str) -> onnx.NodeProto:
    node: onnx.NodeProto
    (node,) = (node for node in model.graph.node if output in node.output)
    return node


def _load_with_outputs(model: onnx.ModelProto, outputs: Sequence[str], types: Types, semantics: Semantics) -> Executor:
    """The model with these values as outputs; a value of unknown type is taken for indices."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.output[:]
    for name in dict.fromkeys(outputs):
        element = shapes.element(types.get(name)) or onnx.TensorProto.INT64
        copy.graph.output.append(helper.make_tensor_value_info(name, element, None))
    return load_as_session(copy, replace(semantics, exact=True))


def _load_in_onnxruntime(model: onnx.ModelProto) -> tuple[OrtPartition, list[AnyArray]]:
    """The model in onnxruntime, and the weights that it takes as inputs."""
    bare, weights = initializers_as_inputs(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = FATAL
    partition = OrtPartition(serialize(bare, "the model"), "the model", PartitionOptions(options), CPU_ONLY)
    return partition, list(weights.values())
