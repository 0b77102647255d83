"""Axes in functions that plan calls, which Python interprets and Numba compiles.

Interpreted, axes are a tuple of `Axis`, and element types are names. Compiled, axes are an int64 array with a row for
each, because Numba recompiles a function for tuples of another length, and element types are numbers. Functions that
plan go through the axes by `axis_at`, and are otherwise the same.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from unpool import geometry
from unpool.geometry import Axis, Window
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.machine.host import vector_bytes, vector_registers
from unpool.kernels.cpu.vector.registration import compile_as, jit_inline

LARGE, SMALL, SIZE, STRIDE, DILATION, BEGIN = range(6)
"""Columns of compiled axes."""

ELEMENTS = ("float32", "float64", "int16", "int8", "uint8")
"""Names of element types in kernels, by their number in compiled code; int16 has the bits of 16-bit floats."""

_MOST = 1 << 62
_MOST_REAL = float(_MOST)

for _function in (
    geometry.reach, geometry.corners, geometry.pooling_walk, geometry.met_taps, geometry.clipped, geometry.ceil_end,
    geometry.same_pooled_size, geometry.truncated_pooled_size, geometry.split_pool_padding, geometry.place_pool,
    geometry.modular_inverse, geometry.upsampling_walk, geometry.upsampled_size, geometry.split_begin,
    geometry.place_upsampling, geometry.tap_spans,
):  # fmt: skip
    jit_inline(_function)


def axis_at(axes: Any, number: int) -> Axis:
    """The axis with this number."""
    axis: Axis = axes[number]
    return axis


@compile_as(axis_at)
def _axis_at(axes: Any, number: Any) -> Callable[..., Any]:
    def compiled(axes, number):
        row = axes[number]
        return Axis(row[LARGE], row[SMALL], Window(row[SIZE], row[STRIDE], row[DILATION]), row[BEGIN])

    return compiled


def join(leading: Any, last: Axis) -> Any:
    """Axes with one more at the end."""
    return (*leading, last)


@compile_as(join)
def _join(leading: Any, last: Any) -> Callable[..., Any]:
    def compiled(leading, last):
        axes = np.empty((len(leading) + 1, 6), np.int64)
        axes[:-1] = leading
        set_axis(axes, len(leading), last)
        return axes

    return compiled


def prepend(first: Axis, axes: Any) -> Any:
    """Axes with one more at the beginning."""
    return (first, *axes)


@compile_as(prepend)
def _prepend(first: Any, axes: Any) -> Callable[..., Any]:
    def compiled(first, axes):
        longer = np.empty((len(axes) + 1, 6), np.int64)
        longer[1:] = axes
        set_axis(longer, 0, first)
        return longer

    return compiled


def select(axes: Any, is_kept: Any) -> Any:
    """The axes for which an array of bools is True."""
    return tuple(axis for axis, kept in zip(axes, is_kept, strict=True) if kept)


@compile_as(select)
def _select(axes: Any, is_kept: Any) -> Callable[..., Any]:
    return lambda axes, is_kept: axes[is_kept]


@jit_inline
def set_axis(axes, number, axis):
    """Write an axis to compiled axes."""
    axes[number, LARGE] = axis.large
    axes[number, SMALL] = axis.small
    axes[number, SIZE] = axis.window.size
    axes[number, STRIDE] = axis.window.stride
    axes[number, DILATION] = axis.window.dilation
    axes[number, BEGIN] = axis.begin


def times(left: int, right: int) -> int:
    """The product of two numbers of 0 or more; compiled, 2**62 where it is larger."""
    return left * right


@compile_as(times)
def _times(left: Any, right: Any) -> Callable[..., Any]:
    return lambda left, right: left * right if float(left) * float(right) < _MOST_REAL else _MOST


@jit_inline
def large_sizes(axes: Any, first: int) -> int:
    """The product of the large sizes of axes from a number on."""
    product = 1
    for number in range(first, len(axes)):
        product *= axis_at(axes, number).large
    return product


@jit_inline
def small_sizes(axes: Any, first: int) -> int:
    """The product of the small sizes of axes from a number on."""
    product = 1
    for number in range(first, len(axes)):
        product *= axis_at(axes, number).small
    return product


@jit_inline
def sorted_unique(values: Any) -> Any:
    """The distinct values of an array, sorted."""
    values = values[np.argsort(values, kind="mergesort")]  # compiled, np.sort needs lists
    is_new = np.ones(values.size, np.bool_)
    is_new[1:] = values[1:] != values[:-1]
    return values[is_new]


@compile_as(vector_bytes)
def _vector_bytes() -> Callable[..., Any]:
    size = vector_bytes()
    return lambda: size


@compile_as(vector_registers)
def _vector_registers() -> Callable[..., Any]:
    count = vector_registers()
    return lambda: count


def by_element(function: Callable[[str], int]) -> Callable[[str], int]:
    """Decorates a function of an element type's name; compiled, it takes the type's number."""

    @compile_as(function)
    def choose(element: Any) -> Callable[..., Any] | None:
        values = tuple(function(name) for name in ELEMENTS)
        return (lambda element: values[element]) if isinstance(element, types.Integer) else None

    return function
