"""Three axes, the first of stride 1, as two: what a call needs of slices that lie behind each other.

    y[d] = sum over taps t of the first axis: the transposed convolution over the other two of x[d + begin - t * step]

So a slice of y is an image of its own, and every slice of x that it meets gives it as many channels as x has: channel
c * taps + t of the flat call is channel c of the slice of tap t, zeros where x has no such slice. x is not copied; the
kernels find its slices. Two axes are one slice.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from unpool.geometry import Axis
from unpool.kernels.cpu.conv_transpose.work import Work


class Depth(NamedTuple):
    """The first of three axes.

    Attributes:
        small: slices of x.
        large: slices of y.
        taps: of the window.
        begin: slice of x that the first tap of the first slice of y meets.
        step: slices of x from one tap to the one before.
    """

    small: int
    large: int
    taps: int
    begin: int
    step: int


FLAT = Depth(small=1, large=1, taps=1, begin=0, step=1)
"""Of two axes."""


def depth_of(axes: tuple[Axis, ...]) -> Depth | None:
    """The first of three axes, or what stands for it where there are two; None for all others."""
    if len(axes) == 2:
        return FLAT
    if len(axes) != 3 or axes[0].window.stride != 1:
        return None
    first = axes[0]
    return Depth(first.small, first.large, first.window.size, first.begin, first.window.dilation)


def flattened(work: Work) -> Work | None:
    """The call over the last two axes; None if it has no such form."""
    depth = depth_of(work.axes)
    if depth is None:
        return None
    return replace(work, axes=work.axes[-2:], batch=work.batch * depth.large, channels=work.channels * depth.taps)


def flat_weights(w: Any) -> Any:
    """Weights (C, M/group, [k1,] k2, k3) for the flat call."""
    if w.ndim == 4:
        return w
    channels, maps, taps, *window = w.shape
    return np.ascontiguousarray(np.moveaxis(w, 2, 1)).reshape(channels * taps, maps, *window)


def with_slices(array: Any) -> Any:
    """X or y, of two or three axes, as an array that has slices: (N, C, slices, d1, d2)."""
    return array.reshape(*array.shape[:2], -1, *array.shape[-2:])
