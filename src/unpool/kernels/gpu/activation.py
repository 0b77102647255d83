"""Element-wise activations of numbers that were computed, as `kernels/cpu/activation.py` has them; NaN stays NaN."""

import math

import triton
import triton.language as tl
from triton.language.extra.cuda import libdevice

from unpool.kernels.gpu.elements import narrow, widen
from unpool.kernels.gpu.launch import INTERPRETED

IS_INTERPRETED = tl.constexpr(INTERPRETED)

_INTEGER_RANGES = {"int8": (-128, 127), "uint8": (0, 255)}


def bounds(kind: str, params: tuple[float, ...]) -> tuple[float, ...]:
    """The parameters of an activation; for integers rounded and clipped to their range."""
    if kind not in _INTEGER_RANGES:
        return params
    low, high = _INTEGER_RANGES[kind]
    return tuple(low if math.isnan(each) else float(round(min(max(each, low), high))) for each in params)


@triton.jit
def activate(v, name: tl.constexpr, params: tl.constexpr):
    """The activated numbers, in their own type; `name` is "" for none."""
    if name == "Relu":
        v = tl.where(v < 0, 0.0, v)
    elif name == "LeakyRelu":
        v = tl.where(v < 0, v * params[0], v)
    elif name == "Clip":
        v = tl.where((v < params[0]) | (params[0] != params[0]), params[0], v)
        v = tl.where((v > params[1]) | (params[1] != params[1]), params[1], v)
    elif name == "HardSigmoid":
        v = _between_0_and_1(_product(v, params[0]) + params[1])
    elif name == "HardSwish":
        v = v * _between_0_and_1(_product(v, 1 / 6) + 0.5)
    elif name == "Sigmoid":
        v = _sigmoid(v.to(tl.float64)).to(v.dtype)
    elif name == "Tanh":
        v = _tanh(v.to(tl.float64)).to(v.dtype)
    return v


@triton.jit
def activated(bits, kind: tl.constexpr, name: tl.constexpr, params: tl.constexpr):
    """The bits of activated elements."""
    if name != "":
        bits = narrow(activate(widen(bits, kind), name, params), kind)
    return bits


@triton.jit
def _product(v, factor):
    """Rounded before anything is added to it, as on the CPU: a compiler must not make one step of both."""
    if IS_INTERPRETED:
        product = v * factor
    else:
        product = libdevice.mul_rn(v, tl.full(v.shape, factor, v.dtype))
    return product


@triton.jit
def _between_0_and_1(v):
    v = tl.where(v > 1, 1.0, v)
    return tl.where(v < 0, 0.0, v)


@triton.jit
def _sigmoid(v):
    decay = tl.exp(-tl.abs(v))
    return tl.where(v < 0, decay, 1.0) / (1 + decay)


@triton.jit
def _tanh(v):
    """From e = exp(-2|v|) - 1, which Kahan's quotient gives without cancellation."""
    exponent = -2 * tl.abs(v)
    power = tl.exp(exponent)
    is_tiny = power == 1
    is_huge = power < 1e-30
    quotient = (power - 1) * exponent / tl.where(is_tiny | is_huge, 1.0, tl.log(tl.where(is_huge, 1.0, power)))
    minus_one = tl.where(is_tiny, exponent, tl.where(is_huge, -1.0, quotient))
    size = -minus_one / (2 + minus_one)
    return tl.where(v != v, v, tl.where(v < 0, -size, size))
