"""Elements as kernels see them: the bits in arrays, and numbers to compute with; activations of these numbers.

Kernels that only compare or copy work on bits, so that no device, flag or version of a compiler can change a result.
The kinds are the names of `unpool.dtypes`: float16, bfloat16, float32, float64, int8, uint8. Activations are those of
`kernels/cpu/activation.py`; NaN stays NaN.
"""

import math

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import libdevice

# True if Triton's interpreter runs the kernels, on tensors of the CPU: TRITON_INTERPRET=1 when Triton was imported.
# Kernels differ there in one thing: the interpreter keeps bfloat16 as integers, and its matrix product multiplies
# those, so operands are widened to float32 before it.
INTERPRETED = bool(triton.knobs.runtime.interpret)
IS_INTERPRETED = tl.constexpr(INTERPRETED)

BITS = {  # by kind, the type of the integers that tensors are viewed as
    "float16": torch.int16,
    "bfloat16": torch.int16,
    "float32": torch.int32,
    "float64": torch.int64,
    "int8": torch.int8,
    "uint8": torch.uint8,
}
KINDS = {getattr(torch, name): name for name in BITS}  # by type of a tensor
_INTEGER_RANGES = {"int8": (-128, 127), "uint8": (0, 255)}


def bits_of(x: torch.Tensor) -> torch.Tensor:
    """A view of a tensor as the integers that kernels take; indices and places stay as they are."""
    return x.view(BITS[KINDS[x.dtype]]) if x.dtype in KINDS else x


@triton.jit
def widen(bits, kind: tl.constexpr):
    """Elements as the numbers to compute with: float64 for float64, float32 for all others."""
    if kind == "float64":
        values = bits.to(tl.float64, bitcast=True)
    elif kind == "float32":
        values = bits.to(tl.float32, bitcast=True)
    elif kind == "float16":
        values = bits.to(tl.float16, bitcast=True).to(tl.float32)
    elif kind == "bfloat16":
        values = (bits.to(tl.int32) << 16).to(tl.float32, bitcast=True)
    else:
        values = bits.to(tl.float32)
    return values


@triton.jit
def narrow(values, kind: tl.constexpr):
    """The bits of numbers, rounded to nearest even; bfloat16 by hand, since Triton's interpreter truncates it."""
    if kind == "float64":
        bits = values.to(tl.int64, bitcast=True)
    elif kind == "float32":
        bits = values.to(tl.int32, bitcast=True)
    elif kind == "float16":
        bits = values.to(tl.float16).to(tl.int16, bitcast=True)
    elif kind == "bfloat16":
        wide = values.to(tl.int32, bitcast=True)
        rounded = (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16
        bits = tl.where(values != values, 0x7FC0, rounded).to(tl.int16)
    elif kind == "int8":
        bits = values.to(tl.int8)
    else:
        bits = values.to(tl.uint8)
    return bits


def bounds(kind: str, params: tuple[float, ...]) -> tuple[float, ...]:
    """The parameters of an activation; for integers rounded and clipped to their range."""
    if kind not in _INTEGER_RANGES:
        return params
    low, high = _INTEGER_RANGES[kind]
    return tuple(low if math.isnan(each) else float(round(min(max(each, low), high))) for each in params)


@triton.jit
def activate(v, meta: tl.constexpr):
    """The numbers, in their own type, after the activation of a meta record, "" for none."""
    name: tl.constexpr = meta.activation
    params: tl.constexpr = meta.params
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
        wide = v.to(tl.float64)
        decay = tl.exp(-tl.abs(wide))
        v = (tl.where(wide < 0, decay, 1.0) / (1 + decay)).to(v.dtype)
    elif name == "Tanh":
        v = _tanh(v.to(tl.float64)).to(v.dtype)
    return v


@triton.jit
def activated(bits, meta: tl.constexpr):
    """The bits of elements of the kind of a meta record, after its activation."""
    kind: tl.constexpr = meta.kind
    if meta.activation != "":
        bits = narrow(activate(widen(bits, kind), meta), kind)
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
