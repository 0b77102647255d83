"""Arrays with their axes in another order and their elements in another type.

    y[image, column, row] = x[image, row, column]

A transposed convolution converts its arrays if its algorithm lacks their layout or type. 16-bit floats become float32,
or float32 is rounded to 16 bits.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.machine.jit import jit, record, specialize
from unpool.kernels.cpu.machine.threads import VECTOR_SPEEDUP, Launch
from unpool.kernels.cpu.tuning import BLOCKS
from unpool.kernels.cpu.vector import BITS
from unpool.kernels.cpu.vector.registration import jit_inline


class ConvertParams(NamedTuple):
    """Arguments of a call."""

    rows: int  # of an image
    columns: int  # of an image
    block: int  # rows of a job


class ConvertPlan(NamedTuple):
    """A call."""

    params: ConvertParams
    jobs: int
    work: int


@lru_cache(maxsize=256)
def launch(source: np.dtype[Any], target: np.dtype[Any], images: int, rows: int, columns: int = 1) -> Launch:
    """A call on C-contiguous (x, y) of these types; x has `images` images, and no axis is empty."""
    made = plan(max(source.itemsize, target.itemsize), images, rows, columns)
    kernel = _make_kernel(BITS.get(source.name, source), BITS.get(target.name, target))
    return Launch(kernel, made.jobs, made.work, record(made.params))


@jit_inline
def plan(size: int, images: int, rows: int, columns: int) -> ConvertPlan:
    """The call on arrays whose larger elements have `size` bytes."""
    lanes = vector_bytes() // max(4, size)
    block = max(1, min(BLOCKS.conversion // (columns * lanes), -(-rows // lanes))) * lanes
    return ConvertPlan(
        ConvertParams(rows, columns, block), images * -(-rows // block), images * rows * columns // VECTOR_SPEEDUP
    )


def _lanes(source: np.dtype[Any], target: np.dtype[Any]) -> int:
    return vector_bytes() // max(4, source.itemsize, target.itemsize)


@specialize
def _make_kernel(source: np.dtype[Any], target: np.dtype[Any]):
    """The compiled kernel; 16-bit floats are their bits."""
    element, size, out_size = getattr(types, source.name), source.itemsize, target.itemsize
    number, out_number, lanes = source.type, target.type, _lanes(source, target)

    @jit()
    def convert_rows(x, y, args, first, stop):
        """Write some blocks of rows, a vector of neighbours of y at a time.

        for every image, for every block of its rows
            for every column, for every row of the block
        """
        params = args[0]
        rows, columns, block = params.rows, params.columns, params.block
        blocks, apart = -(-rows // block), columns * size
        blank, like = vec.splat(number(0), lanes), vec.splat(out_number(0), lanes)
        for job in range(first, stop):
            image, begin = job // blocks, job % blocks * block
            count = min(block, rows - begin)
            origin = vec.address_of(x) + (image * rows + begin) * apart
            target = vec.address_of(y) + (image * columns * rows + begin) * out_size
            for column in range(columns):
                for row in range(0, count, lanes):
                    place, to = origin + row * apart + column * size, target + (column * rows + row) * out_size
                    is_used = vec.first_lanes(count - row, blank)
                    if columns > 1:
                        value = vec.gather(place, apart, is_used, blank)
                    elif count - row >= lanes:
                        value = vec.load(place, element, lanes)
                    else:
                        value = vec.load_masked(place, is_used, blank)
                    result = vec.narrow(vec.widen(value), like)
                    if count - row >= lanes:
                        vec.store(to, result)
                    else:
                        vec.store_masked(to, result, vec.first_lanes(count - row, like))

    return convert_rows
