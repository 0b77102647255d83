"""Python's operators on vectors: arithmetic, bits, and comparisons, which give masks."""

import operator

from numba import types
from numba.extending import lower_builtin, type_callable

from unpool.kernels.cpu.vector.type import Vector, is_float, mask_of


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


def comparison(word):
    """What emits a comparison, by its sign: NaN is never equal to anything, nor larger or smaller."""

    def emit(builder, kind, x, y):
        if is_float(kind):
            return builder.fcmp_unordered(word, x, y) if word == "!=" else builder.fcmp_ordered(word, x, y)
        if isinstance(kind.element, types.Integer) and not kind.element.signed:
            return builder.icmp_unsigned(word, x, y)
        return builder.icmp_signed(word, x, y)

    return emit


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
    _binary(_symbol, comparison(_word), mask_of)


@type_callable(operator.invert)
def _type_invert(context):
    return lambda x: x if isinstance(x, Vector) else None


@lower_builtin(operator.invert, Vector)
def _lower_invert(context, builder, signature, arguments):
    return builder.not_(arguments[0])
