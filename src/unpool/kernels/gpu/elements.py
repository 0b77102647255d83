"""Elements as kernels see them: the bits in arrays, and numbers to compute with.

Whatever only compares or copies works on bits, so that no device, flag or version of a compiler can change a result.
The kinds are the names of `unpool.dtypes`: float16, bfloat16, float32, float64, int8, uint8.
"""

import torch
import triton
import triton.language as tl

BITS = {
    "float16": torch.int16,
    "bfloat16": torch.int16,
    "float32": torch.int32,
    "float64": torch.int64,
    "int8": torch.int8,
    "uint8": torch.uint8,
}
"""Kind -> type of the integers that tensors are viewed as."""

KINDS = {getattr(torch, name): name for name in BITS}
"""Type of a tensor -> kind."""


def bits_of(x: torch.Tensor) -> torch.Tensor:
    """A view of a tensor as the integers that kernels take."""
    return x.view(BITS[KINDS[x.dtype]])


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
    """The bits of numbers that were computed, rounded once, to nearest even.

    bfloat16 is rounded by hand: Triton's interpreter truncates it.
    """
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
