"""Writes a MaxPool with ceil_mode as one without it, behind a Pad with the lowest number of its type.

ONNX drops a last window that begins in the padding, and some runtimes keep it. With `ceil_end` elements of padding at
the end there are as many windows without ceil_mode, whatever the size; but pads have to be shorter than the kernel,
so where dilation makes them as long, a Pad takes their place. Indices would count in what it makes. onnxruntime 1.31.1
puts a Pad with the lowest integer into the pads of the MaxPool, and then refuses them; minus infinity it leaves alone.
"""

from collections.abc import Iterator

import onnx
from onnx import helper

from unpool import dtypes
from unpool.display import format_shape
from unpool.geometry import ceil_end
from unpool.operators import resolve
from unpool.operators.max_pool import MaxPoolSpec
from unpool.runtime.graph import shapes
from unpool.runtime.graph.graph import FreshNames, Graph
from unpool.runtime.graph.nodes import attributes, is_unpool_op, node_name
from unpool.runtime.graph.shapes import Types
from unpool.runtime.lower.writer import Writer
from unpool.runtime.passes.rewrite import NodeChange, Rewrite
from unpool.runtime.rewrite.replace import described


def padded_pools(graph: Graph, types: Types, names: FreshNames, *, of_integers: bool) -> Iterator[Rewrite]:
    """An edit for every MaxPool with ceil_mode and without Indices, those inside bodies left out.

    Args:
        graph: all of whose pools are in ONNX's own domain.
        types: of its values.
        names: for the new values.
        of_integers: whether pools of integers are written so too.
    """
    for node in graph.nodes:
        if (
            is_unpool_op(node)
            and node.op_type == "MaxPool"
            and attributes(node).get("ceil_mode")
            and len(node.output) == 1
        ):
            spec = resolve.spec("MaxPool", attributes(node), opset=graph.opsets[""])
            dtype = shapes.dtype(types.get(node.input[0]))
            assert isinstance(spec, MaxPoolSpec)
            storage = None if dtype is None else dtypes.storage_type(dtype, node_name(node))
            if spec.padding == "NOTSET" and storage is not None and (storage.is_float or of_integers):
                yield _edit(node, spec, storage, Writer(names, node.output[0]))


def _edit(node: onnx.NodeProto, spec: MaxPoolSpec, storage: dtypes.StorageType, writer: Writer) -> Rewrite:
    begins = [begin for begin, _ in spec.pads]
    ends = tuple(ceil_end(window, end) for window, (_, end) in zip(spec.windows, spec.pads, strict=True))
    none = [0] * len(begins)
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[0] = writer.padded(node.input[0], none, ends, storage.lowest, storage.dtype)
    kept = [one for one in node.attribute if one.name not in ("ceil_mode", "pads")]
    del copy.attribute[:]
    copy.attribute.extend(kept)
    if any(begins):
        copy.attribute.append(helper.make_attribute("pads", [*begins, *none]))
    writer.nodes.append(copy)
    old, new = attributes(node), attributes(copy)
    after = f"{described(spec.row, new, old)} behind Pad by {format_shape(ends)}"
    change = NodeChange(node_name(node), described(spec.row, old, new), after)
    return Rewrite(node.output[0], tuple(writer.nodes), writer.constants, change)
