"""Sums of products whose factors and places are listed: sparse dot products."""

from itertools import pairwise

from llvmlite import ir
from numba import types
from numba.core import cgutils

from unpool.kernels.cpu.vector.memory import emit_int64
from unpool.kernels.cpu.vector.type import I64, bits_of, call_llvm, emit_load, emit_splat, intrinsic, llvm_element


@intrinsic
def load_terms(context, like, terms, bounds, a, lists, count):
    """The number of terms of each list, and the first `count` terms, for `tile_sparse_dot` to keep in registers.

    `count` entries of `terms` are read from the begin of each list, also if it is shorter, and `a` at their places.

    Returns:
        Per list its number of terms; per loaded term a[i] in all lanes, and j.
    """
    rows, each = lists.literal_value, count.literal_value
    whole = types.int64
    result = types.Tuple(
        (types.UniTuple(whole, rows), types.UniTuple(like, rows * each), types.UniTuple(whole, rows * each))
    )

    def emit(ctx, builder, signature, arguments):
        edges = [emit_int64(builder, arguments[2], row) for row in range(rows + 1)]
        sizes = [builder.sub(high, low) for low, high in pairwise(edges)]
        loaded = [
            _term(builder, arguments[1], builder.add(low, I64(term)), arguments[3], like)
            for low in edges[:-1]
            for term in range(each)
        ]
        factors, places = zip(*loaded, strict=True) if loaded else ((), ())
        parts = [
            ctx.make_tuple(builder, kind, found) for kind, found in zip(result, (sizes, factors, places), strict=True)
        ]
        return ctx.make_tuple(builder, result, parts)

    return result(like, terms, bounds, a, lists, count), emit


@intrinsic
def tile_sparse_dot(context, start, loaded, terms, bounds, a, b, vectors):
    """Rows of `vectors` vectors, one per list of terms: each is `start` plus a[i] * b[j] over its terms (i, j).

    All but `start` and `loaded` are addresses: `terms` of pairs of int64, i and j, in bytes from the element `a` and
    the whole vectors `b`; `bounds` of int64 as well, row r has the terms [bounds[r], bounds[r + 1]). `loaded` comes
    from `load_terms`.
    """
    lists, width = loaded[0].count, vectors.literal_value
    count, size = loaded[1].count // lists, bits_of(start.element) // 8 * start.lanes
    result = types.UniTuple(start, lists * width)

    def added(builder, totals, factor, place):
        parts = [builder.add(place, I64(part * size)) for part in range(width)]
        return [
            call_llvm(
                builder, f"llvm.fmuladd.{start.suffix}", start.llvm, [factor, emit_load(builder, part, start), total]
            )
            for part, total in zip(parts, totals, strict=True)
        ]

    def others(builder, totals, row, arguments, after):
        """All terms after the loaded ones, in a loop."""
        low, high = (emit_int64(builder, arguments[3], row + end) for end in (0, 1))
        first = [builder.add(low, I64(count)), *totals]
        before, body = builder.block, builder.append_basic_block("others")
        builder.branch(body)
        builder.position_at_end(body)
        term, *sums = (builder.phi(kind) for kind in (I64, *[start.llvm] * width))
        factor, place = _term(builder, arguments[2], term, arguments[4], start)
        following = [builder.add(term, I64(1)), *added(builder, sums, factor, builder.add(arguments[5], place))]
        builder.cbranch(builder.icmp_signed("<", following[0], high), body, after)
        for phi, *values in zip((term, *sums), first, following, strict=True):
            for value, block in zip(values, (before, body), strict=True):
                phi.add_incoming(value, block)
        return following[1:]

    def emit(ctx, builder, signature, arguments):
        sizes, factors, places = (
            cgutils.unpack_tuple(builder, each) for each in cgutils.unpack_tuple(builder, arguments[1])
        )
        found = []
        for row in range(lists):
            after, totals, ends = builder.append_basic_block("after"), [arguments[0]] * width, []
            for number in range(count + 1):
                more = builder.append_basic_block("more")
                ends.append((builder.block, totals))
                builder.cbranch(builder.icmp_signed(">", sizes[row], I64(number)), more, after)
                builder.position_at_end(more)
                if number < count:
                    place = builder.add(arguments[5], places[row * count + number])
                    totals = added(builder, totals, factors[row * count + number], place)
            totals = others(builder, totals, row, arguments, after)
            ends.append((builder.block, totals))
            builder.position_at_end(after)
            for part in range(width):
                phi = builder.phi(start.llvm)
                for block, values in ends:
                    phi.add_incoming(values[part], block)
                found.append(phi)
        return ctx.make_tuple(builder, result, found)

    return result(start, loaded, terms, bounds, a, b, vectors), emit


def _term(builder, terms, term, a, like):
    """Term number `term` of `terms`: a[i] in all lanes, and j."""
    first = builder.shl(term, I64(1))
    left = builder.add(a, emit_int64(builder, terms, first))
    scalar = builder.load(
        builder.inttoptr(left, ir.PointerType(llvm_element(like.element))), align=bits_of(like.element) // 8
    )
    return emit_splat(builder, scalar, like.lanes), emit_int64(builder, terms, builder.add(first, I64(1)))
