"""Element-wise activations, in the type of sums.

The exponential function of tanh and sigmoid is computed in float64, for all types, so its bits do not depend on the
processor:

    exp(y) = 2^k * exp(r),  k = y / log(2), rounded,  r = y - k * log(2)

The logarithm has two parts, as in fdlibm (Sun, 1993), and exp(r) - 1 is a Taylor polynomial with an error of 2e-17.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from unpool.kernels.cpu import vector as vec
from unpool.kernels.cpu.machine import types
from unpool.kernels.cpu.machine.host import vector_bytes
from unpool.kernels.cpu.machine.jit import jit, record, specialize
from unpool.kernels.cpu.machine.threads import Launch
from unpool.kernels.cpu.tuning import BLOCKS, ELEMENT_COSTS
from unpool.kernels.cpu.vector.registration import overload_by_type

_BEND, _HARD_SIGMOID, _HARD_SWISH, _TANH, _SIGMOID = range(5)  # formulas
_FORMULAS = {"HardSigmoid": _HARD_SIGMOID, "HardSwish": _HARD_SWISH, "Tanh": _TANH, "Sigmoid": _SIGMOID}
_LOG2_HIGH, _LOG2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_TO_NEAREST = 1.5 * 2.0**52  # adding it rounds a float64 to an integer, in the lower bits; then it is subtracted
_TO_NEAREST_BITS = int(np.float64(_TO_NEAREST).view(np.int64))
_TERMS = tuple(1 / math.factorial(number) for number in range(13, 0, -1))
_LARGEST_TANH, _LARGEST_EXPONENT = 20.0, 746.0  # for larger arguments tanh is 1, for smaller exponents exp is 0
_SIGN = -(2**63)


class Epilogue(NamedTuple):
    """The last steps of a kernel: the layout of its results, and an activation."""

    is_channels_last: bool = False  # whether channels are the last axis of inputs and outputs
    name: str | None = None  # of the activation; None for none
    params: tuple[float, ...] = ()  # of the activation

    @property
    def bounds(self) -> tuple[float, float, float]:
        """The activation as a slope below 0, a lower and an upper bound."""
        low, high = (0.0, math.inf) if self.name == "Relu" else (-math.inf, math.inf)
        if self.name == "Clip":
            low, high = self.params
        return self.params[0] if self.name == "LeakyRelu" else 1.0, low, high

    @property
    def is_active(self) -> bool:
        """True if there is an activation."""
        return self.name is not None

    @property
    def is_simple(self) -> bool:
        """True if slope and bounds describe the activation."""
        is_known = self.name in (None, "Relu", "LeakyRelu", "Clip")
        return is_known and not any(math.isnan(each) for each in self.params)


PLAIN = Epilogue()  # channels first, no activation


class ActivationCall(NamedTuple):
    """What the kernel reads besides the values."""

    formula: int
    size: int  # values
    slope: Any  # below 0; of HardSigmoid and HardSwish the factor
    low: Any  # lower bound; of HardSigmoid and HardSwish the summand
    high: Any  # upper bound


def activate(values, name: str, params: tuple[float, ...], threads: int | None = 1):
    """The values, C-contiguous, which are overwritten; NaN stays NaN. Only Relu and Clip take integers, of 8 bits.

    >>> activate(np.float32([-1, 2]), "LeakyRelu", (0.5,))
    array([-0.5,  2. ], dtype=float32)
    """
    if values.size:
        launch(values.size, values.dtype, name, params).run((values,), threads)
    return values


@lru_cache(maxsize=256)
def launch(size: int, dtype: np.dtype[Any], name: str, params: tuple[float, ...]) -> Launch:
    """A call that overwrites one array of `size` values, one or more."""
    compute = np.dtype(np.float32) if dtype.name in vec.BITS else dtype
    formula = _FORMULAS.get(name, _BEND)
    lines = {_HARD_SIGMOID: (*params, 0.0), _HARD_SWISH: (1 / 6, 0.5, 0.0)}
    numbers = [_bound(compute, each) for each in lines.get(formula) or Epilogue(False, name, params).bounds]
    element = vec.BITS.get(dtype.name, dtype).name
    step = BLOCKS.activation // dtype.itemsize
    work = size * (ELEMENT_COSTS.exponential if formula in (_TANH, _SIGMOID) else 1)
    fields = {"slope": compute, "low": compute, "high": compute}
    return Launch(
        _make_kernel(element), -(-size // step), work, record(ActivationCall(formula, size, *numbers), **fields)
    )


def _bound(dtype, value: float):
    """A parameter in the type of the values: integers round and saturate."""
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return dtype.type(value)
    info = np.iinfo(dtype)
    return dtype.type(np.clip(np.rint(value), info.min, info.max))


@specialize
def _make_kernel(element: str):
    number, size = getattr(types, element), np.dtype(element).itemsize
    lanes, step = vector_bytes() // (4 if size == 2 else size), BLOCKS.activation // size
    static = vec.StaticArgs(lanes=lanes)

    @jit()
    def activate_chunks(x, args, first, stop):
        """Overwrite some chunks of the values, a vector at a time."""
        params = args[0]
        end = min(stop * step, params.size)
        nothing = vec.splat(number(0), lanes)
        for place in range(first * step, end, lanes):
            address = vec.address_of(x) + place * size
            if place + lanes <= end:
                vec.store(address, activated(vec.load(address, number, lanes), params, static))
            else:
                some = vec.first_lanes(end - place, nothing)
                value = activated(vec.load_masked(address, some, nothing), params, static)
                vec.store_masked(address, value, some)

    return activate_chunks


@overload_by_type()
def activated(value, params, static):
    """A vector, activated."""
    lanes = static.lanes
    if not value.is_float and value.bits == 8:

        def clip(value, params, static):
            low, high = vec.splat(params.low, lanes), vec.splat(params.high, lanes)
            value = vec.select(value < low, low, value)
            return vec.select(value > high, high, value)

        return clip

    compute = types.float64 if value.element == types.float64 else types.float32

    def activate_floats(value, params, static):
        x = vec.widen(value)
        slope, low, high = vec.splat(params.slope, lanes), vec.splat(params.low, lanes), vec.splat(params.high, lanes)
        if params.formula == _BEND:
            x = vec.select(x < vec.splat(compute(0), lanes), x * slope, x)
            x = vec.select(vec.unordered(x, low), x + low, vec.select(x < low, low, x))
            x = vec.select(vec.unordered(x, high), x + high, vec.select(x > high, high, x))
        elif params.formula == _HARD_SIGMOID:
            x = to_unit(x * slope + low, static)
        elif params.formula == _HARD_SWISH:
            x = x * to_unit(x * slope + low, static)
        else:
            x = vec.convert(curve(vec.convert(x, types.float64), params.formula == _TANH, static), compute)
        return vec.narrow(x, value)

    return activate_floats


@overload_by_type(inline=True)
def to_unit(x, static):
    """A vector of floats, cut to the range from 0 to 1."""
    number, lanes = x.element, static.lanes

    def cut(x, static):
        zero, one = vec.splat(number(0), lanes), vec.splat(number(1), lanes)
        x = vec.select(x > one, one, x)
        return vec.select(x < zero, zero, x)

    return cut


@overload_by_type()
def curve(x, is_tanh, static):
    """Tanh or sigmoid of a vector of float64."""
    lanes = static.lanes

    def bend(x, is_tanh, static):
        one, sign = vec.splat(1.0, lanes), vec.splat(np.int64(_SIGN), lanes)
        bits = vec.reinterpret(x, types.int64)
        size = vec.reinterpret(bits & ~sign, types.float64)
        if is_tanh:
            most = vec.splat(_LARGEST_TANH, lanes)
            size = vec.select(size > most, most, size)
            rest, scale, more = exponential(size + size, static)
            less_one = scale * more * rest + (scale * more - one)  # exp(2 |x|) - 1
            result = less_one / (less_one + vec.splat(2.0, lanes))
            return vec.reinterpret(vec.reinterpret(result, types.int64) | (bits & sign), types.float64)
        most = vec.splat(_LARGEST_EXPONENT, lanes)
        size = vec.select(size > most, most, size)
        rest, scale, more = exponential(vec.splat(0.0, lanes) - size, static)
        decay = (rest + one) * scale * more
        return vec.select(x >= vec.splat(0.0, lanes), one, decay) / (one + decay)

    return bend


@overload_by_type()
def exponential(y, static):
    """Three factors of exp(y): the first less 1, and two powers of 2."""
    lanes = static.lanes

    def factors(y, static):
        magic = vec.splat(_TO_NEAREST, lanes)
        moved = y * vec.splat(1 / math.log(2), lanes) + magic
        power, turns = vec.reinterpret(moved, types.int64) - vec.splat(np.int64(_TO_NEAREST_BITS), lanes), moved - magic
        r = (y - turns * vec.splat(_LOG2_HIGH, lanes)) - turns * vec.splat(_LOG2_LOW, lanes)
        total = vec.splat(_TERMS[0], lanes)
        for term in _TERMS[1:]:
            total = total * r + vec.splat(term, lanes)
        half = power >> vec.splat(np.int64(1), lanes)
        bias, shift = vec.splat(np.int64(1023), lanes), vec.splat(np.int64(52), lanes)
        first = vec.reinterpret((half + bias) << shift, types.float64)
        second = vec.reinterpret((power - half + bias) << shift, types.float64)
        return total * r, first, second

    return factors
