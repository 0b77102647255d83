"""Rules that find MaxUnpool nodes whose indices do not count in the tensor that it writes."""

from collections.abc import Callable, Iterator

from unpool.runtime.graph.nodes import node_name
from unpool.runtime.graph.size import Size, numbers
from unpool.runtime.graph.size_flow import SizeFlow
from unpool.runtime.lint.finding import Finding
from unpool.runtime.rewrite.repair_indices import Unpooling, counts_in, offset_obstacle

FIX = "unpool fix"


def plane_indices(flow: SizeFlow, one: Unpooling) -> Iterator[Finding]:
    """Indices that count inside planes, as PyTorch's do, and get no offset."""
    if one.has_plane_indices:
        obstacle = offset_obstacle(flow, one)
        yield _finding(
            one,
            "2.3",
            "its indices count inside an (n, c) plane, as PyTorch's do; MaxUnpool's count in the whole tensor",
            "every runtime: the planes of all channels and images are written into the first one",
            f"Add (n * C + c) times the size of a plane; unpool fix cannot: {obstacle}" if obstacle else FIX,
        )


def column_indices(_: SizeFlow, one: Unpooling) -> Iterator[Finding]:
    """Indices of a MaxPool with storage_order 1."""
    pool = None if one.source is None else one.source.pool
    if one.has_column_indices and pool is not None:
        yield _finding(
            one,
            "3.14",
            f"its indices come from {node_name(pool)}, a MaxPool with storage_order 1; MaxUnpool reads order 0",
            "unpool and onnxruntime, which obey storage_order; OpenVINO and onnx's ReferenceEvaluator count otherwise",
            f"Set storage_order to 0 on {node_name(pool)}",
        )


def output_shape(flow: SizeFlow, one: Unpooling) -> Iterator[Finding]:
    """An output_shape that is not the size which follows from the attributes."""
    asked, inferred = None if one.asked is None else numbers(one.asked), one.inferred
    if asked is None or inferred is None or asked == inferred:
        return
    repair = FIX if counts_in(flow, one, one.asked or ()) else _advice(flow, one, inferred)
    if all(big >= small >= 0 for big, small in zip(asked, inferred, strict=True)):
        yield _finding(
            one,
            "1.1",
            f"output_shape {list(asked)} is larger than the {list(inferred)} that follows from the attributes",
            "onnxruntime counts indices in output_shape; onnx's ReferenceEvaluator counts in the size that follows, "
            "or refuses; unpool looks which of the two they fit",
            repair,
        )
    else:
        yield _finding(
            one,
            "1.4",
            f"output_shape {list(asked)} is smaller than the {list(inferred)} that follows from the attributes",
            "onnxruntime refuses it if it has fewer elements, onnx's ReferenceEvaluator always; unpool counts in it",
            repair,
        )


def _advice(flow: SizeFlow, one: Unpooling, inferred: tuple[int, ...]) -> str:
    if counts_in(flow, one, tuple(Size(size) for size in inferred)):
        return "Leave output_shape out and put a Pad behind: its indices count in the size that follows"
    return "Choose attributes from which output_shape follows, or leave it out"


def _finding(one: Unpooling, rule: str, problem: str, affected: str, repair: str) -> Finding:
    return Finding(node_name(one.node), one.node.op_type, rule, problem, affected, repair)


INDEX_RULES: tuple[Callable[[SizeFlow, Unpooling], Iterator[Finding]], ...] = (
    plane_indices,
    column_indices,
    output_shape,
)
