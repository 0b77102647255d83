"""The type of a vector, Python's operators on it, and LLVM instructions that several operations share."""

import operator

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _intrinsic
from numba.extending import lower_builtin, models, register_model, type_callable

I1, I32, I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)

BYTE_POINTER = ir.PointerType(ir.IntType(8))

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
        return ir.VectorType(llvm_element(self.element), self.lanes)

    @property
    def suffix(self):
        """The name in LLVM's intrinsics, such as v16f32."""
        kind = "f" if isinstance(self.element, types.Float) else "i"
        return f"v{self.lanes}{kind}{bits_of(self.element)}"

    def of(self, element):
        """The same number of lanes of another element type."""
        return Vector(element, self.lanes)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, kind.llvm)


def bits_of(element):
    """Bits of a Numba number type."""
    return 1 if isinstance(element, types.Boolean) else element.bitwidth


def llvm_element(element):
    """The LLVM type of a Numba number type."""
    if isinstance(element, types.Float):
        return ir.FloatType() if element.bitwidth == 32 else ir.DoubleType()
    return ir.IntType(bits_of(element))


def is_float(kind):
    """True if the elements of a vector are floats."""
    return isinstance(kind.element, types.Float)


def call_llvm(builder, name, result, arguments):
    """A call of one of LLVM's own functions."""
    signature = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, name), arguments)


def emit_splat(builder, scalar, lanes):
    """The same scalar in every lane."""
    undefined = ir.Constant(ir.VectorType(scalar.type, lanes), ir.Undefined)
    first = builder.insert_element(undefined, scalar, I32(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(I32, lanes), [0] * lanes))


def lane_numbers(numbers):
    """A constant vector of int32, such as `shuffle_vector` takes."""
    return ir.Constant(ir.VectorType(I32, len(numbers)), list(numbers))


def emit_load(builder, address, kind):
    """A whole vector from an address that is aligned to its elements."""
    pointer = builder.inttoptr(address, ir.PointerType(kind.llvm))
    return builder.load(pointer, align=bits_of(kind.element) // 8)


def row_address(builder, address, bytes_between, row):
    """The address of a row, given the bytes between rows."""
    return builder.add(address, builder.mul(bytes_between, I64(row)))


def concatenated(builder, parts):
    """Vectors of equal width, one after the other, as one; their number is a power of two."""
    while len(parts) > 1:
        lanes = lane_numbers(range(2 * parts[0].type.count))
        parts = [builder.shuffle_vector(x, y, lanes) for x, y in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def emit_gather(builder, address, bytes_between, mask, fill, kind):
    """Elements `bytes_between` apart; lanes without the mask are those of `fill`."""
    lane = ir.Constant(ir.VectorType(I64, kind.lanes), list(range(kind.lanes)))
    offsets = builder.mul(lane, emit_splat(builder, bytes_between, kind.lanes))
    return emit_gather_at(builder, builder.add(emit_splat(builder, address, kind.lanes), offsets), mask, fill, kind)


def emit_gather_at(builder, places, mask, fill, kind):
    """Elements from an address for each lane; lanes without the mask are those of `fill`."""
    pointers = builder.inttoptr(places, ir.VectorType(ir.PointerType(llvm_element(kind.element)), kind.lanes))
    align = I32(bits_of(kind.element) // 8)
    name = f"llvm.masked.gather.{kind.suffix}.v{kind.lanes}p0"
    return call_llvm(builder, name, kind.llvm, [pointers, align, mask, fill])


def mask_of(kind):
    """The type of the masks for vectors of a type."""
    return kind.of(types.boolean)


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
    return lambda builder, kind, x, y: getattr(builder, floating if is_float(kind) else integer)(x, y)


def comparison(sign):
    """The emitter of a comparison, by its sign: NaN is not equal to anything, nor larger or smaller."""

    def emit(builder, kind, x, y):
        if is_float(kind):
            return builder.fcmp_unordered(sign, x, y) if sign == "!=" else builder.fcmp_ordered(sign, x, y)
        if isinstance(kind.element, types.Integer) and not kind.element.signed:
            return builder.icmp_unsigned(sign, x, y)
        return builder.icmp_signed(sign, x, y)

    return emit


for _symbol, _integer, _floating in (
    (operator.add, "add", "fadd"), (operator.sub, "sub", "fsub"), (operator.mul, "mul", "fmul"),
    (operator.and_, "and_", ""), (operator.or_, "or_", ""), (operator.xor, "xor", ""),
    (operator.rshift, "ashr", ""), (operator.lshift, "shl", ""),
):  # fmt: skip
    _binary(_symbol, _arithmetic(_integer, _floating))

for _symbol, _sign in (
    (operator.gt, ">"), (operator.lt, "<"), (operator.ge, ">="), (operator.eq, "=="), (operator.ne, "!="),
):  # fmt: skip
    _binary(_symbol, comparison(_sign), mask_of)


@type_callable(operator.invert)
def _type_invert(context):
    return lambda x: x if isinstance(x, Vector) else None


@lower_builtin(operator.invert, Vector)
def _lower_invert(context, builder, signature, arguments):
    return builder.not_(arguments[0])
