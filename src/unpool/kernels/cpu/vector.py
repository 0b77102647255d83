"""A Numba type that is an LLVM vector, and the few operations on it that the kernels need.

    v = load(address, int32, 16)      sixteen elements, one register
    m = v > best                      a mask: one bit per lane
    best = select(m, v, best)

Addresses are int64 bytes. Lane counts and element types are literals, so every operation is a handful of machine
instructions; a vector wider than the CPU's registers is split by LLVM. Arithmetic and comparisons are the Python
operators; shifts of signed integers are arithmetic.
"""

import operator
from itertools import pairwise

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _intrinsic
from numba.extending import lower_builtin, models, register_model, type_callable

_I1, _I32, _I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)
_BYTE_POINTER = ir.PointerType(ir.IntType(8))
_QUIET_NAN = 0x7FC00000

intrinsic = _intrinsic(prefer_literal=True)


class Vector(types.Type):
    """`lanes` elements of a Numba number type; of booleans, a mask."""

    def __init__(self, element, lanes):
        self.element = element
        self.lanes = lanes
        super().__init__(name=f"Vector({element}, {lanes})")

    @property
    def llvm(self):
        """The LLVM type."""
        return ir.VectorType(_llvm_element(self.element), self.lanes)

    @property
    def suffix(self):
        """How LLVM's intrinsics call it, such as v16f32."""
        kind = "f" if isinstance(self.element, types.Float) else "i"
        return f"v{self.lanes}{kind}{_bits(self.element)}"

    def of(self, element):
        """As many lanes of another element type."""
        return Vector(element, self.lanes)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, kind.llvm)


def _bits(element):
    return 1 if isinstance(element, types.Boolean) else element.bitwidth


def _llvm_element(element):
    if isinstance(element, types.Float):
        return ir.FloatType() if element.bitwidth == 32 else ir.DoubleType()
    return ir.IntType(_bits(element))


def _is_float(kind):
    return isinstance(kind.element, types.Float)


def _call(builder, name, result, arguments):
    signature = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, name), arguments)


def _splat(builder, scalar, lanes):
    undefined = ir.Constant(ir.VectorType(scalar.type, lanes), ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_I32, lanes), [0] * lanes))


def _indices(numbers):
    return ir.Constant(ir.VectorType(_I32, len(numbers)), list(numbers))


def _load(builder, address, kind):
    pointer = builder.inttoptr(address, ir.PointerType(kind.llvm))
    return builder.load(pointer, align=_bits(kind.element) // 8)


def _row(builder, address, bytes_between, row):
    return builder.add(address, builder.mul(bytes_between, ir.Constant(ir.IntType(64), row)))


def _concatenate(builder, parts):
    while len(parts) > 1:
        lanes = _indices(range(2 * parts[0].type.count))
        parts = [builder.shuffle_vector(x, y, lanes) for x, y in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _gather(builder, address, bytes_between, mask, fill, kind):
    lane = ir.Constant(ir.VectorType(ir.IntType(64), kind.lanes), list(range(kind.lanes)))
    offsets = builder.mul(lane, _splat(builder, bytes_between, kind.lanes))
    return _gather_places(builder, builder.add(_splat(builder, address, kind.lanes), offsets), mask, fill, kind)


def _gather_places(builder, places, mask, fill, kind):
    pointers = builder.inttoptr(places, ir.VectorType(ir.PointerType(_llvm_element(kind.element)), kind.lanes))
    align = ir.Constant(_I32, _bits(kind.element) // 8)
    name = f"llvm.masked.gather.{kind.suffix}.v{kind.lanes}p0"
    return _call(builder, name, kind.llvm, [pointers, align, mask, fill])


def _binary(symbol, emit, result=lambda kind: kind):
    @type_callable(symbol)
    def typer(context):
        def resolve(x, y):
            return result(x) if isinstance(x, Vector) and x == y else None

        return resolve

    @lower_builtin(symbol, Vector, Vector)
    def lower(context, builder, signature, arguments):
        return emit(builder, signature.args[0], *arguments)


def _arithmetic(integer, floating):
    return lambda builder, kind, x, y: getattr(builder, floating if _is_float(kind) else integer)(x, y)


def _comparison(word):
    def emit(builder, kind, x, y):
        if _is_float(kind):
            return builder.fcmp_unordered(word, x, y) if word == "!=" else builder.fcmp_ordered(word, x, y)
        if isinstance(kind.element, types.Integer) and not kind.element.signed:
            return builder.icmp_unsigned(word, x, y)
        return builder.icmp_signed(word, x, y)

    return emit


def _mask_of(kind):
    return kind.of(types.boolean)


_binary(operator.add, _arithmetic("add", "fadd"))
_binary(operator.sub, _arithmetic("sub", "fsub"))
_binary(operator.mul, _arithmetic("mul", "fmul"))
_binary(operator.and_, lambda builder, kind, x, y: builder.and_(x, y))
_binary(operator.or_, lambda builder, kind, x, y: builder.or_(x, y))
_binary(operator.xor, lambda builder, kind, x, y: builder.xor(x, y))
_binary(operator.rshift, lambda builder, kind, x, y: builder.ashr(x, y))
_binary(operator.lshift, lambda builder, kind, x, y: builder.shl(x, y))
for _symbol, _word in (
    (operator.gt, ">"),
    (operator.lt, "<"),
    (operator.ge, ">="),
    (operator.eq, "=="),
    (operator.ne, "!="),
):
    _binary(_symbol, _comparison(_word), _mask_of)


@type_callable(operator.invert)
def _type_invert(context):
    return lambda x: x if isinstance(x, Vector) else None


@lower_builtin(operator.invert, Vector)
def _lower_invert(context, builder, signature, arguments):
    return builder.not_(arguments[0])


def _load_data_pointer(ctx, builder, signature, arguments):
    """NumPy's C struct of an array begins with the header of every object, then the address of the data."""
    place = builder.add(arguments[0], ir.Constant(ir.IntType(64), object.__basicsize__))
    return builder.load(builder.inttoptr(place, ir.PointerType(ir.IntType(64))))


@intrinsic
def address_of(context, array):
    """Address of the first element of an array, in bytes. The array may be given by its handle, `id(array)`."""
    if isinstance(array, types.Integer):
        return types.int64(types.int64), _load_data_pointer

    def emit(ctx, builder, signature, arguments):
        data = ctx.make_array(signature.args[0])(ctx, builder, arguments[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.int64(array), emit


@intrinsic
def load_once(context, address):
    """The int64 at an address, read a single time: what is checked is what is used, whoever else writes there.

    A plain load may be repeated by the compiler where that saves a register.
    """

    def emit(ctx, builder, signature, arguments):
        return builder.load_atomic(builder.inttoptr(arguments[0], ir.PointerType(_I64)), "unordered", 8)

    return types.int64(types.int64), emit


@intrinsic
def load(context, address, element, lanes):
    """`lanes` neighbouring elements, from any address."""
    result = Vector(element.dtype, lanes.literal_value)

    def emit(ctx, builder, signature, arguments):
        return _load(builder, arguments[0], result)

    return result(address, element, lanes), emit


@intrinsic
def load_every(context, address, element, lanes, step, bytes_between):
    """Every `step`-th element: for 1, 2 and 4 by whole loads, which read `lanes * step` elements, and shuffles.

    Step 0 stands for any distance: elements `bytes_between` apart are gathered, and nothing else is read.
    """
    result = Vector(element.dtype, lanes.literal_value)
    size = _bits(result.element) // 8 * result.lanes

    def emit(ctx, builder, signature, arguments):
        if step.literal_value == 0:
            mask = ir.Constant(result.of(types.boolean).llvm, [1] * result.lanes)
            return _gather(builder, arguments[0], arguments[4], mask, ir.Constant(result.llvm, ir.Undefined), result)
        places = (
            builder.add(arguments[0], ir.Constant(ir.IntType(64), size * part)) for part in range(step.literal_value)
        )
        parts = [_load(builder, place, result) for place in places]
        while len(parts) > 1:
            evens = _indices(range(0, 2 * result.lanes, 2))
            parts = [builder.shuffle_vector(x, y, evens) for x, y in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    return result(address, element, lanes, step, bytes_between), emit


@intrinsic
def gather(context, address, bytes_between, mask, fill):
    """Elements `bytes_between` apart where the mask is set, `fill` elsewhere; other memory is not touched."""

    def emit(ctx, builder, signature, arguments):
        return _gather(builder, *arguments, fill)

    return fill(address, bytes_between, mask, fill), emit


@intrinsic
def gather_at(context, address, offsets, mask, fill):
    """Elements at `address` + `offsets`, a vector of int64 bytes, where the mask is set; `fill` elsewhere."""

    def emit(ctx, builder, signature, arguments):
        places = builder.add(_splat(builder, arguments[0], fill.lanes), arguments[1])
        return _gather_places(builder, places, arguments[2], arguments[3], fill)

    return fill(address, offsets, mask, fill), emit


@intrinsic
def load_masked(context, address, mask, fill):
    """Lanes of `fill`, replaced by memory where the mask is set; other memory is not touched."""

    def emit(ctx, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], _BYTE_POINTER)
        align = ir.Constant(_I32, _bits(fill.element) // 8)
        return _call(builder, f"llvm.masked.load.{fill.suffix}.p0", fill.llvm, [pointer, align, *arguments[1:]])

    return fill(address, mask, fill), emit


@intrinsic
def store(context, address, value):
    """All lanes to any address."""

    def emit(ctx, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], ir.PointerType(value.llvm))
        builder.store(arguments[1], pointer, align=_bits(value.element) // 8)
        return ctx.get_dummy_value()

    return types.void(address, value), emit


@intrinsic
def store_masked(context, address, value, mask):
    """The lanes where the mask is set; other memory is not touched."""

    def emit(ctx, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], _BYTE_POINTER)
        align = ir.Constant(_I32, _bits(value.element) // 8)
        ordered = [arguments[1], pointer, align, arguments[2]]
        _call(builder, f"llvm.masked.store.{value.suffix}.p0", ir.VoidType(), ordered)
        return ctx.get_dummy_value()

    return types.void(address, value, mask), emit


@intrinsic
def splat(context, scalar, lanes):
    """The scalar in every lane."""
    result = Vector(types.unliteral(scalar), lanes.literal_value)
    return result(result.element, lanes), lambda ctx, builder, signature, arguments: _splat(
        builder, arguments[0], result.lanes
    )


@intrinsic
def count_up(context, element, lanes, step):
    """0, step, 2 * step, ..."""
    result = Vector(element.dtype, lanes.literal_value)
    numbers = [lane * step.literal_value for lane in range(result.lanes)]
    return result(element, lanes, step), lambda ctx, builder, signature, arguments: ir.Constant(result.llvm, numbers)


@intrinsic
def select(context, mask, x, y):
    """X where the mask is set, y elsewhere."""
    return x(mask, x, y), lambda ctx, builder, signature, arguments: builder.select(*arguments)


@intrinsic
def interleave(context, x, y):
    """One vector of twice the lanes: x[0], y[0], x[1], y[1], ..."""
    result = Vector(x.element, 2 * x.lanes)
    places = _indices([lane + x.lanes * which for lane in range(x.lanes) for which in (0, 1)])
    return result(x, y), lambda ctx, builder, signature, arguments: builder.shuffle_vector(*arguments, places)


@intrinsic
def load_rows(context, address, bytes_between, element, lanes, rows):
    """`rows` times `lanes` neighbouring elements as one vector; rows, a power of two, are `bytes_between` apart."""
    part, count = Vector(element.dtype, lanes.literal_value), rows.literal_value
    result = Vector(element.dtype, part.lanes * count)

    def emit(ctx, builder, signature, arguments):
        places = (_row(builder, *arguments[:2], row) for row in range(count))
        return _concatenate(builder, [_load(builder, place, part) for place in places])

    return result(address, bytes_between, element, lanes, rows), emit


@intrinsic
def store_rows(context, address, bytes_between, value, rows):
    """The vector in `rows` equal parts, `bytes_between` apart, in order."""
    count = rows.literal_value
    part = Vector(value.element, value.lanes // count)

    def emit(ctx, builder, signature, arguments):
        for row in range(count):
            pointer = builder.inttoptr(_row(builder, *arguments[:2], row), ir.PointerType(part.llvm))
            lanes = _indices(range(row * part.lanes, (row + 1) * part.lanes))
            piece = builder.shuffle_vector(arguments[2], arguments[2], lanes)
            builder.store(piece, pointer, align=max(1, _bits(part.element) // 8))
        return ctx.get_dummy_value()

    return types.void(address, bytes_between, value, rows), emit


@intrinsic
def splat_rows(context, address, element, lanes, rows):
    """`rows` neighbouring elements, a power of two, each in `lanes` lanes."""
    part, count = Vector(element.dtype, lanes.literal_value), rows.literal_value
    result, size = Vector(element.dtype, part.lanes * count), _bits(element.dtype) // 8

    def emit(ctx, builder, signature, arguments):
        pointers = (
            builder.inttoptr(
                builder.add(arguments[0], ir.Constant(ir.IntType(64), row * size)),
                ir.PointerType(_llvm_element(part.element)),
            )
            for row in range(count)
        )
        scalars = [builder.load(pointer, align=size) for pointer in pointers]
        return _concatenate(builder, [_splat(builder, scalar, part.lanes) for scalar in scalars])

    return result(address, element, lanes, rows), emit


@intrinsic
def repeat(context, x, times):
    """The lanes of x, so many times; a power of two."""
    result = Vector(x.element, x.lanes * times.literal_value)
    return result(x, times), lambda ctx, builder, signature, arguments: _concatenate(
        builder, [arguments[0]] * times.literal_value
    )


@intrinsic
def every_second(context, x, y, first):
    """Lanes `first`, `first` + 2, ... of x and then of y; `first` is 0 or 1."""
    lanes = _indices(range(first.literal_value, 2 * x.lanes, 2))
    return x(x, y, first), lambda ctx, builder, signature, arguments: builder.shuffle_vector(*arguments[:2], lanes)


@intrinsic
def any_of(context, mask):
    """Whether the mask is set in any lane."""
    bits = ir.IntType(mask.lanes)

    def emit(ctx, builder, signature, arguments):
        return builder.icmp_unsigned("!=", builder.bitcast(arguments[0], bits), ir.Constant(bits, 0))

    return types.boolean(mask), emit


@intrinsic
def convert(context, x, element):
    """Integers sign- or zero-extended or cut; equal widths keep their bits."""
    result = x.of(element.dtype)

    def emit(ctx, builder, signature, arguments):
        before, after = _bits(x.element), _bits(result.element)
        if before == after:
            return builder.bitcast(arguments[0], result.llvm)
        if before > after:
            return builder.trunc(arguments[0], result.llvm)
        return (builder.sext if x.element.signed else builder.zext)(arguments[0], result.llvm)

    return result(x, element), emit


@intrinsic
def prefetch(context, address):
    """Ask for a line of memory that will be read."""

    def emit(ctx, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], _BYTE_POINTER)
        read, near, data = (ir.Constant(_I32, number) for number in (0, 3, 1))
        _call(builder, "llvm.prefetch.p0", ir.VoidType(), [pointer, read, near, data])
        return ctx.get_dummy_value()

    return types.void(address), emit


@intrinsic
def tile_zero(context, element, lanes, count):
    """`count` vectors of zeros, as a tuple that stays in registers."""
    vector = Vector(element.dtype, lanes.literal_value)
    result = types.UniTuple(vector, count.literal_value)

    def emit(ctx, builder, signature, arguments):
        zero = ir.Constant(vector.llvm, [0.0] * vector.lanes)
        return ctx.make_tuple(builder, result, [zero] * result.count)

    return result(element, lanes, count), emit


@intrinsic
def tile_add_product(context, total, a, b, element, lanes, rows, vectors):
    """total[r, v] += a[r] * b[v]: one step of a matrix product whose result is `rows` times `vectors` vectors.

    `a` and `b` are the addresses of `rows` elements and of `vectors` whole vectors.
    """
    vector, size = total.dtype, _bits(element.dtype) // 8
    count_rows, count_vectors = rows.literal_value, vectors.literal_value

    def emit(ctx, builder, signature, arguments):
        def at(address, offset):
            return builder.add(address, ir.Constant(ir.IntType(64), offset))

        right = [_load(builder, at(arguments[2], part * size * vector.lanes), vector) for part in range(count_vectors)]
        sums = cgutils.unpack_tuple(builder, arguments[0], count_rows * count_vectors)
        results = []
        for row in range(count_rows):
            pointer = builder.inttoptr(at(arguments[1], row * size), ir.PointerType(_llvm_element(vector.element)))
            left = _splat(builder, builder.load(pointer, align=size), vector.lanes)
            for part in range(count_vectors):
                old = sums[row * count_vectors + part]
                results.append(_call(builder, f"llvm.fmuladd.{vector.suffix}", vector.llvm, [left, right[part], old]))
        return ctx.make_tuple(builder, total, results)

    return total(total, a, b, element, lanes, rows, vectors), emit


@intrinsic
def tile_store(context, total, address, bytes_between, rows, vectors):
    """The rows of a tile, `bytes_between` apart."""
    emit = _tile_storing(total, vectors, lambda builder, place, value: value)
    return types.void(total, address, bytes_between, rows, vectors), emit


@intrinsic
def tile_add_to(context, total, address, bytes_between, rows, vectors):
    """As `tile_store`, but added to what is there."""
    emit = _tile_storing(
        total, vectors, lambda builder, place, value: builder.fadd(_load(builder, place, total.dtype), value)
    )
    return types.void(total, address, bytes_between, rows, vectors), emit


def _tile_storing(total, vectors, combined):
    """What stores a tile, `vectors` to a row, each vector as `combined(builder, place, vector)` makes it."""
    vector = total.dtype
    align = _bits(vector.element) // 8

    def emit(ctx, builder, signature, arguments):
        for number, value in enumerate(cgutils.unpack_tuple(builder, arguments[0], total.count)):
            row, part = divmod(number, vectors.literal_value)
            start = builder.add(arguments[1], builder.mul(arguments[2], ir.Constant(ir.IntType(64), row)))
            place = builder.add(start, ir.Constant(ir.IntType(64), part * align * vector.lanes))
            pointer = builder.inttoptr(place, ir.PointerType(vector.llvm))
            builder.store(combined(builder, place, value), pointer, align=align)
        return ctx.get_dummy_value()

    return emit


@intrinsic
def load_like(context, address, like):
    """Neighbouring elements from any address, as many and of the type of `like`."""
    return like(address, like), lambda ctx, builder, signature, arguments: _load(builder, arguments[0], like)


@intrinsic
def first_lanes(context, count, like):
    """A mask of the lanes of `like` whose number is below `count`."""
    result = _mask_of(like)

    def emit(ctx, builder, signature, arguments):
        narrow = builder.trunc(arguments[0], _I32) if count.bitwidth > 32 else arguments[0]
        numbers = ir.Constant(ir.VectorType(_I32, like.lanes), list(range(like.lanes)))
        return builder.icmp_signed("<", numbers, _splat(builder, narrow, like.lanes))

    return result(count, like), emit


@intrinsic
def reinterpret(context, x, element):
    """The same bits as elements of another type of equal width."""
    result = x.of(element.dtype)
    return result(x, element), lambda ctx, builder, signature, arguments: builder.bitcast(arguments[0], result.llvm)


@intrinsic
def tile_interleave(context, address, places, like, step):
    """`step` vectors (1, 2, 4 or 8) whose lanes alternate: element e is lane e // step of vector e % step.

    Vector v, typed as `like`, lies `places[v]` bytes behind `address`; `places` is the address of int64 numbers.
    """
    result = types.UniTuple(like, step.literal_value)

    def emit(ctx, builder, signature, arguments):
        table = builder.inttoptr(arguments[1], ir.PointerType(ir.IntType(64)))
        offsets = [builder.load(builder.gep(table, [ir.Constant(_I32, part)])) for part in range(result.count)]
        vectors = [_load(builder, builder.add(arguments[0], offset), like) for offset in offsets]
        return ctx.make_tuple(builder, result, _alternated(builder, vectors))

    return result(address, places, like, step), emit


def _alternated(builder, vectors):
    """The same number of vectors, a power of two, whose lanes alternate."""
    groups = [vectors]
    while len(groups[0]) > 1:
        half = len(groups[0]) // 2
        groups = [
            [
                _interleave_half(builder, *pair, pair[0].type.count, high)
                for pair in zip(each[:half], each[half:], strict=True)
            ]
            for each in groups
            for high in (0, 1)
        ]
    return [each[0] for each in groups]


@intrinsic
def tile_alternate(context, total, step):
    """Vectors of `step` rows of a tile, one of each at a time, as vectors whose lanes alternate: 1, 2, 4 or 8 rows."""
    rows = step.literal_value
    wide = total.count // rows

    def emit(ctx, builder, signature, arguments):
        values = cgutils.unpack_tuple(builder, arguments[0], total.count)
        mixed = [each for column in range(wide) for each in _alternated(builder, values[column::wide])]
        return ctx.make_tuple(builder, total, mixed)

    return total(total, step), emit


def _interleave_half(builder, x, y, lanes, high):
    """Lanes of x and y in turn, the first or the second half of them all."""
    places = range(high * lanes, (high + 1) * lanes)
    return builder.shuffle_vector(x, y, _indices([place % 2 * lanes + place // 2 for place in places]))


@intrinsic
def tile_add(context, total, value):
    """The vector `value` added to every vector of a tile."""

    def emit(ctx, builder, signature, arguments):
        values = cgutils.unpack_tuple(builder, arguments[0], total.count)
        return ctx.make_tuple(builder, total, [builder.fadd(each, arguments[1]) for each in values])

    return total(total, value), emit


@intrinsic
def tile_store_first(context, total, address, count):
    """The first `count` elements of a tile, vector after vector; other memory is not touched."""
    vector = total.dtype
    size = _bits(vector.element) // 8 * vector.lanes

    def emit(ctx, builder, signature, arguments):
        values = cgutils.unpack_tuple(builder, arguments[0], total.count)
        align = ir.Constant(_I32, _bits(vector.element) // 8)
        lanes = ir.Constant(ir.VectorType(ir.IntType(64), vector.lanes), list(range(vector.lanes)))
        for part, value in enumerate(values):
            left = builder.sub(arguments[2], ir.Constant(ir.IntType(64), part * vector.lanes))
            mask = builder.icmp_signed("<", lanes, _splat(builder, left, vector.lanes))
            place = builder.add(arguments[1], ir.Constant(ir.IntType(64), part * size))
            pointer = builder.inttoptr(place, _BYTE_POINTER)
            _call(builder, f"llvm.masked.store.{vector.suffix}.p0", ir.VoidType(), [value, pointer, align, mask])
        return ctx.get_dummy_value()

    return types.void(total, address, count), emit


@intrinsic
def clear(context, address, size):
    """Zero `size` bytes by plain stores, which leave them in the cache; a library's memset may bypass it."""

    def emit(ctx, builder, signature, arguments):
        block = ir.VectorType(ir.IntType(8), 64)
        whole = builder.lshr(arguments[1], ir.Constant(ir.IntType(64), 6))
        with cgutils.for_range(builder, whole, intp=ir.IntType(64)) as loop:
            place = builder.add(arguments[0], builder.shl(loop.index, ir.Constant(ir.IntType(64), 6)))
            builder.store(ir.Constant(block, [0] * 64), builder.inttoptr(place, ir.PointerType(block)), align=1)
        done = builder.shl(whole, ir.Constant(ir.IntType(64), 6))
        with cgutils.for_range(builder, builder.sub(arguments[1], done), intp=ir.IntType(64)) as loop:
            place = builder.add(arguments[0], builder.add(done, loop.index))
            builder.store(ir.Constant(ir.IntType(8), 0), builder.inttoptr(place, _BYTE_POINTER))
        return ctx.get_dummy_value()

    return types.void(address, size), emit


@intrinsic
def tile_load(context, address, bytes_between, element, lanes, count):
    """`count` whole vectors, `bytes_between` apart."""
    vector = Vector(element.dtype, lanes.literal_value)
    result = types.UniTuple(vector, count.literal_value)

    def emit(ctx, builder, signature, arguments):
        steps = (builder.mul(arguments[1], ir.Constant(ir.IntType(64), part)) for part in range(result.count))
        return ctx.make_tuple(builder, result, [_load(builder, builder.add(arguments[0], at), vector) for at in steps])

    return result(address, bytes_between, element, lanes, count), emit


@intrinsic
def tile_combine(context, total, terms, after, pattern):
    """Sums and differences along the middle axis of a tile of shape (any, `terms`, `after`).

    A pattern such as "0-2 1+2" lists the results: the first is element 0 of that axis less element 2.
    """
    vector, step = total.dtype, after.literal_value
    rows = [[("+" + row)[at : at + 2] for at in range(0, len(row) + 1, 2)] for row in pattern.literal_value.split()]
    blocks = range(0, total.count, terms.literal_value * step)
    result = types.UniTuple(vector, len(blocks) * len(rows) * step)

    def emit(ctx, builder, signature, arguments):
        values = cgutils.unpack_tuple(builder, arguments[0], total.count)
        sums = [
            _signed_sum(builder, row, values[block + place :: step])
            for block in blocks
            for row in rows
            for place in range(step)
        ]
        return ctx.make_tuple(builder, result, sums)

    return result(total, terms, after, pattern), emit


def _signed_sum(builder, row, values):
    result = values[int(row[0][1])]
    for sign, digit in row[1:]:
        result = (builder.fadd if sign == "+" else builder.fsub)(result, values[int(digit)])
    return result


@intrinsic
def tile_load_every(context, address, element, lanes, step):
    """`step` vectors, 2 or 3: the k-th holds every `step`-th element from the k-th on. Reads all of them, no more."""
    vector = Vector(element.dtype, lanes.literal_value)
    result = types.UniTuple(vector, step.literal_value)
    count, size = vector.lanes, _bits(vector.element) // 8 * vector.lanes

    def emit(ctx, builder, signature, arguments):
        places = (builder.add(arguments[0], ir.Constant(ir.IntType(64), size * part)) for part in range(result.count))
        parts = [_load(builder, place, vector) for place in places]
        starts = range(result.count)
        sources = [[divmod(lane * result.count + start, count) for lane in range(count)] for start in starts]
        return ctx.make_tuple(builder, result, [_pick(builder, parts, each) for each in sources])

    return result(address, element, lanes, step), emit


@intrinsic
def tile_store_every(context, total, address, bytes_between, step):
    """The inverse of `tile_load_every` for every `step` vectors of a tile: their lanes alternate in memory.

    What is stored for `step` vectors is `bytes_between` apart from the next.
    """
    vector, apart = total.dtype, step.literal_value
    count, size = vector.lanes, _bits(vector.element) // 8 * vector.lanes

    def emit(ctx, builder, signature, arguments):
        values = cgutils.unpack_tuple(builder, arguments[0], total.count)
        for row in range(total.count // apart):
            start = builder.add(arguments[1], builder.mul(arguments[2], ir.Constant(ir.IntType(64), row)))
            for part in range(apart):
                sources = [divmod(part * count + lane, apart)[::-1] for lane in range(count)]
                mixed = _pick(builder, values[row * apart : (row + 1) * apart], sources)
                place = builder.add(start, ir.Constant(ir.IntType(64), part * size))
                pointer = builder.inttoptr(place, ir.PointerType(vector.llvm))
                builder.store(mixed, pointer, align=_bits(vector.element) // 8)
        return ctx.get_dummy_value()

    return types.void(total, address, bytes_between, step), emit


def _pick(builder, vectors, sources):
    """The vector whose lanes are the (vector, lane) pairs of `sources`; two vectors at least."""
    lanes = len(sources)
    first = [min(which, 1) * lanes + lane for which, lane in sources]
    result = builder.shuffle_vector(vectors[0], vectors[1], _indices(first))
    for number in range(2, len(vectors)):
        indices = [lanes + lane if which == number else at for at, (which, lane) in enumerate(sources)]
        result = builder.shuffle_vector(result, vectors[number], _indices(indices))
    return result


@intrinsic
def store_past_cache(context, address, value):
    """All lanes to a multiple of their bytes, 64 suffice, without reading or keeping the lines of memory.

    Other threads are sure to see them after a `fence`.
    """

    def emit(ctx, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], ir.PointerType(value.llvm))
        stored = builder.store(arguments[1], pointer, align=min(64, _bits(value.element) // 8 * value.lanes))
        stored.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(_I32, 1)]))
        return ctx.get_dummy_value()

    return types.void(address, value), emit


@intrinsic
def fence(context):
    """Everything that was written before is seen by others before anything that is written later."""

    def emit(ctx, builder, signature, arguments):
        builder.fence("seq_cst")
        return ctx.get_dummy_value()

    return types.void(), emit


@intrinsic
def count_set(context, mask):
    """How many lanes of a mask are set, as int64."""

    def emit(ctx, builder, signature, arguments):
        bits = builder.bitcast(arguments[0], ir.IntType(mask.lanes))
        return builder.zext(builder.ctpop(bits), ir.IntType(64)) if mask.lanes < 64 else builder.ctpop(bits)

    return types.int64(mask), emit


@intrinsic
def load_taps(context, address, element, lanes, step):
    """A tuple of `step` vectors, step 1, 2 or 4: the t-th holds element t of each of `lanes` neighbouring tiles."""
    vector = Vector(element.dtype, lanes.literal_value)
    size, count = _bits(vector.element) // 8 * vector.lanes, step.literal_value

    def part(builder, parts):
        if len(parts) == 1:
            return parts
        halves = []
        for half in (0, 1):
            order = _indices(range(half, 2 * vector.lanes, 2))
            pairs = zip(parts[::2], parts[1::2], strict=True)
            halves.append(part(builder, [builder.shuffle_vector(x, y, order) for x, y in pairs]))
        return [each for both in zip(*halves, strict=True) for each in both]

    def emit(ctx, builder, signature, arguments):
        places = (builder.add(arguments[0], ir.Constant(ir.IntType(64), size * number)) for number in range(count))
        taps = part(builder, [_load(builder, place, vector) for place in places])
        return ctx.make_tuple(builder, signature.return_type, taps)

    return types.UniTuple(vector, count)(address, element, lanes, step), emit


@intrinsic
def unordered(context, x, y):
    """Lanes in which x or y is NaN; none for integers."""

    def emit(ctx, builder, signature, arguments):
        if _is_float(x):
            return builder.fcmp_unordered("uno", *arguments)
        return ir.Constant(_mask_of(x).llvm, [0] * x.lanes)

    return _mask_of(x)(x, y), emit


@intrinsic
def tile_repeat(context, value, count):
    """A tuple of `count` times the same vector."""
    result = types.UniTuple(value, count.literal_value)
    return result(value, count), lambda ctx, builder, signature, arguments: ctx.make_tuple(
        builder, result, [arguments[0]] * result.count
    )


def _part_of_row(builder, arguments, offset, fill, kind, is_whole):
    """Elements from so many behind the first on, in the type of `fill`; `arguments` are those of `load_window`."""
    base, first, row, other = arguments[:4]
    width, shift = _bits(kind.element) // 8, _bits(fill.element) - _bits(kind.element)

    def widened(value):
        if not shift:
            return value
        bits = fill.of(getattr(types, f"int{_bits(fill.element)}")).llvm
        upper = builder.shl(builder.zext(value, bits), ir.Constant(bits, [shift] * fill.lanes))
        return builder.bitcast(upper, fill.llvm)

    place = builder.add(base, ir.Constant(ir.IntType(64), offset * width))
    if is_whole:
        return widened(_load(builder, place, kind))
    position = builder.add(builder.trunc(first, _I32), ir.Constant(_I32, offset))
    inside = builder.icmp_unsigned(
        "<",
        builder.add(_indices(range(fill.lanes)), _splat(builder, position, fill.lanes)),
        _splat(builder, builder.trunc(row, _I32), fill.lanes),
    )
    pointer, align = builder.inttoptr(place, _BYTE_POINTER), ir.Constant(_I32, width)
    unread = ir.Constant(kind.llvm, [0] * kind.lanes) if shift else other
    value = _call(builder, f"llvm.masked.load.{kind.suffix}.p0", kind.llvm, [pointer, align, inside, unread])
    return builder.select(inside, widened(value), other) if shift else value


@intrinsic
def load_window(context, address, start, size, fill, element, taps, step, is_whole):
    """A tuple of `taps` vectors of neighbouring windows, `step` 1 or 2 elements apart: the t-th holds tap t of each.

    The first window begins at `address`, which is position `start` of a row of `size` elements; what is beside the row
    is taken from `fill`, and not touched. With `is_whole` all windows are inside: for step 2 as many
    whole loads are made as hold them, one after the other. Elements shorter than those of `fill` are their upper bits.
    """
    result, apart, kind = types.UniTuple(fill, taps.literal_value), step.literal_value, fill.of(element.dtype)

    def emit(ctx, builder, signature, arguments):
        def part(offset):
            return _part_of_row(builder, arguments, offset, fill, kind, is_whole.literal_value)

        if apart == 1:
            return ctx.make_tuple(builder, result, [part(tap) for tap in range(result.count)])
        parts = [part(offset) for offset in range(0, result.count - 1 + (fill.lanes - 1) * 2 + 1, fill.lanes)]
        parts += parts[-1:] * (len(parts) % 2)
        every = [
            [builder.shuffle_vector(x, y, _indices(range(odd, 2 * fill.lanes, 2))) for odd in (0, 1)]
            for x, y in zip(parts[::2], parts[1::2], strict=True)
        ]
        found = every[0][: result.count]
        for tap in range(2, result.count):
            number, lane = divmod(tap // 2, fill.lanes)
            near, far = every[number][tap % 2], every[min(number + 1, len(every) - 1)][tap % 2]
            found.append(builder.shuffle_vector(near, far, _indices(range(lane, lane + fill.lanes))))
        return ctx.make_tuple(builder, result, found)

    return result(address, start, size, fill, element, taps, step, is_whole), emit


@intrinsic
def load_parts(context, address, start, size, fill, element, count, is_whole):
    """A tuple of `count` vectors, one behind the other in memory; all else is as for `load_window`."""
    result, kind = types.UniTuple(fill, count.literal_value), fill.of(element.dtype)

    def emit(ctx, builder, signature, arguments):
        offsets = range(0, result.count * fill.lanes, fill.lanes)
        parts = [_part_of_row(builder, arguments, at, fill, kind, is_whole.literal_value) for at in offsets]
        return ctx.make_tuple(builder, result, parts)

    return result(address, start, size, fill, element, count, is_whole), emit


@intrinsic
def tile_columns(context, start, lanes, count, step, apart):
    """A tuple of `count` int32 vectors: lane i of the v-th is start + v * apart + i * step, or 0 where that is less."""
    vector = Vector(types.int32, lanes.literal_value)
    result = types.UniTuple(vector, count.literal_value)

    def emit(ctx, builder, signature, arguments):
        zero = ir.Constant(vector.llvm, [0] * vector.lanes)
        first = _splat(builder, builder.trunc(arguments[0], _I32), vector.lanes)
        columns = []
        for number in range(result.count):
            begin = number * apart.literal_value
            column = builder.add(first, _indices([begin + lane * step.literal_value for lane in range(vector.lanes)]))
            columns.append(builder.select(builder.icmp_signed(">", column, zero), column, zero))
        return ctx.make_tuple(builder, result, columns)

    return result(types.int64, lanes, count, step, apart), emit


IGNORED, FIRST, LAST = 0, 1, 2
"""Which NaN is a maximum: none, because there is none, or the first or the last of several."""


@intrinsic
def first_largest(context, values, places, nan):
    """The first of the largest vectors of a tile, lane by lane, and its place; `nan` says which NaN is larger than all.

    With IGNORED a NaN is never larger, but stays what it is where it comes first.
    """
    result = types.Tuple((values.dtype, places.dtype))

    def emit(ctx, builder, signature, arguments):
        tiles = (cgutils.unpack_tuple(builder, each, values.count) for each in arguments[:2])
        pairs = list(zip(*tiles, strict=True))
        return ctx.make_tuple(builder, result, _first_largest(builder, values.dtype, pairs, nan.literal_value))

    return result(values, places, nan), emit


@intrinsic
def is_larger(context, x, y, nan):
    """Lanes of x that take the place of y in a running maximum; see `first_largest`."""

    def emit(ctx, builder, signature, arguments):
        return _is_larger(builder, x, *arguments[:2], nan.literal_value)

    return _mask_of(x)(x, y, nan), emit


def _is_larger(builder, kind, value, best, nan):
    if nan == IGNORED or not _is_float(kind):
        return _comparison(">")(builder, kind, value, best)
    if nan == FIRST:
        return builder.and_(builder.fcmp_unordered(">", value, best), builder.fcmp_ordered("ord", best, best))
    return builder.or_(builder.fcmp_ordered(">", value, best), builder.fcmp_unordered("uno", value, value))


def _first_largest(builder, kind, pairs, nan):
    best, at = pairs[0]
    for value, place in pairs[1:]:
        wins = _is_larger(builder, kind, value, best, nan)
        best, at = builder.select(wins, value, best), builder.select(wins, place, at)
    return best, at


@intrinsic
def slide_largest(context, values, places, taps, nan):
    """As `first_largest` of `taps` neighbours, from each lane of the first of vectors that follow each other.

    The distance that is covered doubles with every step, so there are about log2(taps) of them.
    """
    kind, size = values.dtype, taps.literal_value
    result = types.Tuple((kind, places.dtype))

    def emit(ctx, builder, signature, arguments):
        pairs = list(zip(*(cgutils.unpack_tuple(builder, each, values.count) for each in arguments[:2]), strict=True))
        covered = 1
        for distance in _doubling(size):
            covered += distance
            needed = 1 - (covered - size) // kind.lanes
            moved = [_moved(builder, pairs, number, distance, kind.lanes) for number in range(needed)]
            both = zip(pairs[:needed], moved, strict=True)
            pairs = [_first_largest(builder, kind, each, nan.literal_value) for each in both]
        return ctx.make_tuple(builder, result, pairs[0])

    return result(values, places, taps, nan), emit


def _doubling(size):
    """Distances at which a run of 1, 2, 4, ... is put to itself, so that it covers `size` at last."""
    covered = 1
    while covered < size:
        distance = min(covered, size - covered)
        yield distance
        covered += distance


def _moved(builder, pairs, number, distance, lanes):
    """Vector `number` of several in a row, a distance further on; behind the last one lanes hold anything."""
    whole, rest = divmod(distance, lanes)
    near, far = (pairs[min(number + whole + more, len(pairs) - 1)] for more in (0, 1))
    order = _indices(range(rest, rest + lanes))
    return tuple(builder.shuffle_vector(x, y, order) for x, y in zip(near, far, strict=True))


@intrinsic
def tile_roll(context, bests, places, best, place, depth, step, nan):
    """Push a vector and its place to two queues; also the first largest of the last `depth` pushed, and its place.

    With step 1 the queues hold results of 1, 2, 4, ... pushed vectors, so that few are left to compare; with step 2,
    where only every second result is asked for, they hold the pushed vectors themselves. For `nan` see `first_largest`.
    """
    result = types.Tuple((bests, places, best, place))
    count, size, which = bests.count, depth.literal_value, nan.literal_value

    def emit(ctx, builder, signature, arguments):
        queue = list(zip(*(cgutils.unpack_tuple(builder, each, count) for each in arguments[:2]), strict=True))
        pushed = found = (arguments[2], arguments[3])
        if step.literal_value == 1:
            after = []
            for distance in _doubling(size):
                oldest, *rest = queue[len(after) : len(after) + distance]
                after += [*rest, found]
                found = _first_largest(builder, best, [oldest, found], which)
            queue = after or queue
        elif size > 1:
            found, queue = _first_largest(builder, best, [*queue, pushed], which), [*queue[1:], pushed]
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
        found = ir.Constant(_mask_of(kind).llvm, [0] * kind.lanes)
        for tap in read:
            size = _call(builder, f"llvm.fabs.{kind.suffix}", kind.llvm, [values[tap]])
            found = builder.or_(found, builder.fcmp_unordered(">", size, arguments[2]))
        return found

    return _mask_of(kind)(taps, step, limit), emit


def _marked(builder, kind, value, limit):
    bits = kind.of(types.int32).llvm
    upper = builder.lshr(builder.bitcast(value, bits), ir.Constant(bits, [16] * kind.lanes))
    nan = builder.bitcast(builder.or_(upper, ir.Constant(bits, [_QUIET_NAN] * kind.lanes)), kind.llvm)
    size = _call(builder, f"llvm.fabs.{kind.suffix}", kind.llvm, [value])
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

    Those that `load_window` gave for a step are not read where others cover them; step 0 stands for any vectors.
    """
    kind, read = taps.dtype, _uncovered(taps, step.literal_value)

    def emit(ctx, builder, signature, arguments):
        values = cgutils.unpack_tuple(builder, arguments[0], taps.count)
        parts = [values[tap] for tap in read]
        found = ir.Constant(_mask_of(kind).llvm, [0] * kind.lanes)
        for x, y in zip(parts[::2], parts[1::2] + parts[-1:] * (len(parts) % 2), strict=True):
            found = builder.or_(found, builder.fcmp_unordered("uno", x, y))
        return found

    return _mask_of(kind)(taps, step), emit


@intrinsic
def int64_at(context, address):
    """The int64 at an address."""
    return types.int64(address), lambda ctx, builder, signature, arguments: _number(builder, arguments[0], 0)


@intrinsic
def keep_terms(context, like, terms, bounds, a, lists, count):
    """What `tile_sum_terms` keeps in registers: of each list the number of terms, and the first `count` of them.

    As many entries of `terms` are read behind each list, and `a` at what they say.

    Returns:
        Per list its number of terms; per kept term a[i] in all lanes, and j.
    """
    rows, each = lists.literal_value, count.literal_value
    whole = types.int64
    result = types.Tuple(
        (types.UniTuple(whole, rows), types.UniTuple(like, rows * each), types.UniTuple(whole, rows * each))
    )

    def emit(ctx, builder, signature, arguments):
        edges = [_number(builder, arguments[2], row) for row in range(rows + 1)]
        sizes = [builder.sub(high, low) for low, high in pairwise(edges)]
        kept = [
            _term(builder, arguments[1], builder.add(low, _I64(term)), arguments[3], like)
            for low in edges[:-1]
            for term in range(each)
        ]
        factors, places = zip(*kept, strict=True) if kept else ((), ())
        parts = [
            ctx.make_tuple(builder, kind, found) for kind, found in zip(result, (sizes, factors, places), strict=True)
        ]
        return ctx.make_tuple(builder, result, parts)

    return result(like, terms, bounds, a, lists, count), emit


@intrinsic
def tile_sum_terms(context, start, kept, terms, bounds, a, b, vectors):
    """Rows of `vectors` vectors, one per list of terms: each is `start` plus a[i] * b[j] over its terms (i, j).

    All but `start` and `kept` are addresses: `terms` of pairs of int64, i and j, in bytes behind the element `a` and
    the whole vectors `b`; `bounds` of int64 as well, row r has the terms [bounds[r], bounds[r + 1]). `kept` is what
    `keep_terms` gave for them.
    """
    lists, width = kept[0].count, vectors.literal_value
    count, size = kept[1].count // lists, _bits(start.element) // 8 * start.lanes
    result = types.UniTuple(start, lists * width)

    def added(builder, totals, factor, place):
        parts = [builder.add(place, _I64(part * size)) for part in range(width)]
        return [
            _call(builder, f"llvm.fmuladd.{start.suffix}", start.llvm, [factor, _load(builder, part, start), total])
            for part, total in zip(parts, totals, strict=True)
        ]

    def others(builder, totals, row, arguments, after):
        """All terms behind the kept ones, in a loop."""
        low, high = (_number(builder, arguments[3], row + end) for end in (0, 1))
        first = [builder.add(low, _I64(count)), *totals]
        before, body = builder.block, builder.append_basic_block("others")
        builder.branch(body)
        builder.position_at_end(body)
        term, *sums = (builder.phi(kind) for kind in (_I64, *[start.llvm] * width))
        factor, place = _term(builder, arguments[2], term, arguments[4], start)
        following = [builder.add(term, _I64(1)), *added(builder, sums, factor, builder.add(arguments[5], place))]
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
                builder.cbranch(builder.icmp_signed(">", sizes[row], _I64(number)), more, after)
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

    return result(start, kept, terms, bounds, a, b, vectors), emit


def _number(builder, address, place):
    """The int64 at a place of an array of them."""
    place = _I64(place) if isinstance(place, int) else place
    return builder.load(builder.gep(builder.inttoptr(address, ir.PointerType(_I64)), [place]))


def _term(builder, terms, term, a, like):
    """Term number `term` of `terms`: a[i] in all lanes, and j."""
    first = builder.shl(term, _I64(1))
    left = builder.add(a, _number(builder, terms, first))
    scalar = builder.load(
        builder.inttoptr(left, ir.PointerType(_llvm_element(like.element))), align=_bits(like.element) // 8
    )
    return _splat(builder, scalar, like.lanes), _number(builder, terms, builder.add(first, _I64(1)))


@intrinsic
def tile_activate(context, total, zero, slope, low, high):
    """A tile, times a slope where it is below 0, then not below nor above two bounds; NaN stays NaN."""

    def emit(ctx, builder, signature, arguments):
        none, factor, least, most = arguments[1:]
        values = []
        for each in cgutils.unpack_tuple(builder, arguments[0], total.count):
            value = builder.select(builder.fcmp_ordered("<", each, none), builder.fmul(each, factor), each)
            value = builder.select(builder.fcmp_ordered("<", value, least), least, value)
            values.append(builder.select(builder.fcmp_ordered(">", value, most), most, value))
        return ctx.make_tuple(builder, total, values)

    return total(total, zero, slope, low, high), emit


@intrinsic
def total_of(context, total, x):
    """Sums of floats, which are NaN if one of them is (or if infinities of both signs are); of integers nothing."""

    def emit(ctx, builder, signature, arguments):
        return builder.fadd(*arguments) if _is_float(x) else arguments[0]

    return total(total, x), emit
