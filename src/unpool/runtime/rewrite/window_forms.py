"""Other forms of a MaxPool or ConvTranspose with every window in the same position, for every size that X can have.

Pads of a ConvTranspose follow from its windows alone, except under output_shape; those of a MaxPool under SAME follow
from the size of X unless the stride is 1. A ConvTranspose whose output is longer than its windows reach gets
output_padding below the stride; if that is not enough, zeros are appended to X.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

from unpool.display import display_line, format_shape
from unpool.errors import UnpoolError, UnsupportedError
from unpool.geometry import Axis, ceil_end, upsampled_size
from unpool.graph.graph import FreshNames, unused_names
from unpool.graph.nodes import attributes, domain, is_unpool_op, node_name, subgraphs
from unpool.graph.shape_inference import ResolvedNode
from unpool.graph.shapes import Dim, Dims
from unpool.operators import conv_transpose, max_pool, resolve
from unpool.operators.attributes import Attributes, Settings
from unpool.operators.contract import OperatorVersion
from unpool.operators.conv_transpose import AxisRule, ConvTransposeSpec, axis_rules
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.operators.tensors import Shape
from unpool.passes.rewrite import NodeChange, copy_node, set_items

WindowedSpec: TypeAlias = MaxPoolSpec | ConvTransposeSpec
AxisOf: TypeAlias = Callable[[int], Axis]
MAX_SIZES = 100_000  # largest size of an axis for which positions are compared
FIX_SIZE = "Fix the size, for instance with onnx.tools.update_model_dims"
FIRST_PAD_INPUT = 11  # before this opset, the pads of Pad were an attribute
OLD_PAD = "paddings"  # its name in version 1


def axes_of(spec: WindowedSpec, window_sizes: Shape) -> list[AxisOf]:
    """A function from the size to the axis of a call, for each spatial axis of X; `window_sizes` is the window of W."""
    if isinstance(spec, MaxPoolSpec):
        return [partial(max_pool.axis, spec, number) for number in range(len(spec.windows))]
    rules = conv_transpose.axis_rules(spec, window_sizes)
    return [partial(conv_transpose.axis, spec, number, rule) for number, rule in enumerate(rules)]


def sizes_of(spec: WindowedSpec, window_sizes: Shape, number: int, size: Dim) -> Sequence[int]:
    """The known size of an axis of X; for an unknown one, all until positions repeat, or an UnsupportedError."""
    if isinstance(size, int):
        return (size,)
    if isinstance(spec, MaxPoolSpec):
        rule = AxisRule(spec.windows[number], spec.pads[number], 0, None)
    else:
        rule = conv_transpose.axis_rules(spec, window_sizes)[number]
    window = rule.window
    last = window.reach + 2 * window.stride + sum(rule.pads) + rule.extra + (rule.asked or 0)
    if last > MAX_SIZES:
        raise UnsupportedError(
            f"{spec.version.label}: spatial axis {number} needs a known size where the window, the pads or "
            f"output_shape are as large as here ({last} elements). {FIX_SIZE}."
        )
    return range(1, last + 2)


def axis_or_none(axis_of: AxisOf, size: int) -> Axis | None:
    """The axis of a call; None where the call is refused."""
    try:
        return axis_of(size)
    except UnpoolError:
        return None


def window_difference(
    before: WindowedSpec, after: WindowedSpec, window_sizes: Shape, sizes: Sequence[Dim], zeros: Shape
) -> str | None:
    """The first axis and size for which two forms of a node have windows in other positions; None if there is none.

    `window_sizes` is the window of W, not used by MaxPool; `zeros` are the elements appended to X for `after`.
    """
    old, new = axes_of(before, window_sizes), axes_of(after, window_sizes)
    is_floor = isinstance(before, MaxPoolSpec) and before.compat == "spec" and after.compat == "ort"
    for number, size in enumerate(sizes):
        extra = zeros[number] if zeros else 0
        for length in sizes_of(before, window_sizes, number, size):
            expected, got = axis_or_none(old[number], length), axis_or_none(new[number], length + extra)
            # onnxruntime pools a window that does not fit an X of unknown size once, in any form
            if expected is None or (is_floor and not isinstance(size, int) and expected.small == 0):
                continue
            positions = (expected.large, expected.small + extra, expected.begin)
            if got is None or positions != (got.large, got.small, got.begin):
                return f"spatial axis {number} where X has {length} elements"
    return None


@dataclass(frozen=True)
class Form:
    """A form of a node: all of its attributes, by ONNX name, and the zeros to append to X along each spatial axis."""

    attributes: Mapping[str, Any]
    zeros: Shape = ()  # empty for none


@dataclass(frozen=True)
class WindowedNode:
    """A MaxPool or ConvTranspose with its known sizes."""

    spec: WindowedSpec
    attributes: Mapping[str, Any]  # by ONNX name
    sizes: Dims  # spatial sizes of X
    window: Dims  # spatial sizes of W; for MaxPool its kernel_shape
    takes_zeros: bool  # zeros appended to X give zeros and never NaN, because W is a constant and finite

    @property
    def window_sizes(self) -> Shape:
        """The sizes of the window, or an UnsupportedError if one is not known."""
        if not all(isinstance(size, int) for size in self.window):
            raise UnsupportedError(f"{self.spec.version.label}: the shape of W is not fixed: {list(self.window)}.")
        return tuple(size for size in self.window if isinstance(size, int))


def explicit_pads_form(node: WindowedNode, version: OperatorVersion) -> Form:
    """The node with explicit pads, read alike under `compat="spec"` and `compat="ort"`, or an UnsupportedError."""
    spec = node.spec
    form = _explicit_pool(node, spec) if isinstance(spec, MaxPoolSpec) else _explicit_conv_transpose(node, spec)
    for compat in ("spec", "ort"):
        wrong = _form_difference(node, form, version, compat)
        if wrong is not None:
            who = "ONNX Runtime reads" if compat == "ort" else "the standard means"
            raise UnsupportedError(
                f"{spec.version.label}: explicit pads would not do as {who} them: {wrong}. Leave the node as it is."
            )
    return form


def form_in_version(node: WindowedNode, version: OperatorVersion) -> Form:
    """The form of a node in another version: the same, else with explicit pads, else with the other side of auto_pad.

    An UnsupportedError has the reason if none of these has the same windows.
    """
    plain = Form(_normalize_attributes(node))
    if _form_difference(node, plain, version, "spec") is None:
        return plain
    try:
        return explicit_pads_form(node, version)
    except UnsupportedError:
        for side in ("SAME_UPPER", "SAME_LOWER") if "output_shape" in plain.attributes else ():
            form = Form({**plain.attributes, "auto_pad": side})
            if _form_difference(node, form, version, "spec") is None:
                return form
        raise


def _form_difference(node: WindowedNode, form: Form, version: OperatorVersion, compat: str) -> str | None:
    spec = node.spec
    try:
        after = resolve.from_version(version, form.attributes, Settings(compat=compat))
        has_switches = isinstance(spec, ConvTransposeSpec) and spec.output_shape is not None
        is_same_version = spec.version.switches == after.version.switches or not has_switches
        if after._replace(version=spec.version) == spec and is_same_version and not form.zeros:
            return None
        assert not isinstance(after, MaxUnpoolSpec)
        return window_difference(spec, after, node.window_sizes, node.sizes, form.zeros)
    except UnpoolError as error:
        return str(error).split(". ")[0].partition(": ")[2]


def _normalize_attributes(node: WindowedNode) -> dict[str, Any]:
    """The attributes without an empty auto_pad, pads that others override, and N and M in output_shape."""
    kept = dict(node.attributes)
    if kept.get("auto_pad") in ("", b""):
        del kept["auto_pad"]
    if "output_shape" in kept:
        kept["output_shape"] = list(kept["output_shape"])[-len(node.window) :]
    if "output_shape" in kept or node.spec.padding != "NOTSET":
        kept.pop("pads", None)
    return kept


def _explicit_pool(node: WindowedNode, spec: MaxPoolSpec) -> Form:
    kept = {name: value for name, value in node.attributes.items() if name not in ("auto_pad", "pads")}
    if spec.compat == "ort" and spec.padding == "VALID" and spec.ceil:
        return Form(kept)
    kept.pop("ceil_mode", None)
    pads = []
    for number, (window, (begin, end), size) in enumerate(zip(spec.windows, spec.pads, node.sizes, strict=True)):
        if spec.ceil and spec.padding == "NOTSET" and not isinstance(size, int):
            pads.append((begin, ceil_end(window, end)))
        else:
            pads.append(_same_for_all_sizes(node, number))
    return Form(kept | _unless_zero("pads", [begin for begin, _ in pads] + [end for _, end in pads]))


def _explicit_conv_transpose(node: WindowedNode, spec: ConvTransposeSpec) -> Form:
    strides = [rule.window.stride for rule in axis_rules(spec, node.window_sizes)]
    cuts = [_same_for_all_sizes(node, number) for number in range(len(strides))]
    # output_padding is below the stride; zeros at the end of X make up for the rest
    zeros = tuple(0 if -cut < stride else -(cut // stride) for (_, cut), stride in zip(cuts, strides, strict=True))
    if any(zeros) and not node.takes_zeros:
        raise UnsupportedError(
            f"{spec.version.label}: its output is longer than output_padding can make it, and zeros after X need W to "
            "be a constant without infinities or NaN. Make W an initializer."
        )
    ends = [cut + steps * stride for (_, cut), steps, stride in zip(cuts, zeros, strides, strict=True)]
    dropped = ("auto_pad", "pads", "output_shape", "output_padding")
    kept = {name: value for name, value in node.attributes.items() if name not in dropped}
    kept |= _unless_zero("pads", [begin for begin, _ in cuts] + [max(0, end) for end in ends])
    kept |= _unless_zero("output_padding", [max(0, -end) for end in ends])
    return Form(kept, zeros if any(zeros) else ())


def _unless_zero(name: str, values: Sequence[int]) -> dict[str, Any]:
    return {name: list(values)} if any(values) else {}


def _same_for_all_sizes(node: WindowedNode, number: int) -> tuple[int, int]:
    """The elements by which the windows of an axis reach beyond its begin and end, if every size has the same.

    A negative end of a ConvTranspose is an extension; where the windows of a MaxPool end before the axis, it is 0.
    """
    size, axis_of = node.sizes[number], axes_of(node.spec, node.window_sizes)[number]
    results = set()
    for length in sizes_of(node.spec, node.window_sizes, number, size):
        axis = axis_or_none(axis_of, length)
        if axis is not None:
            end = upsampled_size(axis.small, axis.window) - axis.begin - axis.large
            results.add((axis.begin, max(0, end) if isinstance(node.spec, MaxPoolSpec) else end))
    if not results:
        raise UnsupportedError(f"{node.spec.version.label}: no size of spatial axis {number} of X gives an output.")
    if len(results) > 1:
        name = f" ({size!r})" if isinstance(size, str) else ""
        raise UnsupportedError(
            f"{node.spec.version.label}: its padding depends on the size of spatial axis {number} of X, "
            f"which is unknown{name}. {FIX_SIZE}."
        )
    return results.pop()


@dataclass(frozen=True)
class RewriteResult:
    """A rewritten model with the same results, and its changes; `print` shows the changes."""

    model: onnx.ModelProto
    changes: tuple[NodeChange, ...]

    def __str__(self) -> str:
        return "\n".join(display_line(str(change)) for change in self.changes) or "no node changed"


def apply_forms(
    model: onnx.ModelProto,
    nodes: Sequence[ResolvedNode],
    forms: Sequence[Form | None],
    versions: Sequence[OperatorVersion] = (),
) -> tuple[NodeChange, ...]:
    """Write unpool's operators in their forms, None for one that stays, and in `versions`, else in their own.

    `nodes` are all of them, in the order of `with_subgraph_nodes`. Changes are listed where a shown attribute changes.
    """
    opset = next((entry.version for entry in model.opset_import if entry.domain == ""), 0)
    _apply_to_graph(model.graph, iter(forms), opset, unused_names(model.graph))
    changes = []
    for resolved, form, version in zip(nodes, forms, versions or [node.spec.version for node in nodes], strict=True):
        if form is not None:
            given = attributes(resolved.node)
            before = describe_attributes(resolved.spec.version, given, form.attributes)
            after = describe_attributes(version, form.attributes, given)
            after += f" after Pad by {format_shape(form.zeros)}" if form.zeros else ""
            if before != after:
                changes.append(NodeChange(node_name(resolved.node), before, after))
    return tuple(changes)


def _apply_to_graph(graph: onnx.GraphProto, forms: Iterator[Form | None], opset: int, names: FreshNames) -> None:
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for _, subgraph in subgraphs(node):
            _apply_to_graph(subgraph, forms, opset, names)
        form = next(forms) if is_unpool_op(node) else None
        if form is not None:
            node = copy_node(node, [attribute.name for attribute in node.attribute], **form.attributes)
            if form.zeros:
                padded = names.fresh(f"{node.input[0]}_longer")
                nodes.extend(_pad(node, form.zeros, opset, padded, names))
                node.input[0] = padded
        nodes.append(node)
    set_items(graph.node, nodes)


def _pad(node: onnx.NodeProto, zeros: Shape, opset: int, output: str, names: FreshNames) -> list[onnx.NodeProto]:
    """Nodes that append zeros to the spatial axes of the node's first input."""
    if opset < 1:
        raise UnsupportedError(
            f"node {node_name(node)!r}: needs a Pad before it, got a model without ONNX's operators."
        )
    outer = [0, *zeros, 0] if domain(node) else [0, 0, *zeros]
    pads = [0] * len(outer) + outer
    if opset < FIRST_PAD_INPUT:
        given: dict[str, Any] = {"pads" if opset > 1 else OLD_PAD: pads}
        return [helper.make_node("Pad", [node.input[0]], [output], **given)]
    amounts = names.fresh(f"{output}_by")
    tensor = numpy_helper.from_array(np.array(pads, np.int64), amounts)
    constant = helper.make_node("Constant", [], [amounts], value=tensor)
    return [constant, helper.make_node("Pad", [node.input[0], amounts], [output])]


def describe_attributes(version: OperatorVersion, given: Attributes, other: Attributes) -> str:
    """An operator, its version, and the attributes of its padding that differ from the other form.

    >>> from unpool.operators import contract
    >>> given = {"auto_pad": b"SAME_UPPER", "output_padding": [1], "strides": [2], "group": 1}
    >>> other = {"pads": [0, 1], "output_padding": [1], "strides": [2]}
    >>> describe_attributes(contract.version_at("ConvTranspose", "", 7), given, other)
    'ConvTranspose-1 (auto_pad=SAME_UPPER)'
    """
    shown = ("auto_pad", "pads", "output_padding", "output_shape", "ceil_mode")
    words, others = ({name: _format_value(form[name]) for name in shown if name in form} for form in (given, other))
    parts = [f"{name}={word}" for name, word in words.items() if others.get(name) != word]
    return version.label + (f" ({', '.join(parts)})" if parts else "")


def _format_value(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return list(value) if isinstance(value, (list, tuple)) else value
