"""What a plan is asked for, as int64 words, and the axes that it comes to.

A request has the words that are named here, and then lists, one after the other: kernel_shape, strides, dilations,
pads, the shape of X, the shape of I, the value of output_shape, and the key, which the plan repeats. A list that a
node does not have has the length -1.

A planner returns the bytes of a plan, whether they fitted into its array or not; or ASK where it does not know: then
Python plans, which knows everything, and has a sentence for what cannot be planned.
"""

from typing import Any, NamedTuple

import numpy as np

from unpool.geometry import INT64_MAX, LARGEST
from unpool.kernels.cpu.vector.registration import jit_inline

ABI = 1
ASK = -1

(
    VERSION, OUTPUTS, CHANNELS_LAST, IS_ORT, INDEX_SPACE, MAY_COMPILE, CORES, TYPE, OPSET, DOMAIN, PADDING, CEIL,
    COLUMN_MAJOR, ACTIVATION, PARAMS, PARAM_0, PARAM_1, INPUTS, KERNEL, STRIDES, DILATIONS, PADS, X, INDICES,
    INDEX_TYPE, SHAPE, KEY, LARGEST_OUTPUT, WORDS,
) = range(29)  # fmt: skip
"""Numbers of words: of the interface; outputs; whether channels are last; whether compat is "ort"; index_space, 0 auto,
1 output, 2 inferred; whether a kernel that is not shipped may be compiled; cores; the type of X, as in
onnx.TensorProto; the opset, 0 for the newest; the domain, 0 the standard's, 1 that of channels last, 2 unpool's; a
Padding; ceil_mode; storage_order; an activation, 0 for none; its parameters, their number and bits as float64; inputs;
lengths of lists, the type of I among them; bytes of outputs from which on Python compares them with the free memory;
and the number of words before the lists."""

AUTO, OUTPUT, INFERRED = range(3)
STANDARD, NHWC, OWN = range(3)
FLOAT, UINT8, INT8, INT64, FLOAT16, DOUBLE, BFLOAT16 = 1, 2, 3, 7, 10, 11, 16

MOST_BYTES = 1 << 40
"""Bytes of a tensor from which on no plan is made here, so that no product of sizes exceeds 64 bits."""

MOST_AXES = 62
MOST_POSITIONS = 1 << 27
"""Positions of an axis from which on no plan is made here, whose tables have a row for each."""


class Lists(NamedTuple):
    """Where the lists of a request begin."""

    kernel: int
    strides: int
    dilations: int
    pads: int
    x: int
    i: int
    shape: int
    key: int


@jit_inline
def lists_of(request: Any) -> Lists:
    """Where the lists of a request begin."""
    kernel = WORDS
    strides = kernel + max(0, request[KERNEL])
    dilations = strides + max(0, request[STRIDES])
    pads = dilations + max(0, request[DILATIONS])
    x = pads + max(0, request[PADS])
    i = x + max(0, request[X])
    shape = i + max(0, request[INDICES])
    return Lists(kernel, strides, dilations, pads, x, i, shape, shape + max(0, request[SHAPE]))


@jit_inline
def element_bytes(kind: int) -> int:
    """Bytes of an element of a type; 0 for a type that no operator has."""
    if kind == FLOAT:
        return 4
    if kind == DOUBLE:
        return 8
    if kind == FLOAT16 or kind == BFLOAT16:
        return 2
    return 1 if kind == INT8 or kind == UINT8 else 0


@jit_inline
def is_list(request: Any, first: int, count: int, expected: int, least: int) -> bool:
    """True if a list is left out, or has this length, and values from a least one to LARGEST."""
    if count == -1:
        return True
    if count != expected:
        return False
    for number in range(first, first + count):
        if request[number] < least or request[number] > LARGEST:
            return False
    return True


@jit_inline
def bytes_of(sizes: Any, size: int) -> int:
    """Bytes of an array, of which sizes of 0 count as 1; INT64_MAX where they are too many, or a size is negative."""
    total = size
    for number in range(len(sizes)):
        if sizes[number] < 0 or sizes[number] > MOST_BYTES or total > MOST_BYTES:
            return INT64_MAX
        total *= max(1, sizes[number])
    return total


@jit_inline
def spatial_first(request: Any) -> int:
    """The axis of X that is the first one that windows slide along."""
    return 1 if request[CHANNELS_LAST] else 2


@jit_inline
def channel_axis(request: Any) -> int:
    """The axis of X with the channels."""
    return request[X] - 1 if request[CHANNELS_LAST] else 1


@jit_inline
def is_known(request: Any, lists: Lists) -> bool:
    """True if the windows and X allow a plan, for any operator."""
    rank = request[KERNEL]
    if request[VERSION] != ABI or rank < 1 or rank > MOST_AXES or request[X] != rank + 2:
        return False
    if not is_list(request, lists.kernel, rank, rank, 1) or not is_list(
        request, lists.pads, request[PADS], 2 * rank, 0
    ):
        return False
    if not is_list(request, lists.strides, request[STRIDES], rank, 1):
        return False
    if not is_list(request, lists.dilations, request[DILATIONS], rank, 1):
        return False
    size = element_bytes(request[TYPE])
    return size > 0 and bytes_of(request[lists.x : lists.x + rank + 2], size) <= MOST_BYTES


@jit_inline
def has_activation(request: Any) -> bool:
    """True if there is one."""
    return bool(request[ACTIVATION] != 0)


@jit_inline
def no_padding(request: Any, lists: Any) -> bool:
    """True if all pads are 0."""
    return bool(request[PADS] < 0) or not np.any(request[lists.pads : lists.pads + request[PADS]])
