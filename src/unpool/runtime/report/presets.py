"""The windows of a model, axis by axis, for the drawing."""

from collections.abc import Iterator, Mapping
from typing import Any

import onnx

from unpool.dtypes import AnyArray
from unpool.runtime.graph.nodes import attributes, domain, node_name
from unpool.runtime.report.drawing import Settings
from unpool.runtime.report.names import title


def presets_of(node: onnx.NodeProto, opset: int, values: Mapping[str, Any]) -> Iterator[tuple[str, Settings]]:
    """The window of a node of ours along each spatial axis that has one of its own, with what to call it.

    Args:
        node: of ONNX's own domain.
        opset: that the model imports.
        values: the arrays that it reads and makes, by name.
    """
    x, y = values.get(node.input[0]), values.get(node.output[0])
    if domain(node) != "" or x is None or y is None:
        return
    known: set[Settings] = set()
    for axis in range(x.ndim - 2):
        settings = _settings(node, opset, axis, x, y, values)
        if settings not in known:
            known.add(settings)
            yield f"{title(node.op_type, node_name(node))}, axis {axis}", settings


def _settings(
    node: onnx.NodeProto, opset: int, axis: int, x: AnyArray, y: AnyArray, values: Mapping[str, Any]
) -> Settings:
    given, rank = attributes(node), x.ndim - 2
    kernel = given.get("kernel_shape") or values[node.input[1]].shape[2:]
    pads = given.get("pads") or [0] * 2 * rank
    is_asked = len(node.input) > 2 and bool(node.input[2]) if node.op_type == "MaxUnpool" else "output_shape" in given
    return Settings(
        operator=node.op_type,
        opset=opset,
        size=x.shape[2 + axis],
        kernel=kernel[axis],
        stride=(given.get("strides") or [1] * rank)[axis],
        dilation=(given.get("dilations") or [1] * rank)[axis],
        begin=pads[axis],
        end=pads[axis + rank],
        ceil=bool(given.get("ceil_mode")),
        auto_pad=(given.get("auto_pad") or b"NOTSET").decode(),
        output_padding=(given.get("output_padding") or [0] * rank)[axis],
        output_size=y.shape[2 + axis] if is_asked else None,
    )
