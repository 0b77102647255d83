"""Lists what of a lowered model its target may not take."""

from collections.abc import Iterator

import onnx

from unpool.runtime.graph.nodes import attributes, domain, node_name, with_subgraph_nodes
from unpool.runtime.lower.target import Target
from unpool.runtime.rewrite.repair_indices import NotRepaired


def left_over(model: onnx.ModelProto, target: Target) -> Iterator[NotRepaired]:
    """One record per operator that the target does not take, named after its first node, and one per odd node."""
    refused: dict[str, list[str]] = {}
    for node in with_subgraph_nodes(model.graph.node):
        if domain(node) != "" or node.op_type not in target.operators:
            refused.setdefault(node.op_type, []).append(node_name(node))
        else:
            yield from (NotRepaired(node_name(node), why) for why in _oddities(node, target))
    for operator, nodes in refused.items():
        more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
        what = f"; {target.otherwise}" if target.otherwise else ""
        yield NotRepaired(f"{nodes[0]}{more}", f"{operator} is not in the list of {target.title}{what}")


def _oddities(node: onnx.NodeProto, target: Target) -> Iterator[str]:
    """What a node asks for that the target does not have."""
    given = attributes(node)
    rank, ranks = len(given.get("kernel_shape", ())), target.ranks.get(node.op_type, ())
    if ranks and rank and rank not in ranks:
        yield f"{target.name} takes {' or '.join(map(str, ranks))} spatial axes, it has {rank}"
    if node.op_type == "MaxPool" and len(node.output) > 1 and not target.has_indices:
        yield f"{target.name} has no Indices"
    if node.op_type == "MaxPool" and given.get("ceil_mode") and not target.drops_windows:
        yield f"{target.name} keeps a last window that begins in the padding, which ONNX drops; fix the sizes"
    if node.op_type in ("MaxPool", "ConvTranspose") and given.get("auto_pad", b"NOTSET") not in (b"NOTSET", b""):
        yield f"auto_pad={given['auto_pad'].decode()} depends on a size that is open"
    if given.get("output_shape") is not None and node.op_type == "ConvTranspose":
        yield "output_shape depends on a size that is open, or is longer than the windows reach"
