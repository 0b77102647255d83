"""Other ways of writing a MaxPool or ConvTranspose that put every window where it was.

Pads of a ConvTranspose follow from its windows alone, except under output_shape; those of a MaxPool under SAME follow
from the size of X unless the stride is 1. A ConvTranspose whose output is longer than its windows reach gets
output_padding below the stride; what is longer still comes from zeros behind X.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unpool.errors import UnpoolError, UnsupportedError
from unpool.geometry import Axis, grown_size
from unpool.operators import resolve
from unpool.operators.contract import Row
from unpool.operators.conv_transpose import ConvTransposeSpec, axis_rules
from unpool.operators.max_pool import MaxPoolSpec
from unpool.operators.max_unpool import MaxUnpoolSpec
from unpool.operators.resolve import Spec
from unpool.operators.tensors import Shape
from unpool.runtime.passes.placement import AxisOf, Placed, axes_of, axis_or_none, difference, sizes_of
from unpool.runtime.symbolic import Dim, Dims

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
class Subject:
    """A node that is to be written differently.

    Attributes:
        spec: as it is.
        attributes: as they are.
        sizes: spatial sizes of X.
        window: spatial sizes of W; for MaxPool its kernel_shape.
        takes_zeros: whether zeros behind X only make zeros: W is a constant and finite.
    """

    spec: Placed
    attributes: Mapping[str, Any]
    sizes: Dims
    window: Dims
    takes_zeros: bool

    @property
    def kernel(self) -> Shape:
        """The window, all of it known.

        Raises:
            UnsupportedError: it is not.
        """
        if not all(isinstance(size, int) for size in self.window):
            raise UnsupportedError(f"{self.spec.row.label}: needs W of known shape, got {list(self.window)}. Fix it.")
        return tuple(size for size in self.window if isinstance(size, int))


def explicit(subject: Subject, row: Row) -> Form:
    """The node with explicit pads, read alike under `compat="spec"` and `compat="ort"`.

    Raises:
        UnsupportedError: it cannot be written so; the message says why.
    """
    form = _explicit_pool(subject) if isinstance(subject.spec, MaxPoolSpec) else _explicit_conv_transpose(subject)
    for compat in ("spec", "ort"):
        wrong = _difference(subject, form, row, compat)
        if wrong is not None:
            who = "ONNX Runtime reads" if compat == "ort" else "the standard means"
            raise UnsupportedError(
                f"{subject.spec.row.label}: explicit pads would not do as {who} them: {wrong}. Leave the node as it is."
            )
    return form


def in_row(subject: Subject, row: Row) -> Form:
    """The node under another row: as it is, else with explicit pads, else with the other side of auto_pad.

    Raises:
        UnsupportedError: none of these means the same; the message says why.
    """
    plain = Form(_tidied(subject))
    if _difference(subject, plain, row, "spec") is None:
        return plain
    try:
        return explicit(subject, row)
    except UnsupportedError:
        for side in ("SAME_UPPER", "SAME_LOWER") if "output_shape" in plain.attributes else ():
            form = Form({**plain.attributes, "auto_pad": side})
            if _difference(subject, form, row, "spec") is None:
                return form
        raise


def _difference(subject: Subject, form: Form, row: Row, compat: str) -> str | None:
    """Why the form does not mean the same; None if it does."""
    try:
        after = resolve.from_row(row, form.attributes, compat=compat, index_space="auto")
        if _is_renamed(subject.spec, after) and not form.behind:
            return None
        assert not isinstance(after, MaxUnpoolSpec)
        return difference(subject.spec, after, subject.kernel, subject.sizes, form.behind)
    except UnpoolError as error:
        return str(error).split(". ")[0].partition(": ")[2]


def _is_renamed(before: Spec, after: Spec) -> bool:
    """Whether two specs only differ in a version that does not matter to them."""
    asks = isinstance(before, ConvTransposeSpec) and before.output_shape is not None
    return replace(after, row=before.row) == before and (before.row.switches == after.row.switches or not asks)


def _tidied(subject: Subject) -> dict[str, Any]:
    """The attributes without what has no effect: empty words, pads beside what overrides them, N and M of a size."""
    kept = dict(subject.attributes)
    if kept.get("auto_pad") in ("", b""):
        del kept["auto_pad"]
    if "output_shape" in kept:
        kept["output_shape"] = list(kept["output_shape"])[-len(subject.window) :]
    if "output_shape" in kept or subject.spec.padding != "NOTSET":
        kept.pop("pads", None)
    return kept


def _explicit_pool(subject: Subject) -> Form:
    spec = subject.spec
    assert isinstance(spec, MaxPoolSpec)
    kept = {name: value for name, value in subject.attributes.items() if name not in ("auto_pad", "pads")}
    if spec.compat == "ort" and spec.padding == "VALID" and spec.ceil:
        return Form(kept)
    kept.pop("ceil_mode", None)
    pads = [_settled(subject, number, axis_of, _pool_pads) for number, axis_of in enumerate(axes_of(spec, ()))]
    return Form(kept | _filled("pads", [begin for begin, _ in pads] + [end for _, end in pads]))


def _pool_pads(axis: Axis) -> tuple[int, int]:
    """Pads under which as many windows fit, starting at the same place."""
    needed = (axis.small - 1) * axis.window.stride + axis.window.reach - axis.large - axis.begin
    return axis.begin, max(0, needed)


def _explicit_conv_transpose(subject: Subject) -> Form:
    spec = subject.spec
    assert isinstance(spec, ConvTransposeSpec)
    axes = enumerate(axes_of(spec, subject.kernel))
    cuts = [_settled(subject, number, axis_of, _cuts) for number, axis_of in axes]
    strides = [rule.window.stride for rule in axis_rules(spec, subject.kernel)]
    behind = tuple(_steps_behind(cut, stride) for (_, cut), stride in zip(cuts, strides, strict=True))
    if any(behind) and not subject.takes_zeros:
        raise UnsupportedError(
            f"{spec.row.label}: its output is longer than output_padding can make it, and zeros behind X need W to be "
            "a constant without infinities or NaN. Make W an initializer."
        )
    ends = [cut + steps * stride for (_, cut), steps, stride in zip(cuts, behind, strides, strict=True)]
    dropped = ("auto_pad", "pads", "output_shape", "output_padding")
    kept = {name: value for name, value in subject.attributes.items() if name not in dropped}
    kept |= _filled("pads", [begin for begin, _ in cuts] + [max(0, end) for end in ends])
    kept |= _filled("output_padding", [max(0, -end) for end in ends])
    return Form(kept, behind if any(behind) else ())


def _cuts(axis: Axis) -> tuple[int, int]:
    """How many cells of the full scatter are cut at both ends; a negative end is an extension."""
    return axis.begin, grown_size(axis.small, axis.window) - axis.begin - axis.large


def _steps_behind(cut: int, stride: int) -> int:
    """Elements behind X that bring an extension to the end of the scatter; 0 if output_padding can."""
    return 0 if -cut < stride else -(cut // stride)


def _filled(name: str, values: Sequence[int]) -> dict[str, Any]:
    return {name: list(values)} if any(values) else {}


def _settled(
    subject: Subject, number: int, axis_of: AxisOf, read: Callable[[Axis], tuple[int, int]]
) -> tuple[int, int]:
    """What `read` says of an axis, if that is the same for every size that it can have.

    Raises:
        UnsupportedError: it depends on a size that is unknown, or no size is possible.
    """
    size = subject.sizes[number]
    axes = (axis_or_none(axis_of, one) for one in sizes_of(subject.spec, subject.kernel, number, size))
    found = {read(axis) for axis in axes if axis is not None}
    if len(found) == 1:
        return found.pop()
    if found:
        raise UnsupportedError(
            f"{subject.spec.row.label}: its padding depends on the size of spatial axis {number} of X, "
            f"which is unknown{_name(size)}. {FIX_SIZE}."
        )
    raise UnsupportedError(f"{subject.spec.row.label}: no size of spatial axis {number} of X gives an output.")


def _name(size: Dim) -> str:
    return f" ({size!r})" if isinstance(size, str) else ""
