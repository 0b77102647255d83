"""Conv of stride 1: attributes to a spec, and the ConvTranspose that computes it.

    y[m, p] = sum over channels c, taps t: W[m, c, t] * x[c, p + t * dilation - begin]

    is the ConvTranspose of W'[c, m, t] = W[m, c, last - t], cut at last * dilation - begin; last = window - 1

Source: ONNX Conv 1, 11, 22.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from unpool.display import format_shape
from unpool.dtypes import AnyArray
from unpool.errors import ShapeError, UnpoolError, UnsupportedError
from unpool.operators import attributes as read
from unpool.operators import contract
from unpool.operators.attributes import Activation, Attributes
from unpool.operators.contract import AttributeType, OperatorVersion
from unpool.operators.conv_transpose import ConvTransposeSpec
from unpool.operators.tensors import Shape

_NAMES = ("kernel_shape", "strides", "pads", "dilations", "auto_pad", "group", "activation", "activation_params")
_TRANSPOSED = contract.version_in_layout("ConvTranspose", None, channels_last=False)
VERSION = replace(
    _TRANSPOSED,
    operator="Conv",
    attributes=MappingProxyType({name: _TRANSPOSED.attributes[name] for name in _NAMES} | {"exact": AttributeType.INT}),
)


@dataclass(frozen=True, slots=True)
class ConvSpec:
    """The attributes of one Conv; None where W must settle a default."""

    kernel_shape: Shape | None
    dilations: Shape | None
    pads: Shape | None
    group: int
    activation: Activation | None
    is_exact: bool = False
    w_shape: Shape | None = None
    """The shape of W if the weights come in the ConvTranspose's layout; None if they come as W."""

    version: ClassVar[OperatorVersion] = VERSION


def resolve(attributes: Attributes, *, exact: bool) -> ConvSpec:
    """The checked attributes of a Conv, whose lists agree with each other; X and W are not known yet.

    Raises:
        UnsupportedError: strides other than 1, or padding that depends on the size of X.
    """
    given = read.check(VERSION, attributes)
    group, strides = given.get("group", 1), given.get("strides", ())
    if not 1 <= group <= read.LARGEST:
        raise UnpoolError(
            f"{VERSION.label}: group needs a value of 1 or more, got {group}. Pass 1 for an ungrouped one."
        )
    padding = read.padding_mode(VERSION, given, pads_may_be_ignored=False)
    if set(strides) - {1} or padding.startswith("SAME_"):
        got = f"auto_pad {padding}" if padding.startswith("SAME_") else f"strides {list(strides)}"
        raise UnsupportedError(
            f"{VERSION.label}: expected strides of 1 and explicit pads, got {got}. Use the standard's Conv."
        )
    lists: dict[str, Any] = {name: given.get(name) for name in ("kernel_shape", "dilations", "pads")}
    is_exact = read.is_set(VERSION.label, given, "exact", default=exact)
    return ConvSpec(**lists, group=group, activation=read.activation_of(VERSION, given), is_exact=is_exact)


@lru_cache(maxsize=1024)
def transposed(spec: ConvSpec, x_shape: Shape, w_shape: Shape) -> ConvTransposeSpec:
    """The ConvTranspose that computes a Conv of X and W, (M, C/group, k1..kn); its weights have `transposed_shape`."""
    _check_weights(spec, x_shape, w_shape)
    rank, window = len(w_shape) - 2, w_shape[2:]
    dilations = read.window_list(VERSION, "dilations", spec.dilations, rank, 1)
    pads = read.pad_list(VERSION, spec.pads, rank)
    reach = [(size - 1) * dilation for size, dilation in zip(window, dilations, strict=True)]
    for axis, (far, pair) in enumerate(zip(reach, pads, strict=True)):
        if max(pair) > far:
            raise UnsupportedError(
                f"{VERSION.label}: spatial axis {axis} needs pads up to {far}, the reach of its window, got "
                f"{list(pair)}. Use the standard's Conv."
            )
        if x_shape[2 + axis] + sum(pair) < far:
            raise ShapeError(
                f"{VERSION.label}: spatial axis {axis} needs room for a window of {far + 1}, got {x_shape[2 + axis]} "
                f"elements and pads {list(pair)}. Pad more or use a smaller window."
            )
    cut = [far - begin for far, (begin, _) in zip(reach, pads, strict=True)]
    cut += [far - end for far, (_, end) in zip(reach, pads, strict=True)]
    return ConvTransposeSpec(
        VERSION, "spec", kernel_shape=window, strides=None, dilations=dilations, pads=tuple(cut), padding="NOTSET",
        output_padding=None, output_shape=None, group=spec.group, activation=spec.activation, is_exact=spec.is_exact,
    )  # fmt: skip


def transposed_shape(spec: ConvSpec, w_shape: Shape) -> Shape:
    """The shape (C, M/group, k1..kn) of the weights of the ConvTranspose."""
    return flipped_shape(w_shape, spec.group)


def flipped_shape(w_shape: Sequence[int], group: int) -> Shape:
    """The shape of `flip_window`."""
    maps, channels, *window = w_shape
    return (channels * group, maps // group, *window)


def flip_window(w: AnyArray, group: int) -> AnyArray:
    """Weights (M, C/group, k...) of a Conv as the ConvTranspose has them, (C, M/group, k...), every window flipped."""
    maps, channels, *window = w.shape
    converted = np.flip(w, tuple(range(2, w.ndim))).reshape(group, maps // group, channels, *window)
    return np.ascontiguousarray(converted.swapaxes(1, 2)).reshape(flipped_shape(w.shape, group))


def _check_weights(spec: ConvSpec, x_shape: Shape, w_shape: Shape) -> None:
    where, got = f"{VERSION.label}: W", f"(X is {format_shape(x_shape)}), got {format_shape(w_shape)}"
    if len(x_shape) < 3:
        raise ShapeError(f"{VERSION.label}: X needs rank 3 or more, (N, C, D1..Dk), got {format_shape(x_shape)}.")
    if len(w_shape) != len(x_shape):
        raise ShapeError(f"{where} needs rank {len(x_shape)} {got}. Use (M, C/group, k1..kn).")
    if w_shape[1] * spec.group != x_shape[1]:
        raise ShapeError(f"{where} needs {x_shape[1]} / {spec.group} input channels second {got}.")
    if w_shape[0] % spec.group:
        raise ShapeError(f"{VERSION.label}: group needs to divide {w_shape[0]} output channels, got {spec.group}.")
    if spec.kernel_shape is not None and spec.kernel_shape != w_shape[2:]:
        raise ShapeError(
            f"{VERSION.label}: kernel_shape needs the window of W, {list(w_shape[2:])}, got {list(spec.kernel_shape)}. "
            "Leave kernel_shape out."
        )
    if 0 in w_shape:
        raise ShapeError(f"{where} needs sizes of 1 or more {got}.")
