"""The type of a vector, Python's operators on it, and the decorator and LLVM instructions of all operations."""

import inspect
import operator
from functools import partial, update_wrapper

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

I32, I64 = ir.IntType(32), ir.IntType(64)


class Vector(types.Type):
    """`lanes` elements of a Numba number type; of booleans, a mask."""

    def __init__(self, element, lanes):
        self.element = element
        self.lanes = lanes
        self.is_float = isinstance(element, types.Float)
        self.bits = 1 if isinstance(element, types.Boolean) else element.bitwidth  # of an element
        self.itemsize = max(1, self.bits // 8)  # bytes of an element
        self.nbytes = self.itemsize * lanes
        super().__init__(name=f"Vector({element}, {lanes})")

    @property
    def llvm_element(self):
        """The LLVM type of an element."""
        if self.is_float:
            return ir.FloatType() if self.bits == 32 else ir.DoubleType()
        return ir.IntType(self.bits)

    @property
    def llvm(self):
        """The LLVM type."""
        return ir.VectorType(self.llvm_element, self.lanes)

    @property
    def suffix(self):
        """The name in LLVM's intrinsics, such as v16f32."""
        return f"v{self.lanes}{'f' if self.is_float else 'i'}{self.bits}"

    def of(self, element):
        """The same number of lanes of another element type."""
        return Vector(element, self.lanes)

    @property
    def mask(self):
        """The type of the masks for such vectors."""
        return self.of(types.boolean)

    @property
    def integers(self):
        """Signed integers of the same width."""
        return self.of(getattr(types, f"int{self.bits}"))

    def constant(self, number):
        """The same number in every lane."""
        return ir.Constant(self.llvm, [number] * self.lanes)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, kind.llvm)


def vector_of(element, lanes):
    """The type of vectors, from the types of an operation's arguments."""
    return Vector(element.dtype, lanes.literal_value)


def tile_of(vector, count):
    """The type of tuples of vectors, from the type of an operation's argument."""
    return types.UniTuple(vector, count.literal_value)


def operation(choose):
    """Decorates an operation: from the types of its arguments, the type of its result, and emit(builder, *values).

    That takes and returns LLVM values, a list of them for a tuple; for types.void its result does not matter.
    """

    def typed(context, *args):
        result, emit = choose(*args)

        def lower(ctx, builder, signature, values):
            unpacked = (_unpack(builder, kind, value) for kind, value in zip(args, values, strict=True))
            return _pack(ctx, builder, result, emit(builder, *unpacked))

        return result(*args), lower

    update_wrapper(typed, choose)
    signature = inspect.signature(choose)
    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    typed.__signature__ = signature.replace(parameters=[context, *signature.parameters.values()])
    return intrinsic(prefer_literal=True)(typed)


def _unpack(builder, kind, value):
    if not isinstance(kind, types.BaseTuple):
        return value
    parts = cgutils.unpack_tuple(builder, value, len(kind))
    return [_unpack(builder, *part) for part in zip(kind, parts, strict=True)]


def _pack(context, builder, kind, value):
    if kind == types.void:
        return context.get_dummy_value()
    if not isinstance(kind, types.BaseTuple):
        return value
    return context.make_tuple(builder, kind, [_pack(context, builder, *part) for part in zip(kind, value, strict=True)])


def call_llvm(builder, name, result, arguments):
    """A call of one of LLVM's own functions."""
    signature = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, name), arguments)


def pointer_to(builder, address, target):
    """A pointer to an LLVM type."""
    return builder.inttoptr(address, ir.PointerType(target))


def byte_pointer(builder, address):
    """A pointer to bytes."""
    return pointer_to(builder, address, ir.IntType(8))


def emit_splat(builder, scalar, lanes):
    """The same scalar in every lane."""
    undefined = ir.Constant(ir.VectorType(scalar.type, lanes), ir.Undefined)
    first = builder.insert_element(undefined, scalar, I32(0))
    return builder.shuffle_vector(first, undefined, lane_numbers([0] * lanes))


def lane_numbers(numbers):
    """A constant vector of int32, such as `shuffle_vector` takes."""
    return ir.Constant(ir.VectorType(I32, len(numbers)), list(numbers))


def emit_load(builder, address, kind):
    """A whole vector from an address that is aligned to its elements."""
    return builder.load(pointer_to(builder, address, kind.llvm), align=kind.itemsize)


def emit_load_parts(builder, address, kind, count):
    """Vectors that follow each other in memory."""
    places = [builder.add(address, I64(part * kind.nbytes)) for part in range(count)]
    return [emit_load(builder, place, kind) for place in places]


def emit_load_scalar(builder, address, kind):
    """An element, in all lanes of a vector."""
    scalar = builder.load(pointer_to(builder, address, kind.llvm_element), align=kind.itemsize)
    return emit_splat(builder, scalar, kind.lanes)


def emit_multiply_add(builder, kind, x, y, total):
    """X * y + total, rounded once where the processor can."""
    return call_llvm(builder, f"llvm.fmuladd.{kind.suffix}", kind.llvm, [x, y, total])


def emit_store(builder, value, address, kind):
    """A whole vector to an address that is aligned to its elements."""
    builder.store(value, pointer_to(builder, address, kind.llvm), align=kind.itemsize)


def emit_load_masked(builder, address, mask, fill, kind):
    """Lanes of `fill`, replaced by memory where the mask is set."""
    arguments = [byte_pointer(builder, address), I32(kind.itemsize), mask, fill]
    return call_llvm(builder, f"llvm.masked.load.{kind.suffix}.p0", kind.llvm, arguments)


def emit_store_masked(builder, value, address, mask, kind):
    """The lanes where the mask is set."""
    arguments = [value, byte_pointer(builder, address), I32(kind.itemsize), mask]
    call_llvm(builder, f"llvm.masked.store.{kind.suffix}.p0", ir.VoidType(), arguments)


def row_address(builder, address, bytes_between, row):
    """The address of a row, given the bytes between rows."""
    return builder.add(address, builder.mul(bytes_between, I64(row)))


def concatenate(builder, parts):
    """Vectors of equal width, one after the other, as one; their number is a power of two."""
    while len(parts) > 1:
        lanes = lane_numbers(range(2 * parts[0].type.count))
        parts = [builder.shuffle_vector(x, y, lanes) for x, y in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def deinterleave(builder, parts):
    """As many vectors as `parts`, which follow each other in memory: the k-th has their elements k, k + count, ...

    A power of two is halved, so that every step is one shuffle of two vectors.
    """
    count, lanes = len(parts), parts[0].type.count
    if count == 1:
        return parts
    if count % 2:
        orders = [[divmod(lane * count + first, lanes) for lane in range(lanes)] for first in range(count)]
        return [pick(builder, parts, order) for order in orders]
    halves = []
    for half in (0, 1):
        order = lane_numbers(range(half, 2 * lanes, 2))
        pairs = zip(parts[::2], parts[1::2], strict=True)
        halves.append(deinterleave(builder, [builder.shuffle_vector(x, y, order) for x, y in pairs]))
    return [vector for both in zip(*halves, strict=True) for vector in both]


def pick(builder, vectors, sources):
    """The vector whose lanes are the (vector, lane) pairs of `sources`; two vectors at least."""
    lanes = len(sources)
    first = [min(which, 1) * lanes + lane for which, lane in sources]
    result = builder.shuffle_vector(vectors[0], vectors[1], lane_numbers(first))
    for number in range(2, len(vectors)):
        indices = [lanes + lane if which == number else at for at, (which, lane) in enumerate(sources)]
        result = builder.shuffle_vector(result, vectors[number], lane_numbers(indices))
    return result


def emit_comparison(sign, kind, builder, x, y):
    """Lanes where a comparison holds: NaN is not equal to anything, nor larger or smaller."""
    if kind.is_float:
        return builder.fcmp_unordered(sign, x, y) if sign == "!=" else builder.fcmp_ordered(sign, x, y)
    if isinstance(kind.element, types.Integer) and not kind.element.signed:
        return builder.icmp_unsigned(sign, x, y)
    return builder.icmp_signed(sign, x, y)


def _define(symbol, emit, *, is_comparison):
    @type_callable(symbol)
    def typer(context):
        def resolve(x, y):
            return (x.mask if is_comparison else x) if isinstance(x, Vector) and x == y else None

        return resolve

    @lower_builtin(symbol, Vector, Vector)
    def lower(context, builder, signature, arguments):
        return emit(signature.args[0], builder, *arguments)


def _emit_arithmetic(integer, floating, kind, builder, x, y):
    return getattr(builder, floating if kind.is_float else integer)(x, y)


for _symbol, _integer, _floating in (
    (operator.add, "add", "fadd"), (operator.sub, "sub", "fsub"), (operator.mul, "mul", "fmul"),
    (operator.truediv, "", "fdiv"),
    (operator.and_, "and_", ""), (operator.or_, "or_", ""),
    (operator.rshift, "ashr", ""), (operator.lshift, "shl", ""),
):  # fmt: skip
    _define(_symbol, partial(_emit_arithmetic, _integer, _floating), is_comparison=False)

for _symbol, _sign in (
    (operator.gt, ">"), (operator.lt, "<"), (operator.ge, ">="), (operator.eq, "=="), (operator.ne, "!="),
):  # fmt: skip
    _define(_symbol, partial(emit_comparison, _sign), is_comparison=True)


type_callable(operator.invert)(lambda context: lambda x: x if isinstance(x, Vector) else None)
lower_builtin(operator.invert, Vector)(lambda context, builder, signature, arguments: builder.not_(arguments[0]))
