"""The largest of several vectors, lane by lane, and its place, with the NaN rule of the caller.

The bits of 16-bit floats are compared by keys, integers in the order of the numbers. Sign-magnitude becomes two's
complement, so both zeros become 0, and every NaN becomes the largest key: a strict integer comparison then propagates
NaN and keeps the first of equals. No key is the smallest integer, which means "nothing yet".
"""

import numpy as np
from llvmlite import ir
from numba import types

from unpool.kernels.cpu.vector import IGNORED, LAST
from unpool.kernels.cpu.vector.arithmetic import select, splat, unordered
from unpool.kernels.cpu.vector.registration import overload_by_type
from unpool.kernels.cpu.vector.type import Vector, call_llvm, emit_comparison, emit_splat, lane_numbers, operation

_QUIET_NAN = 0x7FC00000


@operation
def argmax(values, places, nan):
    """The first of the largest vectors of a tile, lane by lane, and its place.

    `nan` is FIRST or LAST, at compile time or run time, the NaN that is larger than all; or the literal IGNORED: then a
    NaN is never larger, but stays if it comes first.
    """
    kind = values.dtype

    def emit(builder, values, places, value):
        return _argmax(builder, kind, zip(values, places, strict=True), _emit_nan_rule(builder, kind, nan, value))

    return types.Tuple((kind, places.dtype)), emit


def _emit_nan_rule(builder, kind, nan, value):
    """Integers as wide as the elements, 0 for LAST, all bits set for FIRST; None where NaN is ignored.

    A mask would be converted between widths wherever it lives longer than a comparison.
    """
    if getattr(nan, "literal_value", None) == IGNORED or not kind.is_float:
        return None
    is_first = builder.icmp_signed("!=", value, ir.Constant(value.type, LAST))
    return emit_splat(builder, builder.sext(is_first, kind.integers.llvm.element), kind.lanes)


def _is_larger(builder, kind, value, best, rule):
    larger = emit_comparison(">", kind, builder, value, best)
    if rule is None:
        return larger
    guarded = builder.bitcast(builder.and_(builder.bitcast(best, rule.type), rule), kind.llvm)
    stays = builder.fcmp_ordered("ord", guarded, guarded)
    return builder.or_(larger, builder.and_(builder.fcmp_unordered("uno", value, value), stays))


def _argmax(builder, kind, pairs, rule):
    best, at = next(pairs)
    for value, place in pairs:
        is_new = _is_larger(builder, kind, value, best, rule)
        best, at = builder.select(is_new, value, best), builder.select(is_new, place, at)
    return best, at


@operation
def is_larger(x, y, nan):
    """Lanes of x that take the place of y in a running maximum; see `argmax`."""
    return x.mask, lambda builder, value, best, rule: _is_larger(
        builder, x, value, best, _emit_nan_rule(builder, x, nan, rule)
    )


@operation
def sliding_argmax(values, places, taps, nan):
    """As `argmax` of `taps` neighbours, from each lane of the first of vectors that follow each other.

    The distance that is covered doubles with every step, so there are about log2(taps) of them.
    """
    kind, size = values.dtype, taps.literal_value

    def move(builder, pairs, number, distance):
        """Vector `number` of several in a row, moved by a distance; lanes after the last vector hold anything."""
        whole, rest = divmod(distance, kind.lanes)
        near, far = (pairs[min(number + whole + more, len(pairs) - 1)] for more in (0, 1))
        order = lane_numbers(range(rest, rest + kind.lanes))
        return [builder.shuffle_vector(x, y, order) for x, y in zip(near, far, strict=True)]

    def emit(builder, values, places, _, value):
        pairs = list(zip(values, places, strict=True))
        rule, covered = _emit_nan_rule(builder, kind, nan, value), 1
        for distance in _doubling(size):
            covered += distance
            needed = range(1 - (covered - size) // kind.lanes)
            moved = [move(builder, pairs, number, distance) for number in needed]
            pairs = [_argmax(builder, kind, iter((pairs[number], moved[number])), rule) for number in needed]
        return pairs[0]

    return types.Tuple((kind, places.dtype)), emit


def _doubling(size):
    """Distances by which runs of 1, 2, 4, ... overlap themselves, until they cover `size`."""
    covered = 1
    while covered < size:
        distance = min(covered, size - covered)
        yield distance
        covered += distance


@operation
def tile_roll(bests, places, best, place, depth, step, nan):
    """Push a vector and its place to two queues; also the first largest of the last `depth` pushed, and its place.

    With step 1 the queues hold results of 1, 2, 4, ... pushed vectors, so that few comparisons remain; with step 2,
    where only every second result is used, they hold the pushed vectors themselves. For `nan` see `argmax`.
    """
    size = depth.literal_value

    def emit(builder, bests, places, value, at, _, __, nan_value):
        rule = _emit_nan_rule(builder, best, nan, nan_value)
        queue = list(zip(bests, places, strict=True))
        pushed = largest = (value, at)
        if step.literal_value == 1:
            after = []
            for distance in _doubling(size):
                oldest, *rest = queue[len(after) : len(after) + distance]
                after += [*rest, largest]
                largest = _argmax(builder, best, iter((oldest, largest)), rule)
            queue = after or queue
        elif size > 1:
            largest, queue = _argmax(builder, best, iter([*queue, pushed]), rule), [*queue[1:], pushed]
        return *zip(*queue, strict=True), *largest

    return types.Tuple((bests, places, best, place)), emit


def _uncovered(taps, step):
    if step == 0:
        return range(taps.count)
    read = {tap for first in range(step) for tap in range(first, taps.count, step * taps.dtype.lanes)}
    return sorted(read | set(range(max(0, taps.count - step), taps.count)))


@operation
def any_unordered(taps, step):
    """A mask with some lane set if taps hold a NaN; any taps for step 0, else of `load_window`, no element twice."""
    mask, read = taps.dtype.mask, _uncovered(taps, step.literal_value)

    def emit(builder, values, _):
        parts = [values[tap] for tap in read]
        result = mask.constant(0)
        for x, y in zip(parts[::2], parts[1::2] + parts[-1:] * (len(parts) % 2), strict=True):
            result = builder.or_(result, builder.fcmp_unordered("uno", x, y))
        return result

    return mask, emit


@operation
def any_beyond(taps, step, limit):
    """A mask with some lane set if taps hold a NaN, or more than `limit` of either sign; see `any_unordered`."""
    kind, read = taps.dtype, _uncovered(taps, step.literal_value)

    def emit(builder, values, _, limit):
        result = kind.mask.constant(0)
        for tap in read:
            result = builder.or_(result, _is_beyond(builder, kind, values[tap], limit))
        return result

    return kind.mask, emit


def _is_beyond(builder, kind, value, limit):
    size = call_llvm(builder, f"llvm.fabs.{kind.suffix}", kind.llvm, [value])
    return builder.fcmp_unordered(">", size, limit)


@operation
def mark_nan(value, limit):
    """16-bit floats as the upper half of float32, a vector or a tile; those beyond `limit` become NaN.

    Their bits are in the lower half.
    """
    kind, bits = limit, limit.of(types.int32)

    def mark(builder, value, most):
        upper = builder.lshr(builder.bitcast(value, bits.llvm), bits.constant(16))
        nan = builder.bitcast(builder.or_(upper, bits.constant(_QUIET_NAN)), kind.llvm)
        return builder.select(_is_beyond(builder, kind, value, most), nan, value)

    if isinstance(value, types.BaseTuple):
        return value, lambda builder, parts, most: [mark(builder, part, most) for part in parts]
    return value, mark


_NAN_KEY = np.int16(np.iinfo(np.int16).max)


@overload_by_type()
def to_keys(value, infinity):
    """The keys of elements in registers: integers for the bits of 16-bit floats, else the elements."""
    if isinstance(value, Vector) and value.element == types.int16:
        return lambda value, infinity: keys_of_bits(value, infinity)
    return lambda value, infinity: value


@overload_by_type()
def key_is_larger(x, y, nan):
    """Lanes in which key x takes the place of key y, the first of equals; `nan` as in `argmax`."""
    if x.element == types.int16 and getattr(nan, "literal_value", None) != IGNORED:
        return lambda x, y, nan: x > minimum(y, largest_key_that_stays(y, nan))
    return lambda x, y, nan: is_larger(x, y, nan)


@overload_by_type()
def may_have_nan(total, key, nan):
    """Lanes that may have seen NaN, where `>` alone does not order it.

    `total` is the sum of the elements of a lane, and `key` their largest key; the first NaN of 16 bits has the largest.
    """
    if key.element == types.int16:
        return lambda total, key, nan: key > largest_key_that_stays(key, nan)
    return lambda total, key, nan: unordered(total, total)


@overload_by_type()
def largest_key_that_stays(key, nan):
    """In every lane the largest key that an equal one does not replace."""
    lanes = key.lanes
    return lambda key, nan: splat(np.int16(_NAN_KEY - (nan == LAST)), lanes)


@overload_by_type()
def minimum(x, y):
    """The smaller of two integers, lane by lane."""
    return lambda x, y: select(x > y, y, x)


@overload_by_type()
def select_value(is_new, value, best, key):
    """The elements of the keys `key`: `value` where it is larger, else `best`."""
    if value.element == types.int16:
        return lambda is_new, value, best, key: select(is_new, value, best)
    return lambda is_new, value, best, key: key  # elements are their own keys, and need no second register


@overload_by_type()
def keys_of_bits(value, infinity):
    """Keys of a vector of float bits."""
    lanes, dtype = value.lanes, np.dtype(str(value.element)).type
    smallest, largest, zero = dtype(np.iinfo(dtype).min), dtype(np.iinfo(dtype).max), dtype(0)

    def key(value, infinity):
        magnitude = value & splat(largest, lanes)
        signed = select(value < splat(zero, lanes), splat(smallest, lanes) - value, value)
        return select(magnitude > infinity, splat(largest, lanes), signed)

    return key
