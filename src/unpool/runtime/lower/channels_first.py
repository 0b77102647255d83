"""Writes nodes of the channels-last domain as ONNX's own, between two Transposes, with their activations behind them.

Indices count in the (N, C, D1..Dk) tensor and have its shape in both domains, so they stay as they are.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import onnx

from unpool.operators.activation import Activation
from unpool.runtime.graph.graph import FreshNames
from unpool.runtime.graph.nodes import attributes, node_name
from unpool.runtime.graph.shape_inference import ResolvedNode
from unpool.runtime.lower.writer import Writer
from unpool.runtime.passes.rewrite import NodeChange, Rewrite


def channels_first_edits(
    nodes: Iterable[ResolvedNode], names: FreshNames, dtypes: Mapping[str, object]
) -> Iterator[Rewrite]:
    """An edit for every node of the channels-last domain.

    Args:
        nodes: of ours, none of them inside a body.
        names: for the new values.
        dtypes: element type of each value.
    """
    for resolved in nodes:
        if resolved.spec.row.is_channels_last:
            yield _edit(resolved, names, dtypes)


def _edit(resolved: ResolvedNode, names: FreshNames, dtypes: Mapping[str, object]) -> Rewrite:
    node, spec = resolved.node, resolved.spec
    writer = Writer(names, node.output[0])
    rank = _rank(resolved)
    first = [0, rank + 1, *range(1, rank + 1)]
    last = [0, *range(2, rank + 2), 1]
    moved = writer.node("Transpose", [node.input[0]], "channels_first", perm=first)
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.domain = ""
    kept = [one for one in node.attribute if one.name not in ("activation", "activation_params")]
    del copy.attribute[:]
    copy.attribute.extend(kept)
    copy.input[0] = moved
    copy.output[0] = made = names.fresh(f"{node.output[0]}_made")
    writer.nodes.append(copy)
    if spec.activation is not None:
        made = _ACTIVATIONS[spec.activation.name](writer, spec.activation, made, dtypes[node.input[0]])
    writer.node("Transpose", [made], perm=last, output=node.output[0])
    after = f"{node.op_type} between Transposes" + (f", then {spec.activation.name}" if spec.activation else "")
    change = NodeChange(node_name(node), f"{spec.row.label} of {node.domain}", after)
    return Rewrite(node.output[0], tuple(writer.nodes), writer.constants, change)


def _rank(resolved: ResolvedNode) -> int:
    given = attributes(resolved.node)
    if "kernel_shape" in given:
        return len(given["kernel_shape"])
    known = next(dims for dims in resolved.inputs if dims is not None)
    return len(known) - 2


def _plain(operator: str, *parameters: str) -> Callable[[Writer, Activation, str, object], str]:
    """An activation that is one operator with the parameters as attributes."""

    def write(writer: Writer, activation: Activation, value: str, _: object) -> str:
        given: dict[str, Any] = dict(zip(parameters, activation.params, strict=True))
        return writer.node(operator, [value], "activated", **given)

    return write


def _clip(writer: Writer, activation: Activation, value: str, dtype: object) -> str:
    bounds = [
        writer.constant(bound, name, dtype) for name, bound in zip(("min", "max"), activation.params, strict=True)
    ]
    return writer.node("Clip", [value, *bounds], "activated")


def _hard_swish(writer: Writer, _: Activation, value: str, __: object) -> str:
    gate = writer.node("HardSigmoid", [value], "gate", alpha=1 / 6, beta=0.5)
    return writer.node("Mul", [value, gate], "activated")


_ACTIVATIONS: Mapping[str, Callable[[Writer, Activation, str, object], str]] = {
    "Relu": _plain("Relu"),
    "LeakyRelu": _plain("LeakyRelu", "alpha"),
    "Tanh": _plain("Tanh"),
    "Sigmoid": _plain("Sigmoid"),
    "Clip": _clip,
    "HardSigmoid": _plain("HardSigmoid", "alpha", "beta"),
    "HardSwish": _hard_swish,
}
