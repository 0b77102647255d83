"""The largest of several vectors, lane by lane, and its place, with the NaN rule of the caller (`elements.py`).

Instructions of kernels that keep maxima in registers. `nan` is FIRST or LAST, at compile time or run time, the NaN that
is larger than all; or the literal IGNORED: then a NaN is never larger, but stays if it comes first.
"""

from llvmlite import ir
from numba import types

from unpool.kernels.cpu.vector import IGNORED, LAST
from unpool.kernels.cpu.vector.type import call_llvm, emit_comparison, emit_splat, lane_numbers, operation, tile_of

_QUIET_NAN = 0x7FC00000


@operation
def argmax(values, places, nan):
    """The first of the largest vectors of a tile, lane by lane, and its place."""
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
    """Lanes of x that take the place of y in a running maximum."""
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
    where only every second result is used, they hold the pushed vectors themselves.
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


@operation
def tile_repeat(value, count):
    """A tuple of `count` times the same vector."""
    return tile_of(value, count), lambda builder, value, _: [value] * count.literal_value


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
