"""Hypothesis strategies: pools, transposed convolutions, and arrays in any memory order."""

from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import ml_dtypes
import numpy as np

FLOATS = (np.float16, np.float32, np.float64, ml_dtypes.bfloat16)


@dataclass(frozen=True, eq=False)
class Pool:
    """A positive x, all of whose windows see data, and how it is pooled."""

    x: np.ndarray
    window: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Deconvolution:
    """A convolution of `large` with stride, padding and dilation, and something of the size of its result."""

    large: np.ndarray
    small: np.ndarray
    w: np.ndarray
    strides: list[int]
    pads: list[int]
    dilations: list[int]
    output_padding: list[int]
    group: int


def per_axis(rank: int, low: int, high: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(low, high), min_size=rank, max_size=rank)


@st.composite
def pools(draw: st.DrawFn) -> Pool:
    """Positive values, so that a zero in an unpooled array is never a maximum; of one type, to compile few kernels."""
    rank = draw(st.integers(1, 3))
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *draw(per_axis(rank, 1, (11, 7, 5)[rank - 1])))
    seed = draw(st.integers(0, 2**16))
    x = np.random.default_rng(seed).integers(1, 9, shape).astype(np.float32)
    kernel = [draw(st.integers(1, min(3, size))) for size in shape[2:]]
    pads = [draw(st.integers(0, k - 1)) for k in kernel * 2]
    window = {"kernel_shape": kernel, "strides": draw(per_axis(rank, 1, 3)), "pads": pads}
    return Pool(x, window)


@st.composite
def deconvolutions(draw: st.DrawFn) -> Deconvolution:
    """Sizes for which torch's convolution exists; its transpose takes what is lost to the stride as padding."""
    rank = draw(st.integers(1, 3))
    group = draw(st.integers(1, 2))
    per_group = [draw(st.integers(1, 3)) for _ in range(2)]
    kernel, strides = draw(per_axis(rank, 1, 3)), draw(per_axis(rank, 1, 3))
    dilations, padding = draw(per_axis(rank, 1, 2)), draw(per_axis(rank, 0, 2))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    sizes = [r + draw(st.integers(0, 4)) for r in reach]
    room = [n + 2 * p - r for n, p, r in zip(sizes, padding, reach, strict=True)]
    steps = list(zip(room, strides, strict=True))
    outer = draw(st.integers(1, 2))
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    maps, channels = (count * group for count in per_group)
    return Deconvolution(
        large=random.normal(size=(outer, channels, *sizes)),
        small=random.normal(size=(outer, maps, *(space // stride + 1 for space, stride in steps))),
        w=random.normal(size=(maps, per_group[1], *kernel)),
        strides=strides,
        pads=padding * 2,
        dilations=dilations,
        output_padding=[space % stride for space, stride in steps],
        group=group,
    )


def in_memory(array: np.ndarray, order: str) -> np.ndarray:
    """An array of equal values in another of the memory `ORDERS`."""
    if order == "fortran":
        return np.asfortranarray(array)
    if order == "reversed":
        flip = (slice(None, None, -1),) * array.ndim
        return np.ascontiguousarray(array[flip])[flip]
    if order == "sliced":
        wide = np.zeros(tuple(2 * size + 1 for size in array.shape), array.dtype)
        view = wide[tuple(slice(1, 2 * size + 1, 2) for size in array.shape)]
        view[...] = array
        return view
    if order == "permuted":
        return np.ascontiguousarray(np.moveaxis(array, 1, -1)).transpose(0, -1, *range(1, array.ndim - 1))
    if order == "offset":
        raw = np.zeros(array.nbytes + 1, np.uint8)
        view = raw[1:].view(array.dtype).reshape(array.shape)
        view[...] = array
        return view
    copy = array.copy()
    copy.flags.writeable = False
    return copy


ORDERS = ("fortran", "reversed", "sliced", "read-only", "permuted", "offset")
