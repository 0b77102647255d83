"""Rules that find MaxPool and ConvTranspose nodes whose windows ONNX Runtime or others place differently.

Whether windows differ is not guessed: they are placed under both values of `compat`, for every size X can have.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from unpool.errors import UnpoolError
from unpool.geometry import pooled_size, pooling_walk, upsampled_size
from unpool.operators import resolve
from unpool.operators.contract import Switch
from unpool.operators.conv_transpose import AxisRule, ConvTransposeSpec, axis_rules
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.runtime.graph.inference import ResolvedNode
from unpool.runtime.graph.nodes import node_name
from unpool.runtime.lint.finding import Finding
from unpool.runtime.rewrite.forms import WindowedNode
from unpool.runtime.rewrite.open_model import EditableModel, windowed_node
from unpool.runtime.rewrite.placement import axes_of, difference

CANONICALISE = "unpool canonicalise"
SAME = ("SAME_UPPER", "SAME_LOWER")

Told = tuple[str, str, str, str]
"""Rule, problem, who is affected, repair."""


def padding_findings(editable: EditableModel, resolved: ResolvedNode) -> Iterator[Finding]:
    """What the rules find wrong with a node. They say nothing of a MaxUnpool, nor of a node whose window is unknown."""
    if isinstance(resolved.spec, MaxUnpoolSpec):
        return
    try:
        one = windowed_node(editable, resolved)
        _ = one.window_sizes
    except UnpoolError:
        return
    for rule in POOL_RULES if isinstance(resolved.spec, MaxPoolSpec) else GROW_RULES:
        for told in rule(one):
            yield Finding(node_name(resolved.node), resolved.node.op_type, *told)


def pads_beside_auto_pad(one: WindowedNode) -> Iterator[Told]:
    """Pads that the mode overrides, or that forbid it."""
    spec = _pool(one)
    if spec.padding != "NOTSET" and any(any(pair) for pair in spec.pads):
        yield (
            "3.8",
            f"pads {[list(pair) for pair in spec.pads]} beside auto_pad {spec.padding}",
            "onnxruntime and OpenVINO ignore the pads; unpool and onnx's ReferenceEvaluator refuse the model",
            "Remove the pads, or unpool canonicalise --compat ort",
        )


def ceil_beside_valid(one: WindowedNode) -> Iterator[Told]:
    """VALID with ceil_mode."""
    spec = _pool(one)
    if spec.padding == "VALID" and spec.ceil and _differs(one):
        yield (
            "3.3",
            "ceil_mode beside auto_pad VALID, which has no effect in the standard",
            "onnxruntime and OpenVINO obey it and may give one element more per axis",
            CANONICALISE,
        )


def dilated_same(one: WindowedNode) -> Iterator[Told]:
    """SAME with dilation."""
    spec = _pool(one)
    if spec.padding in SAME and any(window.reach != window.size for window in spec.windows):
        yield (
            "3.6",
            f"auto_pad {spec.padding} with dilation",
            "onnxruntime counts the window without its dilation and gives another shape",
            CANONICALISE,
        )


def skipping_same(one: WindowedNode) -> Iterator[Told]:
    """SAME with a stride beyond the window."""
    spec = _pool(one)
    if spec.padding in SAME and _differs(one):
        yield (
            "3.7",
            f"auto_pad {spec.padding} with a stride beyond the window",
            "onnxruntime and onnx's ReferenceEvaluator start the windows inside the data",
            CANONICALISE,
        )


def stray_window(one: WindowedNode) -> Iterator[Told]:
    """A window that does not fit the input."""
    spec = _pool(one)
    if spec.padding in ("NOTSET", "VALID") and not spec.ceil and _differs(one):
        yield (
            "3.1",
            "its window does not fit the input: the standard gives an empty output",
            "onnxruntime gives one element, OpenVINO refuses",
            "Use a smaller kernel_shape, or larger inputs",
        )


def wide_pads(one: WindowedNode) -> Iterator[Told]:
    """Pads that reach the window, or a window that meets no data."""
    spec = _pool(one)
    reaching = spec.padding == "NOTSET" and any(
        max(pair) >= window.size for pair, window in zip(spec.pads, spec.windows, strict=True)
    )
    if reaching:
        yield (
            "3.10",
            f"pads {[list(pair) for pair in spec.pads]} reach the kernel_shape {list(one.window_sizes)}",
            "onnxruntime and onnx's ReferenceEvaluator refuse it; OpenVINO gives the lowest number in place of −∞",
            "Reduce the pads, or put a Pad of −∞ before it",
        )
    elif _has_empty_window(one):
        yield (
            "3.10",
            "a window meets nothing but padding, and its index is −1",
            "onnxruntime and OpenVINO give the lowest number in place of −∞, and index 0",
            "Reduce the pads or the dilations",
        )


def cut_window(one: WindowedNode) -> Iterator[Told]:
    """A window of ceil_mode that would start in the padding at the end."""
    spec = _pool(one)
    if spec.padding != "NOTSET" or not spec.ceil:
        return
    for size, window, pads in zip(one.sizes, spec.windows, spec.pads, strict=True):
        if not isinstance(size, int):
            continue
        rounded_up = -(-(size + sum(pads) - window.reach) // window.stride) + 1
        if pooled_size(size, window, *pads, ceil=True) < rounded_up:
            yield (
                "3.2",
                "ceil_mode leaves out a window that would start in the padding at the end",
                "OpenVINO keeps it, and so does onnx's shape inference below opset 22",
                _without_ceil(one),
            )
            return


def skipping_grown_same(one: WindowedNode) -> Iterator[Told]:
    """SAME with a stride beyond the window."""
    spec = _grow(one)
    if spec.output_shape is None and spec.padding in SAME and _differs(one):
        yield (
            "4.5",
            f"auto_pad {spec.padding} with a stride beyond the window",
            "onnxruntime and OpenVINO give a shorter output, onnx's ReferenceEvaluator places it elsewhere",
            CANONICALISE,
        )


def output_shape_side(one: WindowedNode) -> Iterator[Told]:
    """An output_shape that cuts an odd number of cells."""
    spec = _grow(one)
    if not any(total > 0 and total % 2 for total in _totals(one)):
        return
    if Switch.ODD_SIDE_SWAPPED in spec.row.switches:
        yield (
            "4.7",
            "output_shape cuts an odd number of cells, whose side changed between ConvTranspose-1 and -11",
            "onnxruntime cuts at the side of version 11, OpenVINO does unless auto_pad is SAME_UPPER",
            CANONICALISE,
        )
    elif spec.padding == "SAME_UPPER":
        yield (
            "4.7",
            "output_shape beside auto_pad SAME_UPPER cuts an odd number of cells",
            "OpenVINO cuts the odd one at the begin",
            CANONICALISE,
        )


def long_output_shape(one: WindowedNode) -> Iterator[Told]:
    """An output_shape beyond the full result."""
    if any(total < 0 for total in _totals(one)):
        yield (
            "4.8",
            "output_shape is larger than what the windows reach",
            "onnxruntime refuses it, or not, depending on how much; onnx's ReferenceEvaluator refuses or places it "
            "elsewhere",
            CANONICALISE,
        )


def large_output_padding(one: WindowedNode) -> Iterator[Told]:
    """An output_padding of at least the stride."""
    rules = axis_rules(replace(_grow(one), compat="spec"), one.window_sizes)
    if any(rule.extra >= rule.window.stride for rule in rules if rule.extra):
        yield (
            "4.11",
            f"output_padding {[rule.extra for rule in rules]} is not below the strides",
            "onnxruntime and onnx's ReferenceEvaluator refuse it",
            "Use output_padding below the strides, and a Pad of zeros behind X for the rest",
        )


POOL_RULES: tuple[Callable[[WindowedNode], Iterator[Told]], ...] = (
    pads_beside_auto_pad,
    ceil_beside_valid,
    dilated_same,
    skipping_same,
    stray_window,
    wide_pads,
    cut_window,
)
GROW_RULES: tuple[Callable[[WindowedNode], Iterator[Told]], ...] = (
    skipping_grown_same,
    output_shape_side,
    long_output_shape,
    large_output_padding,
)


def _pool(one: WindowedNode) -> MaxPoolSpec:
    assert isinstance(one.spec, MaxPoolSpec)
    return one.spec


def _grow(one: WindowedNode) -> ConvTransposeSpec:
    assert isinstance(one.spec, ConvTransposeSpec)
    return one.spec


def _differs(one: WindowedNode) -> bool:
    """Whether the two values of `compat` place the node differently, for a size that it can have."""
    row = one.spec.row
    try:
        specs = [resolve.from_row(row, one.attributes, compat=word, index_space="auto") for word in ("spec", "ort")]
        first, second = (spec for spec in specs if not isinstance(spec, MaxUnpoolSpec))
        return difference(first, second, one.window_sizes, one.sizes, ()) is not None
    except UnpoolError:
        return False


def _without_ceil(one: WindowedNode) -> str:
    """The pads with which as many windows fit without ceil_mode."""
    sizes = [size for size in one.sizes if isinstance(size, int)]
    if len(sizes) < len(one.sizes):
        return "Set ceil_mode to 0, and the pads at the end so that as many windows fit"
    axes = [axis_of(size) for size, axis_of in zip(sizes, axes_of(one.spec, ()), strict=True)]
    ends = [max(0, upsampled_size(axis.small, axis.window) - axis.large - axis.begin) for axis in axes]
    return f"Set ceil_mode to 0 and pads to {[axis.begin for axis in axes] + ends}"


def _has_empty_window(one: WindowedNode) -> bool:
    for size, axis_of in zip(one.sizes, axes_of(one.spec, one.window_sizes), strict=True):
        if isinstance(size, int):
            try:
                counts = pooling_walk(axis_of(size)).count
            except UnpoolError:
                continue
            if not counts.all():
                return True
    return False


def _totals(one: WindowedNode) -> list[int]:
    """How many cells output_shape cuts along the axes of known size; negative where it adds some."""
    rules: tuple[AxisRule, ...] = axis_rules(_grow(one), one.window_sizes)
    return [
        upsampled_size(size, rule.window, extra=rule.extra) - rule.asked
        for size, rule in zip(one.sizes, rules, strict=True)
        if isinstance(size, int) and rule.asked is not None
    ]
