"""MaxUnpool: attributes to a spec, spec and shapes to a call.

Source: ONNX MaxUnpool 9, 11, 22. The standard does not say in which tensor the indices count when `output_shape`
differs from the inferred shape; `index_space` names it.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from unpool.display import format_shape
from unpool.errors import ShapeError
from unpool.geometry import Axis, UnpoolWindow, Window, element_count, upsampled_size
from unpool.operators import attributes as read
from unpool.operators.attributes import DEFAULTS, Activation, Attributes, Settings
from unpool.operators.contract import OperatorVersion
from unpool.operators.tensors import FeatureShape, Shape, feature_shape

INDEX_SPACES = ("auto", "output", "inferred")


class MaxUnpoolSpec(NamedTuple):
    """The attributes of one MaxUnpool, checked against its version."""

    version: OperatorVersion
    compat: str
    index_space: str
    windows: tuple[Window, ...]
    pads: tuple[tuple[int, int], ...]
    activation: Activation | None


class MaxUnpoolCall(NamedTuple):
    """A spec with the shapes of X and of the output; the large size of its axes is the output's."""

    spec: MaxUnpoolSpec
    axes: tuple[Axis, ...]
    small: FeatureShape
    large: FeatureShape
    inferred: Shape  # spatial, from the attributes alone; a size may be negative when `output_shape` is given
    index_space: str  # "output" or "inferred" when it is settled, "auto" when the indices must be read


def resolve(version: OperatorVersion, attributes: Attributes, settings: Settings = DEFAULTS) -> MaxUnpoolSpec:
    """The checked attributes of a MaxUnpool."""
    given, compat, index_space = read.check(version, attributes), settings.compat, settings.index_space
    read.choice(version, "index_space", index_space, INDEX_SPACES)
    rank = len(given["kernel_shape"])
    sizes = read.window_list(version, "kernel_shape", given["kernel_shape"], rank, 1)
    strides = read.window_list(version, "strides", given.get("strides"), rank, 1)
    if compat == "ort" and index_space == "auto":
        index_space = "output"
    windows = tuple(Window(size, stride) for size, stride in zip(sizes, strides, strict=True))
    pads = read.pad_list(version, given.get("pads"), rank)
    return MaxUnpoolSpec(version, compat, index_space, windows, pads, read.activation_of(version, given))


@lru_cache(maxsize=1024)
def call(spec: MaxUnpoolSpec, x_shape: Shape, indices_shape: Shape, output_shape: Shape | None) -> MaxUnpoolCall:
    """Sizes for one set of shapes; `output_shape` is the value of the third input, (N, C, D1..Dk)."""
    small = feature_shape(spec.version, "X", x_shape)
    if len(small.spatial) != len(spec.windows):
        raise ShapeError(
            f"{spec.version.label}: kernel_shape needs {len(small.spatial)} values (X is {format_shape(x_shape)}), "
            f"got {len(spec.windows)}. Give one per spatial axis."
        )
    if indices_shape != small.in_onnx_order():
        raise ShapeError(
            f"{spec.version.label}: I needs the (N, C, D1..Dk) shape of X, {format_shape(small.in_onnx_order())}, "
            f"got {format_shape(indices_shape)}. Pass the indices of the same pool."
        )
    inferred = tuple(inferred_size(spec, number, size) for number, size in enumerate(small.spatial))
    spatial = inferred if output_shape is None else _spatial_part(spec, small, output_shape)
    if min(spatial) < 0:
        raise ShapeError(
            f"{spec.version.label}: kernel_shape, strides and pads need an output size of 0 or more, "
            f"got {list(inferred)}. Reduce the pads or pass output_shape."
        )
    large = FeatureShape(small.batch, small.channels, spatial)
    element_count(large.in_onnx_order(), spec.version.label)
    axes = tuple(
        Axis(big, little, window, pads[0])
        for big, little, window, pads in zip(spatial, small.spatial, spec.windows, spec.pads, strict=True)
    )
    return MaxUnpoolCall(spec, axes, small, large, inferred, _index_space(spec, small, inferred, spatial))


def inferred_size(spec: MaxUnpoolSpec, number: int, small: int) -> int:
    """Size of spatial axis `number` of the output when `output_shape` is not given; negative when the pads take all."""
    return upsampled_size(small, spec.windows[number], padding=sum(spec.pads[number]))


def window_attributes(windows: Sequence[UnpoolWindow]) -> dict[str, list[int]]:
    """The attributes of a MaxUnpool with one of these windows along each spatial axis.

    >>> window_attributes([UnpoolWindow(3, 2, 1), UnpoolWindow(2, 2)])
    {'kernel_shape': [3, 2], 'strides': [2, 2], 'pads': [1, 0, 1, 0]}
    """
    return {
        "kernel_shape": [window.size for window in windows],
        "strides": [window.stride for window in windows],
        "pads": [window.padding for window in windows] * 2,
    }


def _spatial_part(spec: MaxUnpoolSpec, small: FeatureShape, output_shape: Shape) -> Shape:
    rank = 2 + len(small.spatial)
    where = f"{spec.version.label}: output_shape"
    if len(output_shape) != rank:
        raise ShapeError(f"{where} needs {rank} values, (N, C, D1..Dk), got {list(output_shape)}. Give one per axis.")
    if min(output_shape) < 0:
        raise ShapeError(
            f"{where} needs values of 0 or more, got {list(output_shape)}. Pass the shape of the pool's X."
        )
    if output_shape[:2] != (small.batch, small.channels):
        raise ShapeError(
            f"{where} needs N and C of X, {small.batch} and {small.channels}, got {list(output_shape)}. "
            "Pass the shape of the pool's X."
        )
    return output_shape[2:]


def _index_space(spec: MaxUnpoolSpec, small: FeatureShape, inferred: Shape, spatial: Shape) -> str:
    """Settle `index_space` as far as shapes allow."""
    if spatial == inferred:
        return "output"
    planes = small.batch * small.channels
    if spec.compat == "ort" and min(inferred) >= 0 and planes * math.prod(spatial) < planes * math.prod(inferred):
        raise ShapeError(
            f"{spec.version.label}: compat='ort' needs an output_shape of at least {math.prod(inferred)} elements a "
            f"plane, got {list(spatial)}. Use compat='spec'."
        )
    covers = all(big >= little >= 0 for big, little in zip(spatial, inferred, strict=True))
    if spec.index_space == "inferred" and not covers:
        raise ShapeError(
            f"{spec.version.label}: index_space='inferred' needs an output_shape of at least {list(inferred)}, "
            f"got {list(spatial)}. Use index_space='output'."
        )
    if spec.index_space == "auto" and not covers:
        return "output"
    return spec.index_space
