"""The largest of several vectors, lane by lane, and its place, with the NaN rule of the caller.

The bits of 16-bit floats are compared by keys, integers in the order of the numbers. Sign-magnitude becomes two's
complement, so both zeros become 0, and every NaN becomes the largest key: a strict integer comparison then propagates
NaN and keeps the first of equals. No key is the smallest integer, which means "nothing yet".
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from unpool.kernels.cpu.vector.arithmetic import select, splat, unordered
from unpool.kernels.cpu.vector.specialize import overload_by_type
from unpool.kernels.cpu.vector.type import (
    Vector,
    bits_of,
    call_llvm,
    comparison,
    emit_splat,
    intrinsic,
    is_float,
    lane_numbers,
    mask_of,
)

_QUIET_NAN = 0x7FC00000

IGNORED, FIRST, LAST = 0, 1, 2
"""The NaN that is a maximum: none, because there is none, or the first or the last of several."""


@intrinsic
def argmax(context, values, places, nan):
    """The first of the largest vectors of a tile, lane by lane, and its place.

    `nan` is FIRST or LAST, at compile time or run time, the NaN that is larger than all; or the literal IGNORED: then a
    NaN is never larger, but stays if it comes first.
    """
    result = types.Tuple((values.dtype, places.dtype))

    def emit(ctx, builder, signature, arguments):
        tiles = (cgutils.unpack_tuple(builder, each, values.count) for each in arguments[:2])
        pairs = list(zip(*tiles, strict=True))
        rule = _rule(builder, values.dtype, nan, arguments[2])
        return ctx.make_tuple(builder, result, _argmax(builder, values.dtype, pairs, rule))

    return result(values, places, nan), emit


def _rule(builder, kind, nan, given):
    """Integers as wide as the elements, 0 for LAST, all bits set for FIRST; None where NaN is ignored.

    A mask would be converted between widths wherever it lives longer than a comparison.
    """
    if getattr(nan, "literal_value", None) == IGNORED or not is_float(kind):
        return None
    is_first = builder.icmp_signed("!=", given, ir.Constant(given.type, LAST))
    return emit_splat(builder, builder.sext(is_first, ir.IntType(bits_of(kind.element))), kind.lanes)


def _is_larger(builder, kind, value, best, rule):
    larger = comparison(">")(builder, kind, value, best)
    if rule is None:
        return larger
    guarded = builder.bitcast(builder.and_(builder.bitcast(best, rule.type), rule), kind.llvm)
    stays = builder.fcmp_ordered("ord", guarded, guarded)
    return builder.or_(larger, builder.and_(builder.fcmp_unordered("uno", value, value), stays))


@intrinsic
def is_larger(context, x, y, nan):
    """Lanes of x that take the place of y in a running maximum; see `argmax`."""

    def emit(ctx, builder, signature, arguments):
        return _is_larger(builder, x, *arguments[:2], _rule(builder, x, nan, arguments[2]))

    return mask_of(x)(x, y, nan), emit


def _argmax(builder, kind, pairs, rule):
    best, at = pairs[0]
    for value, place in pairs[1:]:
        is_new = _is_larger(builder, kind, value, best, rule)
        best, at = builder.select(is_new, value, best), builder.select(is_new, place, at)
    return best, at


@intrinsic
def sliding_argmax(context, values, places, taps, nan):
    """As `argmax` of `taps` neighbours, from each lane of the first of vectors that follow each other.

    The distance that is covered doubles with every step, so there are about log2(taps) of them.
    """
    kind, size = values.dtype, taps.literal_value
    result = types.Tuple((kind, places.dtype))

    def emit(ctx, builder, signature, arguments):
        pairs = list(zip(*(cgutils.unpack_tuple(builder, each, values.count) for each in arguments[:2]), strict=True))
        rule, covered = _rule(builder, kind, nan, arguments[3]), 1
        for distance in _doubling(size):
            covered += distance
            needed = 1 - (covered - size) // kind.lanes
            moved = [_moved(builder, pairs, number, distance, kind.lanes) for number in range(needed)]
            both = zip(pairs[:needed], moved, strict=True)
            pairs = [_argmax(builder, kind, each, rule) for each in both]
        return ctx.make_tuple(builder, result, pairs[0])

    return result(values, places, taps, nan), emit


def _doubling(size):
    """Distances by which runs of 1, 2, 4, ... overlap themselves, until they cover `size`."""
    covered = 1
    while covered < size:
        distance = min(covered, size - covered)
        yield distance
        covered += distance


def _moved(builder, pairs, number, distance, lanes):
    """Vector `number` of several in a row, moved by a distance; lanes after the last vector hold anything."""
    whole, rest = divmod(distance, lanes)
    near, far = (pairs[min(number + whole + more, len(pairs) - 1)] for more in (0, 1))
    order = lane_numbers(range(rest, rest + lanes))
    return tuple(builder.shuffle_vector(x, y, order) for x, y in zip(near, far, strict=True))


@intrinsic
def tile_roll(context, bests, places, best, place, depth, step, nan):
    """Push a vector and its place to two queues; also the first largest of the last `depth` pushed, and its place.

    With step 1 the queues hold results of 1, 2, 4, ... pushed vectors, so that few comparisons remain; with step 2,
    where only every second result is used, they hold the pushed vectors themselves. For `nan` see `argmax`.
    """
    result = types.Tuple((bests, places, best, place))
    count, size = bests.count, depth.literal_value

    def emit(ctx, builder, signature, arguments):
        rule = _rule(builder, best, nan, arguments[6])
        queue = list(zip(*(cgutils.unpack_tuple(builder, each, count) for each in arguments[:2]), strict=True))
        pushed = found = (arguments[2], arguments[3])
        if step.literal_value == 1:
            after = []
            for distance in _doubling(size):
                oldest, *rest = queue[len(after) : len(after) + distance]
                after += [*rest, found]
                found = _argmax(builder, best, [oldest, found], rule)
            queue = after or queue
        elif size > 1:
            found, queue = _argmax(builder, best, [*queue, pushed], rule), [*queue[1:], pushed]
        tuples = [
            ctx.make_tuple(builder, kind, list(each))
            for kind, each in zip((bests, places), zip(*queue, strict=True), strict=True)
        ]
        return ctx.make_tuple(builder, result, [*tuples, *found])

    return result(bests, places, best, place, depth, step, nan), emit


def _uncovered(taps, step):
    if step == 0:
        return range(taps.count)
    read = {tap for first in range(step) for tap in range(first, taps.count, step * taps.dtype.lanes)}
    return sorted(read | set(range(max(0, taps.count - step), taps.count)))


@intrinsic
def any_beyond(context, taps, step, limit):
    """A mask with some lane set if taps hold a NaN, or more than `limit` of either sign; see `any_unordered`."""
    kind, read = taps.dtype, _uncovered(taps, step.literal_value)

    def emit(ctx, builder, signature, arguments):
        values = cgutils.unpack_tuple(builder, arguments[0], taps.count)
        found = ir.Constant(mask_of(kind).llvm, [0] * kind.lanes)
        for tap in read:
            size = call_llvm(builder, f"llvm.fabs.{kind.suffix}", kind.llvm, [values[tap]])
            found = builder.or_(found, builder.fcmp_unordered(">", size, arguments[2]))
        return found

    return mask_of(kind)(taps, step, limit), emit


def _marked(builder, kind, value, limit):
    bits = kind.of(types.int32).llvm
    upper = builder.lshr(builder.bitcast(value, bits), ir.Constant(bits, [16] * kind.lanes))
    nan = builder.bitcast(builder.or_(upper, ir.Constant(bits, [_QUIET_NAN] * kind.lanes)), kind.llvm)
    size = call_llvm(builder, f"llvm.fabs.{kind.suffix}", kind.llvm, [value])
    return builder.select(builder.fcmp_unordered(">", size, limit), nan, value)


@intrinsic
def mark_nan(context, value, limit):
    """16-bit floats as the upper half of float32; those beyond `limit` become NaN, their bits in the lower half."""

    def emit(ctx, builder, signature, arguments):
        return _marked(builder, value, *arguments)

    return value(value, limit), emit


@intrinsic
def tile_mark_nan(context, total, limit):
    """`mark_nan` of every vector of a tile."""

    def emit(ctx, builder, signature, arguments):
        values = cgutils.unpack_tuple(builder, arguments[0], total.count)
        return ctx.make_tuple(builder, total, [_marked(builder, limit, each, arguments[1]) for each in values])

    return total(total, limit), emit


@intrinsic
def any_unordered(context, taps, step):
    """A mask with some lane set if taps hold a NaN.

    Taps from `load_window` with a step are not read where others cover them; step 0 is for any vectors.
    """
    kind, read = taps.dtype, _uncovered(taps, step.literal_value)

    def emit(ctx, builder, signature, arguments):
        values = cgutils.unpack_tuple(builder, arguments[0], taps.count)
        parts = [values[tap] for tap in read]
        found = ir.Constant(mask_of(kind).llvm, [0] * kind.lanes)
        for x, y in zip(parts[::2], parts[1::2] + parts[-1:] * (len(parts) % 2), strict=True):
            found = builder.or_(found, builder.fcmp_unordered("uno", x, y))
        return found

    return mask_of(kind)(taps, step), emit


_NAN_KEY = np.int16(np.iinfo(np.int16).max)


@overload_by_type()
def to_keys(value, infinity):
    """The keys of elements in registers: integers for the bits of 16-bit floats, else the elements."""
    if isinstance(value, Vector) and value.element == types.int16:
        return lambda value, infinity: keys_of_bits(value, infinity)
    return lambda value, infinity: value


@overload_by_type()
def key_is_larger(x, y, nan):
    """Lanes in which key x takes the place of key y in a running maximum; the first of equals stays.

    Args:
        x: new keys.
        y: the largest so far.
        nan: FIRST or LAST, the NaN that stays; the literal IGNORED where NaN needs no order.
    """
    if x.element == types.int16 and getattr(nan, "literal_value", None) != IGNORED:
        return lambda x, y, nan: x > minimum(y, largest_key_that_stays(y, nan))
    return lambda x, y, nan: is_larger(x, y, nan)


@overload_by_type()
def may_have_nan(total, key, nan):
    """Lanes that may have seen NaN, where `>` alone does not order it.

    Args:
        total: sum of the elements of a lane, NaN if one of them is.
        key: their largest key; of 16-bit floats the first NaN has the largest.
        nan: FIRST or LAST, the NaN of several that stays.
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
