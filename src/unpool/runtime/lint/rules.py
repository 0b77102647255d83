"""The rules of `unpool check`: nodes that runtimes interpret differently, or that are probably mistakes.

Rules of windows place the windows under both values of `compat`, for every size that X can have.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import onnx

from unpool.display import display_line
from unpool.errors import UnpoolError, UnsupportedError
from unpool.geometry import pooled_size, pooling_walk, upsampled_size
from unpool.graph.dynamic_dims import DimExpr, DimFlow, as_ints
from unpool.graph.nodes import node_name
from unpool.graph.shape_inference import ResolvedNode
from unpool.graph.torch_operators import ADVICE, torch_operator
from unpool.operators import resolve
from unpool.operators.attributes import Settings
from unpool.operators.contract import Switch
from unpool.operators.conv_transpose import AxisRule, ConvTransposeSpec, axis_rules
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.runtime.rewrite.open_model import EditableModel, windowed_node
from unpool.runtime.rewrite.repair_indices import Unpooling, counts_in, offset_obstacle
from unpool.runtime.rewrite.window_forms import WindowedNode, axes_of, explicit_pads_form, window_difference

FIX, CANONICALISE = "unpool fix", "unpool canonicalise"
SAME = ("SAME_UPPER", "SAME_LOWER")
ASKED_SIZES = {
    "larger": (
        "1.1",
        "onnxruntime counts indices in output_shape; onnx's ReferenceEvaluator counts in the size that follows, "
        "or refuses; unpool uses the one of the two that they fit",
    ),
    "smaller": (
        "1.4",
        "onnxruntime refuses it if it has fewer elements, onnx's ReferenceEvaluator always; unpool counts in it",
    ),
}  # of output_shape against the size that follows from the attributes: the rule, and the affected runtimes


@dataclass(frozen=True)
class Finding:
    """A node that runtimes interpret differently, or that is probably a mistake; `print` shows one line.

    Attributes:
        node: its name, or `Operator->output` without one.
        operator: its type.
        rule: of docs/semantics.md.
        problem: the finding.
        affected: which runtimes read it differently, and how.
        repair: the command that repairs it, or what to change.
    """

    node: str
    operator: str
    rule: str
    problem: str
    affected: str
    repair: str

    def __str__(self) -> str:
        return f"{self.node}: {self.problem}. Effect: {self.affected}. Repair: {self.repair} (rule {self.rule})"


class Findings(tuple[Finding, ...]):
    """All findings of a model; `print` shows a line for each."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(display_line(str(finding)) for finding in self) or "nothing found"


def index_findings(flow: DimFlow, node: Unpooling) -> Iterator[Finding]:
    """The findings about the indices of a MaxUnpool."""
    finding = partial(Finding, node_name(node.node), node.node.op_type)
    if node.has_plane_indices:
        obstacle = offset_obstacle(flow, node)
        yield finding(
            "2.3",
            "its indices count inside an (n, c) plane, as PyTorch's do; MaxUnpool's count in the whole tensor",
            "every runtime: the planes of all channels and images are written into the first one",
            f"Add (n * C + c) times the size of a plane; unpool fix cannot: {obstacle}" if obstacle else FIX,
        )
    pool = None if node.source is None else node.source.pool
    if node.has_column_indices and pool is not None:
        yield finding(
            "3.14",
            f"its indices come from {node_name(pool)}, a MaxPool with storage_order 1; MaxUnpool reads order 0",
            "unpool and onnxruntime, which obey storage_order; OpenVINO and onnx's ReferenceEvaluator count otherwise",
            f"Set storage_order to 0 on {node_name(pool)}",
        )
    shape, inferred = None if node.asked is None else as_ints(node.asked), node.inferred
    if shape is None or inferred is None or shape == inferred:
        return
    if counts_in(flow, node, node.asked or ()):
        repair = FIX
    elif counts_in(flow, node, tuple(map(DimExpr, inferred))):
        repair = "Leave output_shape out and put a Pad after it: its indices count in the size that follows"
    else:
        repair = "Choose attributes from which output_shape follows, or leave it out"
    word = "larger" if all(big >= small >= 0 for big, small in zip(shape, inferred, strict=True)) else "smaller"
    rule, affected = ASKED_SIZES[word]
    follows = f"the {list(inferred)} that follows from the attributes"
    yield finding(rule, f"output_shape {list(shape)} is {word} than {follows}", affected, repair)


def torch_findings(node: onnx.NodeProto) -> Iterator[Finding]:
    """The finding about an operator of torch that is left in the file."""
    name = torch_operator(node)
    if name:
        affected = "every runtime: none has a kernel for it"
        yield Finding(node_name(node), node.op_type, "7", f"torch's {name} is left in the file", affected, ADVICE)


def window_findings(editable: EditableModel, resolved: ResolvedNode) -> Iterator[Finding]:
    """The findings about the windows of a MaxPool or ConvTranspose; none where its window is unknown."""
    if isinstance(resolved.spec, MaxUnpoolSpec):
        return
    try:
        node = windowed_node(editable, resolved)
        _ = node.window_sizes
    except UnpoolError:
        return
    for rule in POOL_RULES if isinstance(resolved.spec, MaxPoolSpec) else CONV_TRANSPOSE_RULES:
        if rule.applies(node):
            words = (word if isinstance(word, str) else word(node) for word in rule[2:])
            yield Finding(node_name(resolved.node), resolved.node.op_type, rule.rule, *words)


def _pool(node: WindowedNode) -> MaxPoolSpec:
    assert isinstance(node.spec, MaxPoolSpec)
    return node.spec


def _conv_transpose(node: WindowedNode) -> ConvTransposeSpec:
    assert isinstance(node.spec, ConvTransposeSpec)
    return node.spec


def _pads(node: WindowedNode) -> str:
    return str([list(pair) for pair in _pool(node).pads])


def _differs(node: WindowedNode) -> bool:
    """True if the two values of `compat` place the node differently, for a size that it can have."""
    version = node.spec.version
    try:
        specs = [resolve.from_version(version, node.attributes, Settings(compat=word)) for word in ("spec", "ort")]
        first, second = (spec for spec in specs if not isinstance(spec, MaxUnpoolSpec))
        return window_difference(first, second, node.window_sizes, node.sizes, ()) is not None
    except UnpoolError:
        return False


def _pads_lower(node: WindowedNode) -> bool:
    """True if SAME_LOWER pads, for a size that the node can have; where it does not, rule 3.7 is about its windows."""
    spec = _pool(node)
    if spec.padding != "SAME_LOWER":
        return False
    for size, window, axis_of in zip(node.sizes, spec.windows, axes_of(spec, ()), strict=True):
        with suppress(UnpoolError):
            if not isinstance(size, int):
                if window.reach > 1:
                    return True
            elif upsampled_size(axis_of(size).small, window) > size:
                return True
    return False


def _pads_reach_window(node: WindowedNode) -> bool:
    spec = _pool(node)
    pairs = zip(spec.pads, spec.windows, strict=True)
    return spec.padding == "NOTSET" and any(max(pads) >= window.size for pads, window in pairs)


def _has_empty_window(node: WindowedNode) -> bool:
    """True if a window meets nothing but padding, by pads that do not reach the window."""
    axes = [] if _pads_reach_window(node) else zip(node.sizes, axes_of(node.spec, node.window_sizes), strict=True)
    for size, axis_of in axes:
        with suppress(UnpoolError):
            if isinstance(size, int) and not pooling_walk(axis_of(size)).count.all():
                return True
    return False


def _skips_last_window(node: WindowedNode) -> bool:
    spec = _pool(node)
    if spec.padding != "NOTSET" or not spec.ceil:
        return False
    axes = zip(node.sizes, spec.windows, spec.pads, strict=True)
    return any(
        pooled_size(size, window, *pads, ceil=True) < -(-(size + sum(pads) - window.reach) // window.stride) + 1
        for size, window, pads in axes
        if isinstance(size, int)
    )


def _pads_without_ceil(node: WindowedNode) -> str:
    """Advice to set pads with which the same windows fit without ceil_mode."""
    sizes = [size for size in node.sizes if isinstance(size, int)]
    if len(sizes) < len(node.sizes):
        return "Set ceil_mode to 0, and the pads at the end so that as many windows fit"
    axes = [axis_of(size) for size, axis_of in zip(sizes, axes_of(node.spec, ()), strict=True)]
    ends = [max(0, upsampled_size(axis.small, axis.window) - axis.large - axis.begin) for axis in axes]
    return f"Set ceil_mode to 0 and pads to {[axis.begin for axis in axes] + ends}"


def _cropped(node: WindowedNode) -> list[int]:
    """Cells that output_shape crops along the axes of known size; negative where it adds cells."""
    rules: tuple[AxisRule, ...] = axis_rules(_conv_transpose(node), node.window_sizes)
    return [
        upsampled_size(size, rule.window, extra=rule.extra) - rule.asked
        for size, rule in zip(node.sizes, rules, strict=True)
        if isinstance(size, int) and rule.asked is not None
    ]


def _crops_odd_number(node: WindowedNode, *, swapped: bool) -> bool:
    """True if the crop is odd on an axis, in a version that swaps the side of the odd cell or in one that does not."""
    is_swapped = Switch.ODD_SIDE_SWAPPED in node.spec.version.switches
    return is_swapped == swapped and any(total > 0 and total % 2 for total in _cropped(node))


def _output_padding(node: WindowedNode) -> list[tuple[int, int]]:
    """output_padding and stride of each axis."""
    rules = axis_rules(_conv_transpose(node)._replace(compat="spec"), node.window_sizes)
    return [(rule.extra, rule.window.stride) for rule in rules]


Words: TypeAlias = str | Callable[[WindowedNode], str]


def _canonicalise(node: WindowedNode) -> str:
    """The command, if it can write the node with explicit pads."""
    try:
        explicit_pads_form(node, node.spec.version)
    except UnsupportedError:
        return f"Export it with fixed sizes, then {CANONICALISE}"
    return CANONICALISE


class WindowRule(NamedTuple):
    """A rule of docs/semantics.md: when it applies to a node, and the words of its finding."""

    rule: str
    applies: Callable[[WindowedNode], bool]
    problem: Words
    affected: Words
    repair: Words = _canonicalise


POOL_RULES = (
    WindowRule(
        "3.8",
        lambda node: _pool(node).padding != "NOTSET" and any(any(pair) for pair in _pool(node).pads),
        lambda node: f"pads {_pads(node)} next to auto_pad {node.spec.padding}",
        "onnxruntime and OpenVINO ignore the pads; unpool and onnx's ReferenceEvaluator refuse the model",
        "Remove the pads, or unpool canonicalise --compat ort",
    ),
    WindowRule(
        "3.3",
        lambda node: node.spec.padding == "VALID" and _pool(node).ceil and _differs(node),
        "ceil_mode next to auto_pad VALID, which has no effect in the standard",
        "onnxruntime and OpenVINO obey it and may give one element more per axis",
    ),
    WindowRule(
        "3.5",
        _pads_lower,
        "auto_pad SAME_LOWER",
        "onnx's ReferenceEvaluator places the windows elsewhere, and may give another shape",
    ),
    WindowRule(
        "3.6",
        lambda node: node.spec.padding in SAME and any(each.reach != each.size for each in _pool(node).windows),
        lambda node: f"auto_pad {node.spec.padding} with dilation",
        "onnxruntime counts the window without its dilation and gives another shape",
    ),
    WindowRule(
        "3.7",
        lambda node: node.spec.padding in SAME and _differs(node),
        lambda node: f"auto_pad {node.spec.padding} with a stride beyond the window",
        "onnxruntime and onnx's ReferenceEvaluator start the windows inside the data",
    ),
    WindowRule(
        "3.1",
        lambda node: node.spec.padding in ("NOTSET", "VALID") and not _pool(node).ceil and _differs(node),
        "its window does not fit the input: the standard gives an empty output",
        "onnxruntime gives one element, OpenVINO refuses",
        "Use a smaller kernel_shape, or larger inputs",
    ),
    WindowRule(
        "3.10",
        _pads_reach_window,
        lambda node: f"pads {_pads(node)} reach the kernel_shape {list(node.window_sizes)}",
        "onnxruntime and onnx's ReferenceEvaluator refuse it; OpenVINO gives the lowest number in place of −∞",
        "Reduce the pads, or put a Pad of −∞ before it",
    ),
    WindowRule(
        "3.10",
        _has_empty_window,
        "a window meets nothing but padding, and its index is −1",
        "onnxruntime and OpenVINO give the lowest number in place of −∞, and index 0",
        "Reduce the pads or the dilations",
    ),
    WindowRule(
        "3.2",
        _skips_last_window,
        "ceil_mode leaves out a window that would start in the padding at the end",
        "OpenVINO keeps it, and so does onnx's shape inference below opset 22",
        _pads_without_ceil,
    ),
)
CONV_TRANSPOSE_RULES = (
    WindowRule(
        "4.5",
        lambda node: _conv_transpose(node).output_shape is None and node.spec.padding in SAME and _differs(node),
        lambda node: f"auto_pad {node.spec.padding} with a stride beyond the window",
        "onnxruntime and OpenVINO give a shorter output, onnx's ReferenceEvaluator places it elsewhere",
    ),
    WindowRule(
        "4.7",
        lambda node: _crops_odd_number(node, swapped=True),
        "output_shape cuts an odd number of cells, whose side changed between ConvTranspose-1 and -11",
        "onnxruntime cuts at the side of version 11, OpenVINO does unless auto_pad is SAME_UPPER",
    ),
    WindowRule(
        "4.7",
        lambda node: node.spec.padding == "SAME_UPPER" and _crops_odd_number(node, swapped=False),
        "output_shape next to auto_pad SAME_UPPER cuts an odd number of cells",
        "OpenVINO cuts the odd one at the begin",
    ),
    WindowRule(
        "4.8",
        lambda node: any(total < 0 for total in _cropped(node)),
        "output_shape is larger than what the windows reach",
        "onnxruntime refuses it, or not, depending on how much; onnx's ReferenceEvaluator refuses or places it "
        "elsewhere",
    ),
    WindowRule(
        "4.11",
        lambda node: any(extra >= stride for extra, stride in _output_padding(node) if extra),
        lambda node: f"output_padding {[extra for extra, _ in _output_padding(node)]} is not below the strides",
        "onnxruntime and onnx's ReferenceEvaluator refuse it",
        "Use output_padding below the strides, and a Pad of zeros after X for the rest",
    ),
)
