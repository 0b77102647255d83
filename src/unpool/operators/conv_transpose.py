"""ConvTranspose: attributes to a spec, spec and shapes to a call.

Source: ONNX ConvTranspose 1, 11, 22. The result is the full scatter of X through W, cut at `begin` and, where it is
too short, extended with cells that hold only the bias.
"""

from functools import lru_cache
from typing import Any, NamedTuple

from unpool.display import format_shape
from unpool.errors import ShapeError, UnpoolError
from unpool.geometry import Axis, UpsamplingRule, Window, element_count, place_upsampling
from unpool.operators import attributes as read
from unpool.operators.attributes import DEFAULTS, Activation, Attributes, Settings
from unpool.operators.contract import OperatorVersion, Switch
from unpool.operators.tensors import FeatureShape, Shape, feature_shape


class ConvTransposeSpec(NamedTuple):
    """The attributes of one ConvTranspose, checked against its version; None where W or X must settle a default."""

    version: OperatorVersion
    compat: str
    kernel_shape: Shape | None
    strides: Shape | None
    dilations: Shape | None
    pads: Shape | None
    padding: str
    output_padding: Shape | None
    output_shape: Shape | None
    group: int
    activation: Activation | None
    is_exact: bool = False
    """True if every product is formed as it is written: no sums of inputs or weights before."""
    algorithm: str | None = None
    """The algorithm that autotuning chose; None for the one of least cost."""


class AxisRule(NamedTuple):
    """Attributes and window of one spatial axis; `asked` is its part of `output_shape`."""

    window: Window
    pads: tuple[int, int]
    extra: int
    asked: int | None


class ConvTransposeCall(NamedTuple):
    """A spec with the shapes of X, W and B."""

    spec: ConvTransposeSpec
    axes: tuple[Axis, ...]
    small: FeatureShape
    large: FeatureShape


def resolve(version: OperatorVersion, attributes: Attributes, settings: Settings = DEFAULTS) -> ConvTransposeSpec:
    """The checked attributes of a ConvTranspose, whose lists agree with each other; X and W are not known yet."""
    given = read.check(version, attributes)
    group = given.get("group", 1)
    if not 1 <= group <= read.LARGEST:
        raise UnpoolError(
            f"{version.label}: group needs a value of 1 or more, got {group}. Pass 1 for an ungrouped one."
        )
    padding, activation = (
        read.padding_mode(version, given, pads_may_be_ignored=False),
        read.activation_of(version, given),
    )
    names = ("kernel_shape", "strides", "dilations", "pads", "output_padding", "output_shape")
    lists: dict[str, Any] = {name: given.get(name) for name in names}
    spec = ConvTransposeSpec(
        version, settings.compat, padding=padding, group=group, activation=activation, is_exact=settings.exact, **lists
    )
    lengths = (spec.kernel_shape, spec.strides, spec.dilations, spec.output_padding)
    rank = next((len(values) for values in lengths if values is not None), None)
    if rank is not None:
        _windows_with_pads(spec, rank, spec.kernel_shape)
    return spec


@lru_cache(maxsize=1024)
def call(spec: ConvTransposeSpec, x_shape: Shape, w_shape: Shape, b_shape: Shape | None) -> ConvTransposeCall:
    """Sizes and padding for one set of shapes; W is (C, M/group, k1..kn) in either layout."""
    small = feature_shape(spec.version, "X", x_shape)
    rank = len(small.spatial)
    maps = _check_weights(spec, small, x_shape, w_shape)
    if b_shape is not None and b_shape != (maps,):
        raise ShapeError(
            f"{spec.version.label}: B needs shape {maps}, one per output channel, got {format_shape(b_shape)}."
        )
    rules = axis_rules(spec, w_shape[2:])
    _check_output_shape(spec, small.batch, maps, rank)
    sizes = zip(rules, small.spatial, strict=True)
    axes = tuple(axis(spec, number, rule, size) for number, (rule, size) in enumerate(sizes))
    large = FeatureShape(small.batch, maps, tuple(one.large for one in axes))
    element_count(small.in_onnx_order(), spec.version.label)
    element_count(large.in_onnx_order(), spec.version.label)
    return ConvTransposeCall(spec, axes, small, large)


def axis_rules(spec: ConvTransposeSpec, kernel: Shape) -> tuple[AxisRule, ...]:
    """One rule per spatial axis; `kernel` is the window of W."""
    rank = len(kernel)
    windows, pads, extra = _windows_with_pads(spec, rank, kernel)
    asked = (None,) * rank if spec.output_shape is None else spec.output_shape[-rank:]
    return tuple(AxisRule(*each) for each in zip(windows, pads, extra, asked, strict=False))


def axis(spec: ConvTransposeSpec, number: int, rule: AxisRule, small: int) -> Axis:
    """Spatial axis `number` of a call, from its size in X alone; a negative output size is a ShapeError."""
    begin, large = _placed(spec, small, rule)
    if large < 0:
        raise ShapeError(
            f"{spec.version.label}: spatial axis {number} needs an output size of 0 or more, got {large} from "
            f"{small} elements and pads {list(rule.pads)}. Reduce the pads."
        )
    return Axis(large, small, rule.window, begin)


def _check_weights(spec: ConvTransposeSpec, small: FeatureShape, x_shape: Shape, w_shape: Shape) -> int:
    """The number of output channels."""
    label = spec.version.label
    if len(w_shape) != len(x_shape):
        raise ShapeError(
            f"{label}: W needs rank {len(x_shape)} (X is {format_shape(x_shape)}), got "
            f"{format_shape(w_shape)}. Use (C, M/group, k1..kn)."
        )
    if w_shape[0] != small.channels:
        raise ShapeError(
            f"{label}: W needs {small.channels} input channels first (X is {format_shape(x_shape)}), got "
            f"{format_shape(w_shape)}. Use (C, M/group, k1..kn)."
        )
    if small.channels % spec.group:
        raise ShapeError(f"{label}: group needs to divide {small.channels} channels, got {spec.group}. Pass a divisor.")
    if spec.kernel_shape is not None and spec.kernel_shape != w_shape[2:]:
        raise ShapeError(
            f"{label}: kernel_shape needs the window of W, {list(w_shape[2:])}, got {list(spec.kernel_shape)}. "
            "Leave kernel_shape out."
        )
    return w_shape[1] * spec.group


def _windows_with_pads(
    spec: ConvTransposeSpec, rank: int, sizes: Shape | None
) -> tuple[tuple[Window, ...], tuple[tuple[int, int], ...], Shape]:
    """Window, pads and output_padding of every spatial axis."""
    sizes = read.window_list(spec.version, "kernel_shape", sizes, rank, 1)
    strides = read.window_list(spec.version, "strides", spec.strides, rank, 1)
    dilations = read.window_list(spec.version, "dilations", spec.dilations, rank, 1)
    windows = tuple(Window(*each) for each in zip(sizes, strides, dilations, strict=True))
    pads = read.pad_list(spec.version, spec.pads, rank)
    extra = read.window_list(spec.version, "output_padding", spec.output_padding, rank, 0)
    for value, window in zip(extra, windows, strict=True):
        if value > 0:
            _check_output_padding(spec, value, window)
    return windows, pads, extra


def _check_output_padding(spec: ConvTransposeSpec, value: int, window: Window) -> None:
    is_bounded = Switch.OUTPUT_PADDING_UNBOUNDED not in spec.version.switches
    if is_bounded and value >= max(window.stride, window.dilation):
        raise UnpoolError(
            f"{spec.version.label}: output_padding needs values below the larger of stride {window.stride} and "
            f"dilation {window.dilation}, got {value}."
        )
    if spec.compat == "ort" and value >= window.stride:
        raise UnpoolError(
            f"{spec.version.label}: compat='ort' needs output_padding below the stride {window.stride}, got {value}. "
            "Use compat='spec'."
        )


def _check_output_shape(spec: ConvTransposeSpec, batch: int, maps: int, rank: int) -> None:
    """Refuse an `output_shape` other than a size per spatial axis; N and M before them have to be right."""
    asked = spec.output_shape
    if asked is None:
        return
    if len(asked) == rank + 2 and asked[:2] == (batch, maps):
        asked = asked[2:]
    if len(asked) != rank:
        raise ShapeError(
            f"{spec.version.label}: output_shape needs {rank} spatial sizes (N and M in front only as {batch}, "
            f"{maps}), got {list(asked)}. Give one per spatial axis."
        )
    if min(asked) < 0:
        raise ShapeError(
            f"{spec.version.label}: output_shape needs sizes of 0 or more, got {list(asked)}. Pass spatial sizes of Y."
        )


def _placed(spec: ConvTransposeSpec, small: int, rule: AxisRule) -> tuple[int, int]:
    """Number of cells cut at the beginning of the full scatter, and the output size."""
    is_swapped = Switch.ODD_SIDE_SWAPPED in spec.version.switches and spec.compat == "spec"
    placing = UpsamplingRule(read.PADDINGS[spec.padding], spec.compat == "ort", is_swapped)
    asked = -1 if rule.asked is None else rule.asked
    return place_upsampling(small, rule.window, rule.pads, rule.extra, asked, placing)
