"""What a plan of ConvTranspose is asked for.

A request has the words of `request.py`, those that are named here, and the lists: kernel_shape, strides, dilations,
pads, the shapes of X and of W, output_shape, output_padding, and the key. INDICES and INDEX_TYPE are those of W, and
SHAPE is that of output_shape.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from unpool.geometry import Axis, Padding, UpsamplingRule, Window, place_upsampling
from unpool.kernels.cpu.planner import request as words
from unpool.kernels.cpu.vector.registration import jit_inline

(GROUP, EXACT, HAS_AMX, PART, WEIGHTS, BIAS, BIAS_SIZE, OUTPUT_PADDING, WORDS) = range(words.WORDS, words.WORDS + 9)
"""Numbers of words: the group; whether every product is formed as written; whether AMX may multiply bfloat16; PLAN or
PACK; whether weights are those of a run, or constant, and then finite; the same of the bias, NONE for none; elements of
the bias, -1 where it has another rank; the length of output_padding; and the number of words before the lists."""

PLAN, PACK = range(2)
RUN, FINITE, NOT_FINITE = range(3)
CONSTANT, NONE = 1, -1

RELU, LEAKY_RELU, TANH, SIGMOID, CLIP, HARD_SIGMOID, HARD_SWISH = range(1, 8)
"""Activations, in the order of `operators/attributes.py`."""


class ConvTransposeLists(NamedTuple):
    """Where the lists of a request begin."""

    kernel: int
    strides: int
    dilations: int
    pads: int
    x: int
    w: int
    shape: int
    output_padding: int
    key: int


@jit_inline
def lists_of(request: Any) -> ConvTransposeLists:
    """Where the lists of a request begin."""
    strides = WORDS + max(0, request[words.KERNEL])
    dilations = strides + max(0, request[words.STRIDES])
    pads = dilations + max(0, request[words.DILATIONS])
    x = pads + max(0, request[words.PADS])
    w = x + max(0, request[words.X])
    shape = w + max(0, request[words.INDICES])
    output_padding = shape + max(0, request[words.SHAPE])
    key = output_padding + max(0, request[OUTPUT_PADDING])
    return ConvTransposeLists(WORDS, strides, dilations, pads, x, w, shape, output_padding, key)


class Bounds(NamedTuple):
    """An activation of sums: a slope below 0, a lower and an upper bound."""

    is_active: bool
    slope: float
    low: float
    high: float


@jit_inline
def bounds_of(request: Any) -> Bounds:
    """The activation, as `Epilogue.bounds` has it."""
    kind, params = request[words.ACTIVATION], request[words.PARAM_0 : words.PARAM_1 + 1].copy().view(np.float64)
    slope, low, high = 1.0, -math.inf, math.inf
    if kind == RELU:
        low = 0.0
    if kind == CLIP:
        low, high = params[0], params[1]
    if kind == LEAKY_RELU:
        slope = params[0]
    return Bounds(kind != 0, slope, low, high)


@jit_inline
def is_activation_fine(request: Any) -> bool:
    """True if there is no activation, or one that bounds describe, which the domain has."""
    kind, bounds = request[words.ACTIVATION], bounds_of(request)
    if kind == 0:
        return True
    if bounds.slope != bounds.slope or bounds.low != bounds.low or bounds.high != bounds.high:
        return False
    if version(request) > 0 and request[words.DOMAIN] == words.STANDARD:
        return False
    if kind == CLIP:
        return bool(request[words.PARAMS] == 2)
    return bool((kind == LEAKY_RELU and request[words.PARAMS] == 1) or (kind == RELU and request[words.PARAMS] == 0))


@jit_inline
def is_known(request: Any, lists: ConvTransposeLists) -> bool:
    """True if attributes and shapes are such that a plan can be made."""
    rank, since, kind = request[words.X] - 2, version(request), request[words.TYPE]
    if request[words.VERSION] != words.ABI or rank < 1 or rank > words.MOST_AXES or request[words.INDICES] != rank + 2:
        return False
    if request[words.INPUTS] < 2 or request[words.INPUTS] > 3 or request[words.OUTPUTS] != 1:
        return False
    if (request[words.OPSET] > 0 and since == 0) or (0 < since < 22 and kind == words.BFLOAT16):
        return False
    if words.element_bytes(kind) < 2 or request[words.INDEX_TYPE] != kind or not is_activation_fine(request):
        return False
    if kind == words.BFLOAT16 and request[HAS_AMX] != 0:
        return False
    if not words.is_list(request, lists.kernel, request[words.KERNEL], rank, 1) or not words.is_list(
        request, lists.pads, request[words.PADS], 2 * rank, 0
    ):
        return False
    if not words.is_list(request, lists.strides, request[words.STRIDES], rank, 1):
        return False
    if not words.is_list(request, lists.dilations, request[words.DILATIONS], rank, 1):
        return False
    if not words.is_list(request, lists.output_padding, request[OUTPUT_PADDING], rank, 0):
        return False
    if request[words.PADDING] != Padding.EXPLICIT and not words.no_padding(request, lists):
        return False
    size, x, w = words.element_bytes(kind), lists.x, lists.w
    if words.bytes_of(request[x : x + rank + 2], size) > words.MOST_BYTES:
        return False
    return words.bytes_of(request[w : w + rank + 2], size) <= words.MOST_BYTES and _are_weights_fine(request, lists)


@jit_inline
def _are_weights_fine(request: Any, lists: ConvTransposeLists) -> bool:
    """True if X, W, B and the group agree."""
    rank, group, w = request[words.X] - 2, request[GROUP], lists.w
    channels = request[lists.x + words.channel_axis(request)]
    if group < 1 or group > words.LARGEST or request[w] != channels or channels % group != 0:
        return False
    for number in range(rank):
        size = request[w + 2 + number]
        if size < 1 or size > words.LARGEST or (request[words.KERNEL] >= 0 and request[lists.kernel + number] != size):
            return False
    return bool(request[BIAS] == NONE or request[BIAS_SIZE] == request[w + 1] * group)


@jit_inline
def is_shape_fine(request: Any, lists: ConvTransposeLists, maps: int) -> bool:
    """True if `output_shape` is left out, or has a size per axis, perhaps after those of N and M."""
    rank, count = request[words.X] - 2, request[words.SHAPE]
    if count == rank + 2 and (request[lists.shape] != request[lists.x] or request[lists.shape + 1] != maps):
        return False
    return bool(count == -1 or count == rank or count == rank + 2)


@jit_inline
def version(request: Any) -> int:
    """The version that an opset selects; 0 for the newest, and for none."""
    since = 0
    for each in (1, 11, 22):
        if each <= request[words.OPSET] and not (each == 22 and request[words.DOMAIN] == words.NHWC):
            since = each
    return since


@jit_inline
def axis_of(request: Any, lists: ConvTransposeLists, number: int) -> Axis:
    """A spatial axis; a large size below 0 if it is refused."""
    rank, stride, dilation, begin, end, extra, asked = request[words.X] - 2, 1, 1, 0, 0, 0, -1
    if request[words.STRIDES] >= 0:
        stride = request[lists.strides + number]
    if request[words.DILATIONS] >= 0:
        dilation = request[lists.dilations + number]
    if request[words.PADS] >= 0:
        begin, end = request[lists.pads + number], request[lists.pads + rank + number]
    if request[OUTPUT_PADDING] >= 0:
        extra = request[lists.output_padding + number]
    is_refused, is_ort, is_first = False, request[words.IS_ORT] != 0, version(request) == 1
    if request[words.SHAPE] >= rank:
        asked = request[lists.shape + request[words.SHAPE] - rank + number]
        is_refused = asked < 0
    if extra > 0:
        is_refused |= (extra >= max(stride, dilation) and not is_first) or (is_ort and extra >= stride)
    window = Window(request[lists.w + 2 + number], stride, dilation)
    rule = UpsamplingRule(request[words.PADDING], is_ort, is_first and not is_ort)
    small = request[lists.x + words.spatial_first(request) + number]
    before, large = place_upsampling(small, window, (begin, end), extra, asked, rule)
    return Axis(-1 if is_refused else large, small, window, before)
