"""Tiles: tuples of vectors, row after row, that stay in registers while products are added to them.

A tile takes the factors of the products from rows of memory, or from listed places: a sparse dot product.
"""

from itertools import pairwise

from llvmlite import ir
from numba import types

from unpool.kernels.cpu.vector import type as llvm
from unpool.kernels.cpu.vector.memory import emit_int64
from unpool.kernels.cpu.vector.type import I64, operation, tile_of, vector_of


@operation
def tile_zero(element, lanes, count):
    """`count` vectors of zeros."""
    vector = vector_of(element, lanes)
    return tile_of(vector, count), lambda builder, *_: [vector.constant(0.0)] * count.literal_value


@operation
def tile_repeat(value, count):
    """A tuple of `count` times the same vector."""
    return tile_of(value, count), lambda builder, value, _: [value] * count.literal_value


@operation
def tile_add(total, value):
    """The vector `value` added to every vector of a tile."""
    return total, lambda builder, total, value: [builder.fadd(each, value) for each in total]


@operation
def tile_add_product(total, a, b, element, lanes, rows, vectors):
    """total[r, v] += a[r] * b[v]: one step of a product of `rows` times `vectors` vectors; a and b are addresses."""
    vector, width = total.dtype, vectors.literal_value

    def emit(builder, sums, a, b, *_):
        right, results = llvm.emit_load_parts(builder, b, vector, width), []
        for row in range(rows.literal_value):
            left = llvm.emit_load_scalar(builder, builder.add(a, I64(row * vector.itemsize)), vector)
            results += [
                _multiply_add(builder, vector, left, factor, old)
                for factor, old in zip(right, sums[row * width : (row + 1) * width], strict=True)
            ]
        return results

    return total, emit


def _multiply_add(builder, kind, x, y, total):
    return llvm.call_llvm(builder, f"llvm.fmuladd.{kind.suffix}", kind.llvm, [x, y, total])


@operation
def tile_load(address, bytes_between, element, lanes, count):
    """`count` whole vectors, `bytes_between` apart."""
    vector = vector_of(element, lanes)

    def emit(builder, address, bytes_between, *_):
        places = (llvm.row_address(builder, address, bytes_between, row) for row in range(count.literal_value))
        return [llvm.emit_load(builder, place, vector) for place in places]

    return tile_of(vector, count), emit


@operation
def tile_store(total, address, bytes_between, rows, vectors):
    """The rows of a tile, `bytes_between` apart."""
    return types.void, _emit_tile_store(total, vectors, lambda builder, place, value: value)


@operation
def tile_add_to(total, address, bytes_between, rows, vectors):
    """As `tile_store`, but added to what is there."""
    vector = total.dtype
    return types.void, _emit_tile_store(
        total, vectors, lambda builder, place, value: builder.fadd(llvm.emit_load(builder, place, vector), value)
    )


def _emit_tile_store(total, vectors, combine):
    """The emitter that stores a tile, `vectors` to a row, each vector changed by `combine(builder, place, vector)`."""
    vector = total.dtype

    def emit(builder, values, address, bytes_between, *_):
        for number, value in enumerate(values):
            row, part = divmod(number, vectors.literal_value)
            start = llvm.row_address(builder, address, bytes_between, row)
            place = builder.add(start, I64(part * vector.nbytes))
            llvm.emit_store(builder, combine(builder, place, value), place, vector)

    return emit


@operation
def tile_store_first(total, address, count):
    """The first `count` elements of a tile, vector after vector; other memory is not touched.

    Only the last, incomplete vector takes a mask: without AVX-512 or SVE a masked store is many instructions.
    """
    vector = total.dtype

    def emit(builder, values, address, count):
        numbers = ir.Constant(ir.VectorType(I64, vector.lanes), list(range(vector.lanes)))
        for part, value in enumerate(values):
            rest = builder.sub(count, I64(part * vector.lanes))
            place = builder.add(address, I64(part * vector.nbytes))
            with builder.if_else(builder.icmp_signed(">=", rest, I64(vector.lanes))) as (is_whole, is_short):
                with is_whole:
                    llvm.emit_store(builder, value, place, vector)
                with is_short, builder.if_then(builder.icmp_signed(">", rest, I64(0))):
                    mask = builder.icmp_signed("<", numbers, llvm.emit_splat(builder, rest, vector.lanes))
                    llvm.emit_store_masked(builder, value, place, mask, vector)

    return types.void, emit


@operation
def tile_interleave(address, places, like, step):
    """`step` vectors (1, 2, 4 or 8) whose lanes alternate: element e is lane e // step of vector e % step.

    Vector v, typed as `like`, lies `places[v]` bytes after `address`; `places` is the address of int64 numbers.
    """

    def emit(builder, address, places, *_):
        offsets = [emit_int64(builder, places, part) for part in range(step.literal_value)]
        return _alternate(builder, [llvm.emit_load(builder, builder.add(address, offset), like) for offset in offsets])

    return tile_of(like, step), emit


@operation
def tile_alternate(total, step):
    """Vectors of `step` rows of a tile, one of each at a time, as vectors whose lanes alternate: 1, 2, 4 or 8 rows."""
    wide = total.count // step.literal_value
    return total, lambda builder, values, _: [
        vector for column in range(wide) for vector in _alternate(builder, values[column::wide])
    ]


def _alternate(builder, vectors):
    """The same number of vectors, a power of two, whose lanes alternate."""
    lanes = vectors[0].type.count
    places = [place % 2 * lanes + place // 2 for place in range(2 * lanes)]
    orders = llvm.lane_numbers(places[:lanes]), llvm.lane_numbers(places[lanes:])
    groups = [vectors]
    while len(groups[0]) > 1:
        half = len(groups[0]) // 2
        groups = [
            [builder.shuffle_vector(x, y, order) for x, y in zip(group[:half], group[half:], strict=True)]
            for group in groups
            for order in orders
        ]
    return [group[0] for group in groups]


@operation
def tile_combine(total, terms, after, pattern):
    """Sums and differences along the middle axis of a tile of shape (any, `terms`, `after`).

    A pattern such as "0-2 1+2" lists the results: the first is element 0 of that axis less element 2.
    """
    step, words = after.literal_value, pattern.literal_value.split()
    rows = [[("+" + word)[at : at + 2] for at in range(0, len(word) + 1, 2)] for word in words]
    blocks = range(0, total.count, terms.literal_value * step)

    def combine(builder, row, values):
        result = values[int(row[0][1])]
        for sign, digit in row[1:]:
            result = (builder.fadd if sign == "+" else builder.fsub)(result, values[int(digit)])
        return result

    def emit(builder, values, *_):
        return [
            combine(builder, row, values[block + place :: step])
            for block in blocks
            for row in rows
            for place in range(step)
        ]

    return types.UniTuple(total.dtype, len(blocks) * len(rows) * step), emit


@operation
def tile_load_every(address, element, lanes, step):
    """`step` vectors, 2 or 3: the k-th holds every `step`-th element from the k-th on. Reads all of them, no more."""
    vector, apart = vector_of(element, lanes), step.literal_value

    def emit(builder, address, *_):
        return llvm.deinterleave(builder, llvm.emit_load_parts(builder, address, vector, apart))

    return tile_of(vector, step), emit


@operation
def tile_store_every(total, address, bytes_between, step):
    """The inverse of `tile_load_every` for every `step` vectors of a tile, whose elements are `bytes_between` apart."""
    vector, apart = total.dtype, step.literal_value

    def emit(builder, values, address, bytes_between, _):
        for row in range(total.count // apart):
            start = llvm.row_address(builder, address, bytes_between, row)
            for part in range(apart):
                order = [divmod(part * vector.lanes + lane, apart)[::-1] for lane in range(vector.lanes)]
                mixed = llvm.pick(builder, values[row * apart : (row + 1) * apart], order)
                llvm.emit_store(builder, mixed, builder.add(start, I64(part * vector.nbytes)), vector)

    return types.void, emit


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
        return [_multiply_add(builder, start, factor, part, total) for part, total in zip(parts, totals, strict=True)]

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
