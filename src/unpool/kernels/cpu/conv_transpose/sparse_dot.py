"""Instructions of the direct kernel: sums of listed products in registers, a sparse dot product.

A list of terms is read from memory where it is short, and walked by a loop behind the terms that registers hold.
"""

from itertools import pairwise

from numba import types

from unpool.kernels.cpu.vector import type as llvm
from unpool.kernels.cpu.vector.memory import emit_int64
from unpool.kernels.cpu.vector.type import I64, emit_multiply_add, operation


@operation
def load_terms(like, terms, bounds, a, lists, count):
    """Per list its number of terms, and per term a[i] in all lanes, and j: `count` terms for `tile_sparse_dot` to hold.

    `count` entries of `terms` are read from the begin of each list, also if it is shorter, and `a` at their places.
    """
    rows, each = lists.literal_value, count.literal_value
    sizes, places = types.UniTuple(types.int64, rows), types.UniTuple(types.int64, rows * each)

    def emit(builder, _, terms, bounds, a, *__):
        edges = [emit_int64(builder, bounds, row) for row in range(rows + 1)]
        loaded = [
            _load_term(builder, terms, builder.add(low, I64(term)), a, like)
            for low in edges[:-1]
            for term in range(each)
        ]
        sizes = [builder.sub(high, low) for low, high in pairwise(edges)]
        return sizes, [factor for factor, _ in loaded], [place for _, place in loaded]

    return types.Tuple((sizes, types.UniTuple(like, rows * each), places)), emit


@operation
def tile_sparse_dot(start, loaded, terms, bounds, a, b, vectors):
    """Rows of `vectors` vectors, one per list of terms: each is `start` plus a[i] * b[j] over its terms (i, j).

    All but `start` and `loaded` (from `load_terms`) are addresses: `terms` of pairs of int64, i and j, in bytes from
    element `a` and the whole vectors `b`; `bounds` of int64: row r has the terms [bounds[r], bounds[r + 1]).
    """
    lists, width = loaded[0].count, vectors.literal_value
    count = loaded[1].count // lists

    def add_term(builder, totals, factor, place):
        parts = llvm.emit_load_parts(builder, place, start, width)
        return [
            emit_multiply_add(builder, start, factor, part, total) for part, total in zip(parts, totals, strict=True)
        ]

    def add_others(builder, totals, row, terms, bounds, a, b, after):
        """All terms after the loaded ones, in a loop."""
        low, high = (emit_int64(builder, bounds, row + end) for end in (0, 1))
        first = [builder.add(low, I64(count)), *totals]
        before, body = builder.block, builder.append_basic_block("others")
        builder.branch(body)
        builder.position_at_end(body)
        term, *sums = (builder.phi(kind) for kind in (I64, *[start.llvm] * width))
        factor, place = _load_term(builder, terms, term, a, start)
        following = [builder.add(term, I64(1)), *add_term(builder, sums, factor, builder.add(b, place))]
        builder.cbranch(builder.icmp_signed("<", following[0], high), body, after)
        for phi, *values in zip((term, *sums), first, following, strict=True):
            for value, block in zip(values, (before, body), strict=True):
                phi.add_incoming(value, block)
        return following[1:]

    def emit(builder, initial, loaded, terms, bounds, a, b, _):
        sizes, factors, places = loaded
        results = []
        for row in range(lists):
            after, totals, ends = builder.append_basic_block("after"), [initial] * width, []
            for number in range(count + 1):
                more = builder.append_basic_block("more")
                ends.append((builder.block, totals))
                builder.cbranch(builder.icmp_signed(">", sizes[row], I64(number)), more, after)
                builder.position_at_end(more)
                if number < count:
                    place = builder.add(b, places[row * count + number])
                    totals = add_term(builder, totals, factors[row * count + number], place)
            totals = add_others(builder, totals, row, terms, bounds, a, b, after)
            ends.append((builder.block, totals))
            builder.position_at_end(after)
            for part in range(width):
                phi = builder.phi(start.llvm)
                for block, values in ends:
                    phi.add_incoming(values[part], block)
                results.append(phi)
        return results

    return types.UniTuple(start, lists * width), emit


def _load_term(builder, terms, term, a, like):
    """Term number `term` of `terms`: a[i] in all lanes, and j."""
    first = builder.shl(term, I64(1))
    factor = llvm.emit_load_scalar(builder, builder.add(a, emit_int64(builder, terms, first)), like)
    return factor, emit_int64(builder, terms, builder.add(first, I64(1)))
