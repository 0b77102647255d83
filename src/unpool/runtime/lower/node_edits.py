"""Edits of nodes that targets lack: channels-last nodes between Transposes, and ceil_mode as a Pad."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import onnx
from onnx import helper

from unpool import dtypes
from unpool.display import format_shape
from unpool.geometry import ceil_end
from unpool.operators import resolve
from unpool.operators.attributes import Activation
from unpool.operators.max_pool import MaxPoolSpec
from unpool.runtime.graph import shapes
from unpool.runtime.graph.graph import FreshNames, Graph
from unpool.runtime.graph.nodes import attributes, is_unpool_op, node_name
from unpool.runtime.graph.shape_inference import ResolvedNode
from unpool.runtime.graph.shapes import Types
from unpool.runtime.passes.rewrite import GraphWriter, NodeChange, Rewrite
from unpool.runtime.rewrite.window_forms import describe_attributes


def channels_first_edits(
    nodes: Iterable[ResolvedNode], names: FreshNames, dtypes: Mapping[str, object]
) -> Iterator[Rewrite]:
    """An edit for every node of the channels-last domain: the node of ONNX's own domain between two Transposes.

    Its activation follows it. Indices count in the (N, C, D1..Dk) tensor and have its shape in both domains, so they
    stay as they are.
    """
    for resolved in nodes:
        if resolved.spec.row.is_channels_last:
            yield _channels_first_edit(resolved, names, dtypes)


def _channels_first_edit(resolved: ResolvedNode, names: FreshNames, dtypes: Mapping[str, object]) -> Rewrite:
    node, spec = resolved.node, resolved.spec
    writer = GraphWriter(names, node.output[0])
    rank = _rank(resolved)
    first = [0, rank + 1, *range(1, rank + 1)]
    last = [0, *range(2, rank + 2), 1]
    x = writer.node("Transpose", [node.input[0]], "channels_first", perm=first)
    copy = _copy_without(node, "activation", "activation_params")
    copy.domain = ""
    copy.input[0] = x
    copy.output[0] = y = names.fresh(f"{node.output[0]}_made")
    writer.nodes.append(copy)
    if spec.activation is not None:
        y = _ACTIVATIONS[spec.activation.name](writer, spec.activation, y, dtypes[node.input[0]])
    writer.node("Transpose", [y], perm=last, output=node.output[0])
    after = f"{node.op_type} between Transposes" + (f", then {spec.activation.name}" if spec.activation else "")
    change = NodeChange(node_name(node), f"{spec.row.label} of {node.domain}", after)
    return Rewrite(node.output[0], tuple(writer.nodes), writer.constants, change)


def _copy_without(node: onnx.NodeProto, *names: str) -> onnx.NodeProto:
    """A copy of a node without attributes of these names."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    copy.attribute.extend(attribute for attribute in node.attribute if attribute.name not in names)
    return copy


def _rank(resolved: ResolvedNode) -> int:
    kernel = attributes(resolved.node).get("kernel_shape")
    return len(kernel) if kernel is not None else len(next(dims for dims in resolved.inputs if dims is not None)) - 2


def _operator(operator: str, *parameters: str) -> Callable[[GraphWriter, Activation, str, object], str]:
    """Writes an activation that is one operator with the parameters as attributes."""

    def write(writer: GraphWriter, activation: Activation, value: str, _: object) -> str:
        words: dict[str, Any] = dict(zip(parameters, activation.params, strict=True))
        return writer.node(operator, [value], "activated", **words)

    return write


def _clip(writer: GraphWriter, activation: Activation, value: str, dtype: object) -> str:
    bounds = [
        writer.constant(bound, name, dtype) for name, bound in zip(("min", "max"), activation.params, strict=True)
    ]
    return writer.node("Clip", [value, *bounds], "activated")


def _hard_swish(writer: GraphWriter, _: Activation, value: str, __: object) -> str:
    gate = writer.node("HardSigmoid", [value], "gate", alpha=1 / 6, beta=0.5)
    return writer.node("Mul", [value, gate], "activated")


_ACTIVATIONS: Mapping[str, Callable[[GraphWriter, Activation, str, object], str]] = {
    "Relu": _operator("Relu"),
    "LeakyRelu": _operator("LeakyRelu", "alpha"),
    "Tanh": _operator("Tanh"),
    "Sigmoid": _operator("Sigmoid"),
    "Clip": _clip,
    "HardSigmoid": _operator("HardSigmoid", "alpha", "beta"),
    "HardSwish": _hard_swish,
}


def pad_ceil_pools(graph: Graph, types: Types, names: FreshNames, *, pads_integers: bool) -> Iterator[Rewrite]:
    """An edit for every MaxPool with ceil_mode and without Indices: a Pad with the lowest number instead of ceil_mode.

    ONNX drops a last window that begins in the padding, and some runtimes keep it. With `ceil_end` elements of padding
    at the end the same windows fit without ceil_mode, whatever the size; but pads have to be shorter than the kernel,
    so where dilation makes them as long, a Pad takes their place. Indices would count in its output. onnxruntime 1.31.1
    fuses a Pad with the lowest integer into the pads of the MaxPool, and then rejects them; it does not fuse minus
    infinity. Pools of integers are edited with `pads_integers` only; pools in subgraphs are left as they are.
    """
    for node in graph.nodes:
        is_pool = is_unpool_op(node) and node.op_type == "MaxPool"
        if is_pool and attributes(node).get("ceil_mode") and len(node.output) == 1:
            spec = resolve.spec("MaxPool", attributes(node), opset=graph.opsets[""])
            dtype = shapes.dtype(types.get(node.input[0]))
            assert isinstance(spec, MaxPoolSpec)
            storage = None if dtype is None else dtypes.storage_type(dtype, node_name(node))
            if spec.padding == "NOTSET" and storage is not None and (storage.is_float or pads_integers):
                yield _pad_edit(node, spec, storage, GraphWriter(names, node.output[0]))


def _pad_edit(node: onnx.NodeProto, spec: MaxPoolSpec, storage: dtypes.StorageType, writer: GraphWriter) -> Rewrite:
    begins = [begin for begin, _ in spec.pads]
    ends = tuple(ceil_end(window, end) for window, (_, end) in zip(spec.windows, spec.pads, strict=True))
    zeros = [0] * len(begins)
    copy = _copy_without(node, "ceil_mode", "pads")
    copy.input[0] = writer.pad(node.input[0], zeros, ends, storage.lowest, storage.dtype)
    if any(begins):
        copy.attribute.append(helper.make_attribute("pads", [*begins, *zeros]))
    writer.nodes.append(copy)
    old, new = attributes(node), attributes(copy)
    after = f"{describe_attributes(spec.row, new, old)} after Pad by {format_shape(ends)}"
    change = NodeChange(node_name(node), describe_attributes(spec.row, old, new), after)
    return Rewrite(node.output[0], tuple(writer.nodes), writer.constants, change)
