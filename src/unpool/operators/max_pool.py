"""MaxPool: attributes to a spec, spec and shape to a call.

Source: ONNX MaxPool 1, 8, 10, 11, 12, 22.
"""

from functools import lru_cache
from typing import NamedTuple

from unpool import geometry
from unpool.display import format_shape
from unpool.errors import ShapeError, UnpoolError
from unpool.geometry import Axis, PoolRule, Window, element_count
from unpool.operators import attributes as read
from unpool.operators.attributes import DEFAULTS, Activation, Attributes, Settings
from unpool.operators.contract import OperatorVersion
from unpool.operators.tensors import FeatureShape, Shape, feature_shape


class MaxPoolSpec(NamedTuple):
    """The attributes of one MaxPool, checked against its version."""

    version: OperatorVersion
    compat: str
    windows: tuple[Window, ...]
    pads: tuple[tuple[int, int], ...]
    padding: str
    ceil: bool
    is_column_major: bool
    activation: Activation | None


class MaxPoolCall(NamedTuple):
    """A spec with the shape of X: what the kernel walks, and the shapes of both outputs."""

    spec: MaxPoolSpec
    axes: tuple[Axis, ...]
    small: FeatureShape
    large: FeatureShape


def resolve(version: OperatorVersion, attributes: Attributes, settings: Settings = DEFAULTS) -> MaxPoolSpec:
    """The checked attributes of a MaxPool."""
    given, compat = read.check(version, attributes), settings.compat
    rank = len(given["kernel_shape"])
    sizes = read.window_list(version, "kernel_shape", given["kernel_shape"], rank, 1)
    strides = read.window_list(version, "strides", given.get("strides"), rank, 1)
    dilations = read.window_list(version, "dilations", given.get("dilations"), rank, 1)
    padding = read.padding_mode(version, given, pads_may_be_ignored=compat == "ort")
    pads = read.pad_list(version, given.get("pads"), rank)
    if compat == "ort":
        for size, pair in zip(sizes, pads, strict=True):
            if max(pair) >= size:
                raise UnpoolError(
                    f"{version.label}: compat='ort' needs pads below kernel_shape {list(sizes)}, got {list(pair)}. "
                    "Use compat='spec'."
                )
    windows = tuple(Window(*each) for each in zip(sizes, strides, dilations, strict=True))
    ceil, is_column_major = (read.flag(version, given, name) for name in ("ceil_mode", "storage_order"))
    return MaxPoolSpec(
        version, compat, windows, pads, padding, ceil, is_column_major, read.activation_of(version, given)
    )


@lru_cache(maxsize=1024)
def call(spec: MaxPoolSpec, x_shape: Shape) -> MaxPoolCall:
    """Sizes and padding for one shape of X."""
    large = feature_shape(spec.version, "X", x_shape)
    rank = len(large.spatial)
    if rank != len(spec.windows):
        raise ShapeError(
            f"{spec.version.label}: kernel_shape needs {rank} values (X is {format_shape(x_shape)}), got "
            f"{len(spec.windows)}. Give one per spatial axis."
        )
    axes = tuple(axis(spec, number, size) for number, size in enumerate(large.spatial))
    small = FeatureShape(large.batch, large.channels, tuple(one.small for one in axes))
    element_count(large.in_onnx_order(), spec.version.label)
    element_count(small.in_onnx_order(), spec.version.label)
    return MaxPoolCall(spec, axes, small, large)


def axis(spec: MaxPoolSpec, number: int, large: int) -> Axis:
    """Spatial axis `number` of a call, from its size in X alone; a negative output size is a ShapeError."""
    window = spec.windows[number]
    rule = PoolRule(read.PADDINGS[spec.padding], spec.ceil, spec.compat == "ort")
    begin, small = geometry.place_pool(large, window, spec.pads[number], rule)
    if small < 0:
        raise ShapeError(
            f"{spec.version.label}: spatial axis {number} needs room for a window of {window.reach}, got {large} "
            f"elements and pads {list(spec.pads[number])}, which gives size {small}. Pad more or use a smaller kernel."
        )
    return Axis(large, small, window, begin)
