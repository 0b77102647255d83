"""The runtime of each node, unpool, onnxruntime or onnx's ReferenceEvaluator, and the reason.

unpool runs every MaxUnpool and MaxPool with Indices, every ConvTranspose unless the passes leave all of them to
onnxruntime, and an If, Loop, Scan or SequenceMap with a node of unpool in a subgraph; its subgraphs have own plans. A
plain MaxPool stays with onnxruntime unless its attributes could
silently give another result there, or unpool makes its input: then that is not in onnxruntime's blocked layout, in
which alone it pools fast. Where sizes are not known, a plan may assume that they are no such ones; the executor then
checks them for each combination of input shapes.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import onnx

from unpool import execute
from unpool.errors import UnpoolError
from unpool.geometry import Window
from unpool.operators.contract import NHWC
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.resolve import Spec
from unpool.runtime.graph import shapes
from unpool.runtime.graph.nodes import is_unpool_op, node_name, subgraph_nodes
from unpool.runtime.graph.shapes import Types
from unpool.runtime.plan.subgraphs import has_unpool_subgraphs

RunnerName: TypeAlias = Literal["unpool", "onnxruntime", "openvino", "reference"]
KnownSizes: TypeAlias = tuple[int | None, ...]

ONNXRUNTIME_TYPES = ("float16", "float32", "float64", "int8", "uint8")
FIRST_DOUBLE_POOL = 8  # onnxruntime has no float64 kernel for MaxPool-1
HIGHEST_POOL_RANK = 3
ASSUMED_SIZE = 2**20  # of an axis that is not known, where a plan assumes that windows fit


OPENVINO_IS_FASTER = "OpenVINO's is faster here, as timed"
NO_PROFIT = "unpool would save less time than it costs to leave onnxruntime"


@dataclass(frozen=True)
class Assignment:
    """The runtime of a node, and why."""

    runner: RunnerName
    reason: str


def assign_runner(
    node: onnx.NodeProto,
    spec: Spec | None,
    types: Types,
    *,
    exact: str,
    is_after_unpool: bool,
    is_hosted: bool = True,
    assumes_sizes: bool = False,
) -> Assignment:
    """The runtime of a node that onnxruntime does not refuse.

    `spec` is None for operators that are not unpool's, `exact` the reason why unpool runs every MaxPool, "" if it does
    not. `is_after_unpool`: unpool makes the first input; `is_hosted`: unpool would run the node on the CPU;
    `assumes_sizes`: sizes that are not known are large enough for every window.
    """
    if spec is None:
        return _assign_other(node)
    if not isinstance(spec, MaxPoolSpec):
        algorithm = _algorithm(spec, node, types) if is_hosted else ""
        return Assignment("unpool", f"unpool runs every {node.op_type}{algorithm}")
    if any(node.output[1:]):
        return Assignment("unpool", "unpool runs every MaxPool with Indices")
    if exact:
        return Assignment("unpool", exact)
    known = shapes.static_dims(types.get(node.input[0]))
    difference = _type_difference(spec, node.input[0], types)
    reason = "plain MaxPool, equal for finite data; NaN and all -inf windows are onnxruntime's"
    if difference is None:
        difference = shape_difference(spec, known)
        if difference is not None and assumes_sizes and shape_difference(spec, _assumed(spec, known)) is None:
            difference, reason = None, f"{reason}; sizes are checked before each run"
    if difference is not None:
        return Assignment("unpool", difference)
    if is_after_unpool:
        why = "not in onnxruntime's blocked layout" if is_hosted else "one hand-over less"
        return Assignment("unpool", f"plain MaxPool after a node of unpool's: {why}")
    return Assignment("onnxruntime", reason)


def _algorithm(spec: Spec, node: onnx.NodeProto, types: Types) -> str:
    x, w = (types.get(name) for name in node.input[:2])
    known, window, dtype = shapes.static_dims(x), shapes.static_dims(w), shapes.dtype(x)
    if not isinstance(spec, ConvTransposeSpec) or known is None or window is None or dtype is None:
        return ""
    x_shape, w_shape = (tuple(size for size in each if size is not None) for each in (known, window))
    if len(x_shape) < len(known) or len(w_shape) < len(window):
        return ""
    try:
        return f", by {execute.conv_transpose_algorithm(spec, x_shape, w_shape, dtype)}"
    except UnpoolError:
        return ""


def _assign_other(node: onnx.NodeProto) -> Assignment:
    if is_unpool_op(node):
        return Assignment("onnxruntime", OPENVINO_IS_FASTER)
    inside = [node_name(inner) for inner in subgraph_nodes(node) if is_unpool_op(inner)]
    if inside:
        runner: RunnerName = "unpool" if has_unpool_subgraphs(node) else "reference"
        return Assignment(runner, f"its subgraph holds {', '.join(inside)}; onnxruntime would run its own")
    return Assignment("onnxruntime", "not an operator of unpool")


def _type_difference(spec: MaxPoolSpec, name: str, types: Types) -> str | None:
    """The reason why onnxruntime could not run this plain MaxPool; None when it can."""
    if spec.row.domain == NHWC:
        return f"onnxruntime has no CPU kernel for {NHWC}"
    dtype = shapes.dtype(types.get(name))
    if dtype is None:
        return "the type of its input is unknown before it runs"
    is_old = dtype.name == "float64" and (spec.row.since_version or 0) < FIRST_DOUBLE_POOL
    if is_old or dtype.name not in ONNXRUNTIME_TYPES:
        return f"onnxruntime has no {dtype.name} kernel for {spec.row.label}"
    if len(spec.windows) > HIGHEST_POOL_RANK:
        return f"onnxruntime has no kernel for {len(spec.windows)} spatial axes"
    return None


def shape_difference(spec: MaxPoolSpec, known: KnownSizes | None) -> str | None:
    """The reason why onnxruntime could give another result for this plain MaxPool; None when it cannot."""
    rank = len(spec.windows)
    if known is not None and 0 in known:
        return "onnxruntime refuses an empty input"
    sizes = known[2:] if known is not None and len(known) == rank + 2 else (None,) * rank
    for size, window, pads in zip(sizes, spec.windows, spec.pads, strict=True):
        if spec.padding in ("SAME_UPPER", "SAME_LOWER"):
            gap = "auto_pad SAME with a stride beyond the window" if window.stride > window.reach else None
            difference = "auto_pad SAME with dilation" if window.dilation > 1 else gap
        elif spec.padding == "VALID":
            difference = "VALID with ceil_mode" if spec.ceil else _floor_difference(size, window, (0, 0))
        else:
            difference = _padded_difference(size, window, pads) or _floor_difference(size, window, pads)
        if difference is not None:
            return f"onnxruntime may differ: {difference}"
    return None


def _assumed(spec: MaxPoolSpec, known: KnownSizes | None) -> KnownSizes:
    sizes = (None,) * (len(spec.windows) + 2) if known is None else known
    return tuple(ASSUMED_SIZE if size is None else size for size in sizes)


def _padded_difference(size: int | None, window: Window, pads: tuple[int, int]) -> str | None:
    if max(pads) >= window.size:
        return "pads reach the kernel size"
    if window.dilation > 1 and any(pads) and (size is None or size < window.dilation):
        return "a dilated window may see padding only"
    return None


def _floor_difference(size: int | None, window: Window, pads: tuple[int, int]) -> str | None:
    """A window that does not fit: no output in the standard, one output in onnxruntime."""
    least = 1 if size is None else size
    return "the window may not fit the input" if window.stride > 1 and least + sum(pads) < window.reach else None
