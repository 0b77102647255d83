"""Operators of torch that its exporter did not translate to ONNX: runtimes have no kernels for them.

torch writes them with ONNX_FALLTHROUGH (`org.pytorch.aten::max_unpool2d`), with ONNX_ATEN_FALLBACK (`ATen` with the
name as an attribute), or where a symbolic function invents them (`custom::MaxUnpool2d`, `Unpooling`).
"""

import re
from collections.abc import Iterable

import onnx

from unpool.graph.nodes import attributes, domain, with_subgraph_nodes

ADVICE = "Export the network again with unpool.torch.export, which writes ONNX's own operators"
_KNOWN = ("ai.onnx", "com.microsoft", "com.ms.", "unpool")  # beginnings of the domains of runtimes
_NAME = re.compile(
    r"(adaptive_|fractional_)?(max|avg|lp)?_?(un)?pool(ing)?_?([123]d)?(_with_indices)?"
    r"|(slow_)?conv(olution)?(_?transposed?)?_?([123]d)?",
    re.IGNORECASE,
)


def torch_operator(node: onnx.NodeProto) -> str:
    """The name of torch's pooling, unpooling or convolution that a node stands for; "" for any other node.

    >>> node = onnx.helper.make_node("ATen", ["x", "i"], ["y"], domain="org.pytorch.aten", operator="max_unpool2d")
    >>> torch_operator(node), torch_operator(onnx.helper.make_node("MaxUnpool", ["x", "i"], ["y"]))
    ('max_unpool2d', '')
    """
    if domain(node).startswith(_KNOWN) or (domain(node) == "" and onnx.defs.has(node.op_type)):
        return ""
    name = node.op_type
    if name == "ATen":
        name = attributes(node).get("operator", b"").decode(errors="replace")
    name = name.rpartition("::")[2].lstrip("_")
    return name if _NAME.fullmatch(name) else ""


def torch_operators(nodes: Iterable[onnx.NodeProto]) -> list[str]:
    """The names of all such operators of nodes and of their subgraphs."""
    return list(dict.fromkeys(filter(None, map(torch_operator, with_subgraph_nodes(nodes)))))


def export_advice(nodes: Iterable[onnx.NodeProto], otherwise: str) -> str:
    """Advice for a model that no runtime supports: export it again, if it contains operators of torch."""
    names = torch_operators(nodes)
    return (
        f"torch's {', '.join(names)} {'are' if len(names) > 1 else 'is'} left in it. {ADVICE}." if names else otherwise
    )
