"""The time of a ConvTranspose in unpool and in onnxruntime, in multiply-adds at the processor's peak.

onnxruntime multiplies matrices and then adds up the elements of the product: over two axes in vectors, over another
number one by one. unpool's model is that of `unpool.execute.conv_transpose.cost`.
"""

import math
from collections.abc import Sequence

import numpy as np

from unpool.execute.conv_transpose import cost
from unpool.operators.conv_transpose import ConvTransposeSpec, call

PLANE, OTHER = 70, 150  # of an element that onnxruntime adds up, over two axes and over another number
PLANE_RANK = 4  # axes of a batch of planes
STORE_COST = 40  # of an element of unpool's result


def is_faster_in_unpool(spec: ConvTransposeSpec, x: tuple[int, ...], w: tuple[int, ...]) -> bool:
    """True if unpool computes a float32 ConvTranspose of an input and weights of these shapes faster.

    Raises:
        UnpoolError: the shapes do not fit.
    """
    y = call(spec, x, w, None).large.in_onnx_order()
    time = cost(spec, x, w, np.dtype(np.float32))
    if time == math.inf:  # small or unusual calls, whose algorithm has no model: products only
        time = math.prod(x) * math.prod(w[1:])
    return time + STORE_COST * math.prod(y) < _time_in_onnxruntime(x, w)


def _time_in_onnxruntime(x: Sequence[int], w: Sequence[int]) -> float:
    positions, products = x[0] * math.prod(x[2:]), math.prod(w[1:])
    return positions * products * (x[1] + (PLANE if len(x) == PLANE_RANK else OTHER))
