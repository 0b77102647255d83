"""Verifies that a model with repaired indices computes what was meant, and that onnxruntime runs it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper

from unpool import functional
from unpool.dtypes import AnyArray
from unpool.errors import UnpoolError, UnsupportedError
from unpool.indices import to_onnx
from unpool.numerics import BITWISE, ROUNDING
from unpool.operators import resolve
from unpool.runtime.backends.ort_backend import OrtPartition, RefusedError
from unpool.runtime.backends.ort_options import CPU_ONLY, PartitionOptions
from unpool.runtime.graph import shapes
from unpool.runtime.graph.errors import short_message
from unpool.runtime.graph.nodes import attributes, domain, node_name
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.graph.shapes import Types
from unpool.runtime.graph.weights import initializers_as_inputs, serialize
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.rewrite.verify import Feed, require_equal, runs
from unpool.runtime.session.executor import Executor, load_as_session

SILENT = 4  # onnxruntime's level for fatal errors only


def verify_offsets(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    outputs: Sequence[str],
    types: Types,
    semantics: Semantics,
    sizes: Mapping[str, int],
) -> None:
    """Run MaxUnpool nodes whose indices got offsets, and compare them with the conversion of the old indices.

    Args:
        before: with indices inside planes.
        after: with offsets added to them.
        outputs: the outputs of these MaxUnpool nodes.
        types: the known types of the values of `after`.
        semantics: how both models are read.
        sizes: for names of sizes that the models leave open; for other open sizes several are tried.

    Raises:
        UnsupportedError: an old index leaves its plane, or a node makes something else.
    """
    for output in outputs:
        old, new = (_maker(model, output) for model in (before, after))
        first = _probe(before, old.input[1:2], types, semantics)
        second = _probe(after, [new.input[0], output], types, semantics)
        for feed, (planar,) in runs(first, sizes):
            try:
                x, got = second.run([new.input[0], output], feed)
                expected = _meant(after, new, x, planar, got.shape)
            except UnpoolError as error:
                raise UnsupportedError(
                    f"{new.op_type} node {node_name(new)!r}: expected indices inside their planes, got: {error} "
                    "Keep the first model."
                ) from error
            require_equal(output, expected, got, BITWISE)


def verify_in_onnxruntime(
    before: onnx.ModelProto, after: onnx.ModelProto, feeds: Iterable[Feed], *, keeps_results: bool
) -> str:
    """Run the new model in onnxruntime, if that runs the first one; else give the reason why it does not.

    Args:
        before: the first model.
        after: the new one.
        feeds: random inputs of both.
        keeps_results: whether both models have to give the same outputs.

    Returns:
        what onnxruntime says against the first model, which leaves nothing to compare; "" where it runs that model.

    Raises:
        UnsupportedError: onnxruntime runs only the first one, or they differ there.
    """
    try:
        first, weights = _whole(before)
    except RefusedError as error:
        return short_message(error)
    try:
        second, others = _whole(after)
    except RefusedError as error:
        raise UnsupportedError(
            f"the new model: expected onnxruntime to run it as it runs the first one, got: {error}. "
            "Keep the first model; unpool.InferenceSession raises what is decomposed while it loads it."
        ) from error
    refusals, count = list[str](), 0
    for feed in feeds:
        values = list(feed.values())
        try:
            expected = first.run([*values, *weights], None)
        except UnpoolError as error:
            refusals.append(short_message(error))
            continue
        count += 1
        got = second.run([*values, *others], None)
        for name, one, other in zip(first.output_types, expected, got, strict=True):
            if keeps_results:
                require_equal(name, one, other, ROUNDING)
    return "" if count else refusals[0]


def _meant(
    model: onnx.ModelProto, node: onnx.NodeProto, x: AnyArray, planar: AnyArray, shape: tuple[int, ...]
) -> AnyArray:
    """What a MaxUnpool makes of indices that count inside planes, once `to_onnx` has converted them."""
    opset = next(one.version for one in model.opset_import if one.domain == node.domain)
    where = domain(node)
    spec = resolve.spec("MaxUnpool", attributes(node), domain=where, opset=opset, index_space="output")
    whole_shape = (shape[0], shape[-1], *shape[1:-1]) if spec.row.is_channels_last else shape
    whole = to_onnx(planar, whole_shape[2:])
    (made,) = functional.run(spec, [x, whole, np.array(whole_shape, np.int64)])
    return made


def _maker(model: onnx.ModelProto, output: str) -> onnx.NodeProto:
    node: onnx.NodeProto
    (node,) = (node for node in model.graph.node if output in node.output)
    return node


def _probe(model: onnx.ModelProto, outputs: Sequence[str], types: Types, semantics: Semantics) -> Executor:
    """The model, loaded so that its outputs are these values; a value of unknown type is taken for indices."""
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    del probe.graph.output[:]
    for name in dict.fromkeys(outputs):
        element = shapes.element(types.get(name)) or onnx.TensorProto.INT64
        probe.graph.output.append(helper.make_tensor_value_info(name, element, None))
    return load_as_session(probe, replace(semantics, exact=True))


def _whole(model: onnx.ModelProto) -> tuple[OrtPartition, list[AnyArray]]:
    """The model in onnxruntime, and what it reads beside the feed of the model."""
    bare, weights = initializers_as_inputs(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = SILENT
    partition = OrtPartition(serialize(bare, "the model"), "the model", PartitionOptions(options), CPU_ONLY)
    return partition, list(weights.values())
