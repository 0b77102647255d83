"""Which of two elements is kept: on bits of which only comparisons are those of floats, so none is ever changed.

The larger one, of equal ones (both zeros are equal) the earlier one, and NaN before everything. Comparisons of floats
are exact: no compiler may round, reorder or flush what it only compares and selects.
"""

import triton
import triton.language as tl


@triton.jit
def spread(bits, kind: tl.constexpr):
    """Elements as integers to keep: their bits, of bfloat16 those of the float32, of small integers the int32."""
    if kind == "bfloat16":
        bits = bits.to(tl.int32) << 16
    elif kind == "int8" or kind == "uint8":
        bits = bits.to(tl.int32)
    return bits


@triton.jit
def gathered(kept, kind: tl.constexpr):
    """The bits of elements that were `spread`."""
    if kind == "bfloat16":
        kept = (kept >> 16).to(tl.int16)
    elif kind == "int8":
        kept = kept.to(tl.int8)
    elif kind == "uint8":
        kept = kept.to(tl.uint8)
    return kept


@triton.jit
def wins(other, kept, kind: tl.constexpr, nan_last: tl.constexpr):
    """Whether an element that comes later takes the place of the one kept; both are `spread`."""
    a = _number(other, kind)
    b = _number(kept, kind)
    if kind == "int8" or kind == "uint8":
        better = a > b
    elif nan_last:
        better = (a > b) | (a != a)
    else:
        better = (b == b) & ~(a <= b)
    return better


@triton.jit
def _number(kept, kind: tl.constexpr):
    """What to compare."""
    if kind == "float64":
        kept = kept.to(tl.float64, bitcast=True)
    elif kind == "float16":
        kept = kept.to(tl.float16, bitcast=True)
    elif kind == "float32" or kind == "bfloat16":
        kept = kept.to(tl.float32, bitcast=True)
    return kept
