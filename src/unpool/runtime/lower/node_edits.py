"""Edits of nodes that targets lack: channels-last nodes between Transposes, and ceil_mode as a Pad."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from unpool import dtypes
from unpool.display import format_shape
from unpool.geometry import ceil_end
from unpool.graph import shapes
from unpool.graph.graph import FreshNames, Graph
from unpool.graph.nodes import attributes, is_unpool_op, node_name
from unpool.graph.shape_inference import ResolvedNode
from unpool.graph.shapes import Types
from unpool.operators.attributes import ACTIVATION_PARAMS, Activation
from unpool.passes.index_flow import pool_spec
from unpool.passes.rewrite import GraphWriter, NodeChange, Rewrite, copy_node
from unpool.runtime.rewrite.window_forms import describe_attributes


def channels_first_edits(
    nodes: Iterable[ResolvedNode], names: FreshNames, dtypes: Mapping[str, object]
) -> Iterator[Rewrite]:
    """An edit for every node of the channels-last domain: the node of ONNX's own domain between two Transposes.

    Its activation follows it. Indices count in the (N, C, D1..Dk) tensor and have its shape in both domains, so they
    stay as they are.
    """
    for resolved in nodes:
        node, spec = resolved.node, resolved.spec
        if not spec.version.is_channels_last:
            continue
        writer = GraphWriter(names, node.output[0])
        kernel = attributes(node).get("kernel_shape") or next(dims for dims in resolved.inputs if dims is not None)[2:]
        axes = range(1, len(kernel) + 1)
        x = writer.node("Transpose", [node.input[0]], "channels_first", perm=[0, len(axes) + 1, *axes])
        copy = copy_node(node, ("activation", "activation_params"))
        copy.domain, copy.input[0] = "", x
        copy.output[0] = y = names.fresh(f"{node.output[0]}_made")
        writer.nodes.append(copy)
        after = f"{node.op_type} between Transposes"
        if spec.activation is not None:
            y = _emit_activation(writer, spec.activation, y, dtypes[node.input[0]])
            after += f", then {spec.activation.name}"
        writer.node("Transpose", [y], perm=[0, *(axis + 1 for axis in axes), 1], output=node.output[0])
        yield writer.rewrite(NodeChange(node_name(node), f"{spec.version.label} of {node.domain}", after))


def _emit_activation(writer: GraphWriter, activation: Activation, value: str, dtype: object) -> str:
    if activation.name == "HardSwish":
        gate = writer.node("HardSigmoid", [value], "gate", alpha=1 / 6, beta=0.5)
        return writer.node("Mul", [value, gate], "activated")
    words: dict[str, Any] = dict(zip(ACTIVATION_PARAMS[activation.name], activation.params, strict=True))
    if activation.name == "Clip":
        bounds = [writer.constant(bound, name, dtype) for name, bound in words.items()]
        return writer.node("Clip", [value, *bounds], "activated")
    return writer.node(activation.name, [value], "activated", **words)


def pad_ceil_pools(graph: Graph, types: Types, names: FreshNames, *, pads_integers: bool) -> Iterator[Rewrite]:
    """An edit for every MaxPool with ceil_mode and without Indices: a Pad with the lowest number instead of ceil_mode.

    ONNX drops a last window that begins in the padding, and some runtimes keep it. With `ceil_end` elements of padding
    at the end the same windows fit without ceil_mode, whatever the size; but pads have to be shorter than the kernel,
    so where dilation makes them as long, a Pad takes their place. Indices would count in its output. onnxruntime 1.31.1
    fuses a Pad with the lowest integer into the pads of the MaxPool, and then rejects them; it does not fuse minus
    infinity. Pools of integers are edited with `pads_integers` only; pools in subgraphs are left as they are.
    """
    for node in graph.nodes:
        given = attributes(node)
        is_pool = is_unpool_op(node) and node.op_type == "MaxPool"
        if is_pool and given.get("ceil_mode") and len(node.output) == 1:
            spec = pool_spec(node, graph.opsets)
            dtype = shapes.dtype(types.get(node.input[0]))
            storage = None if dtype is None else dtypes.storage_type(dtype, node_name(node))
            if spec.padding != "NOTSET" or storage is None or not (storage.is_float or pads_integers):
                continue
            ends = [ceil_end(window, end) for window, (_, end) in zip(spec.windows, spec.pads, strict=True)]
            begins, zeros = [begin for begin, _ in spec.pads], [0] * len(ends)
            writer = GraphWriter(names, node.output[0])
            copy = copy_node(node, ("ceil_mode", "pads"), **({"pads": [*begins, *zeros]} if any(begins) else {}))
            copy.input[0] = writer.pad(node.input[0], zeros, ends, storage.lowest, storage.dtype)
            writer.nodes.append(copy)
            new = attributes(copy)
            after = f"{describe_attributes(spec.version, new, given)} after Pad by {format_shape(ends)}"
            yield writer.rewrite(NodeChange(node_name(node), describe_attributes(spec.version, given, new), after))
