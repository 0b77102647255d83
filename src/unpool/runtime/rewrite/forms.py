"""Finds other ways of writing a MaxPool or ConvTranspose that leave every window in its place.

Pads of a ConvTranspose follow from its windows alone, except under output_shape; those of a MaxPool under SAME follow
from the size of X unless the stride is 1. A ConvTranspose whose output is longer than its windows reach gets
output_padding below the stride; what is longer still comes from zeros behind X.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unpool.errors import UnpoolError, UnsupportedError
from unpool.geometry import Axis, ceil_end, upsampled_size
from unpool.operators import resolve
from unpool.operators.contract import Row
from unpool.operators.conv_transpose import ConvTransposeSpec, axis_rules
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.operators.resolve import Spec
from unpool.operators.tensors import Shape
from unpool.runtime.graph.dims import Dim, Dims
from unpool.runtime.rewrite.placement import AxisOf, WindowedSpec, axes_of, axis_or_none, difference, sizes_of

FIX_SIZE = "Fix the size, for instance with onnx.tools.update_model_dims"


@dataclass(frozen=True)
class Form:
    """How a node is to be written.

    Attributes:
        attributes: all of them, by ONNX name.
        behind: zeros to put behind X along each spatial axis; empty for none.
    """

    attributes: Mapping[str, Any]
    behind: Shape = ()


@dataclass(frozen=True)
class WindowedNode:
    """A MaxPool or ConvTranspose as it is written, with the sizes that are known.

    Attributes:
        spec: what its attributes mean.
        attributes: by ONNX name.
        sizes: spatial sizes of X.
        window: spatial sizes of W; for MaxPool its kernel_shape.
        takes_zeros: whether zeros that are put behind X give zeros and never NaN, because W is a constant and finite.
    """

    spec: WindowedSpec
    attributes: Mapping[str, Any]
    sizes: Dims
    window: Dims
    takes_zeros: bool

    @property
    def window_sizes(self) -> Shape:
        """The window, all of it known.

        Raises:
            UnsupportedError: it is not.
        """
        if not all(isinstance(size, int) for size in self.window):
            raise UnsupportedError(f"{self.spec.row.label}: needs W of known shape, got {list(self.window)}. Fix it.")
        return tuple(size for size in self.window if isinstance(size, int))


def explicit(node: WindowedNode, row: Row) -> Form:
    """The node with explicit pads, read alike under `compat="spec"` and `compat="ort"`.

    Raises:
        UnsupportedError: it cannot be written so; the message says why.
    """
    form = _explicit_pool(node) if isinstance(node.spec, MaxPoolSpec) else _explicit_conv_transpose(node)
    for compat in ("spec", "ort"):
        wrong = _difference(node, form, row, compat)
        if wrong is not None:
            who = "ONNX Runtime reads" if compat == "ort" else "the standard means"
            raise UnsupportedError(
                f"{node.spec.row.label}: explicit pads would not do as {who} them: {wrong}. Leave the node as it is."
            )
    return form


def in_row(node: WindowedNode, row: Row) -> Form:
    """The node in the version of a row: as it is, or else with explicit pads, or else with the other side of auto_pad.

    Raises:
        UnsupportedError: none of these means the same; the message says why.
    """
    plain = Form(_tidied(node))
    if _difference(node, plain, row, "spec") is None:
        return plain
    try:
        return explicit(node, row)
    except UnsupportedError:
        for side in ("SAME_UPPER", "SAME_LOWER") if "output_shape" in plain.attributes else ():
            form = Form({**plain.attributes, "auto_pad": side})
            if _difference(node, form, row, "spec") is None:
                return form
        raise


def _difference(node: WindowedNode, form: Form, row: Row, compat: str) -> str | None:
    """Why the form does not mean the same; None if it does."""
    try:
        after = resolve.from_row(row, form.attributes, compat=compat, index_space="auto")
        if _is_renamed(node.spec, after) and not form.behind:
            return None
        assert not isinstance(after, MaxUnpoolSpec)
        return difference(node.spec, after, node.window_sizes, node.sizes, form.behind)
    except UnpoolError as error:
        return str(error).split(". ")[0].partition(": ")[2]


def _is_renamed(before: Spec, after: Spec) -> bool:
    """Whether two specs only differ in a version that does not matter to them."""
    asks = isinstance(before, ConvTransposeSpec) and before.output_shape is not None
    return replace(after, row=before.row) == before and (before.row.switches == after.row.switches or not asks)


def _tidied(node: WindowedNode) -> dict[str, Any]:
    """The attributes without an empty auto_pad, pads that others override, and N and M in output_shape."""
    kept = dict(node.attributes)
    if kept.get("auto_pad") in ("", b""):
        del kept["auto_pad"]
    if "output_shape" in kept:
        kept["output_shape"] = list(kept["output_shape"])[-len(node.window) :]
    if "output_shape" in kept or node.spec.padding != "NOTSET":
        kept.pop("pads", None)
    return kept


def _explicit_pool(node: WindowedNode) -> Form:
    spec = node.spec
    assert isinstance(spec, MaxPoolSpec)
    kept = {name: value for name, value in node.attributes.items() if name not in ("auto_pad", "pads")}
    if spec.compat == "ort" and spec.padding == "VALID" and spec.ceil:
        return Form(kept)
    kept.pop("ceil_mode", None)
    pads = [_pool_pads(node, spec, number, axis_of) for number, axis_of in enumerate(axes_of(spec, ()))]
    return Form(kept | _filled("pads", [begin for begin, _ in pads] + [end for _, end in pads]))


def _pool_pads(node: WindowedNode, spec: MaxPoolSpec, number: int, axis_of: AxisOf) -> tuple[int, int]:
    """Pads of an axis under which as many windows fit without ceil_mode, starting at the same place."""
    if spec.ceil and spec.padding == "NOTSET" and not isinstance(node.sizes[number], int):
        begin, end = spec.pads[number]
        return begin, ceil_end(spec.windows[number], end)
    return _settled(node, number, axis_of, _least_pads)


def _least_pads(axis: Axis) -> tuple[int, int]:
    needed = (axis.small - 1) * axis.window.stride + axis.window.reach - axis.large - axis.begin
    return axis.begin, max(0, needed)


def _explicit_conv_transpose(node: WindowedNode) -> Form:
    spec = node.spec
    assert isinstance(spec, ConvTransposeSpec)
    axes = enumerate(axes_of(spec, node.window_sizes))
    cuts = [_settled(node, number, axis_of, _cuts) for number, axis_of in axes]
    strides = [rule.window.stride for rule in axis_rules(spec, node.window_sizes)]
    behind = tuple(_steps_behind(cut, stride) for (_, cut), stride in zip(cuts, strides, strict=True))
    if any(behind) and not node.takes_zeros:
        raise UnsupportedError(
            f"{spec.row.label}: its output is longer than output_padding can make it, and zeros behind X need W to be "
            "a constant without infinities or NaN. Make W an initializer."
        )
    ends = [cut + steps * stride for (_, cut), steps, stride in zip(cuts, behind, strides, strict=True)]
    dropped = ("auto_pad", "pads", "output_shape", "output_padding")
    kept = {name: value for name, value in node.attributes.items() if name not in dropped}
    kept |= _filled("pads", [begin for begin, _ in cuts] + [max(0, end) for end in ends])
    kept |= _filled("output_padding", [max(0, -end) for end in ends])
    return Form(kept, behind if any(behind) else ())


def _cuts(axis: Axis) -> tuple[int, int]:
    """How many cells of the full scatter are cut at both ends; a negative end is an extension."""
    return axis.begin, upsampled_size(axis.small, axis.window) - axis.begin - axis.large


def _steps_behind(cut: int, stride: int) -> int:
    """How many elements to put behind X so that the output is long enough; 0 if output_padding alone can do it."""
    return 0 if -cut < stride else -(cut // stride)


def _filled(name: str, values: Sequence[int]) -> dict[str, Any]:
    return {name: list(values)} if any(values) else {}


def _settled(
    node: WindowedNode, number: int, axis_of: AxisOf, read: Callable[[Axis], tuple[int, int]]
) -> tuple[int, int]:
    """What `read` gives for an axis, if it gives the same for every size that the axis can have.

    Raises:
        UnsupportedError: it depends on a size that is unknown, or no size is possible.
    """
    size = node.sizes[number]
    axes = (axis_or_none(axis_of, one) for one in sizes_of(node.spec, node.window_sizes, number, size))
    found = {read(axis) for axis in axes if axis is not None}
    if len(found) == 1:
        return found.pop()
    if found:
        raise UnsupportedError(
            f"{node.spec.row.label}: its padding depends on the size of spatial axis {number} of X, "
            f"which is unknown{_name(size)}. {FIX_SIZE}."
        )
    raise UnsupportedError(f"{node.spec.row.label}: no size of spatial axis {number} of X gives an output.")


def _name(size: Dim) -> str:
    return f" ({size!r})" if isinstance(size, str) else ""
