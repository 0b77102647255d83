"""Vectors from memory and back: whole, masked, strided, gathered, and non-temporal."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from unpool.kernels.cpu.vector import type as llvm
from unpool.kernels.cpu.vector.type import I32, I64, Vector, operation, pointer_to, tile_of, vector_of


@intrinsic
def address_of(context, array):
    """Address of the first element of an array, or of the array with a handle, `id(array)`."""

    def emit(ctx, builder, signature, arguments):
        if isinstance(array, types.Integer):  # NumPy's C struct has the header of every object, then this address
            place = builder.add(arguments[0], I64(object.__basicsize__))
            return builder.load(pointer_to(builder, place, I64))
        return builder.ptrtoint(ctx.make_array(array)(ctx, builder, arguments[0]).data, I64)

    return types.int64(types.int64 if isinstance(array, types.Integer) else array), emit


@operation
def load_once(address):
    """Read the int64 at an address exactly once: LLVM may repeat a plain load, and another thread may write."""
    return types.int64, lambda builder, address: builder.load_atomic(pointer_to(builder, address, I64), "unordered", 8)


@operation
def element_at(address, element):
    """The element at an address."""
    result = Vector(element.dtype, 1)
    return element.dtype, lambda builder, address, _: builder.load(pointer_to(builder, address, result.llvm_element))


@operation
def set_element(address, value):
    """Write a number to an address."""
    return types.void, lambda builder, address, value: builder.store(value, pointer_to(builder, address, value.type))


@operation
def int64_at(address):
    """The int64 at an address."""
    return types.int64, lambda builder, address: emit_int64(builder, address, 0)


def emit_int64(builder, address, place):
    """The int64 at a place of an array of them."""
    place = I64(place) if isinstance(place, int) else place
    return builder.load(builder.gep(pointer_to(builder, address, I64), [place]))


@operation
def load(address, element, lanes):
    """`lanes` neighbouring elements, from any address."""
    result = vector_of(element, lanes)
    return result, lambda builder, address, *_: llvm.emit_load(builder, address, result)


@operation
def load_like(address, like):
    """Neighbouring elements from any address, of the number and type of `like`."""
    return like, lambda builder, address, _: llvm.emit_load(builder, address, like)


@operation
def gather_lanes(address, bytes_between, element, lanes):
    """`lanes` elements that are `bytes_between` apart; other memory is not touched."""
    result = vector_of(element, lanes)
    fill = ir.Constant(result.llvm, ir.Undefined)
    return result, lambda builder, address, apart, *_: _gather(
        builder, address, apart, result.mask.constant(1), fill, result
    )


@operation
def gather(address, bytes_between, mask, fill):
    """Elements `bytes_between` apart where the mask is set, `fill` elsewhere; other memory is not touched."""
    return fill, lambda builder, *arguments: _gather(builder, *arguments, fill)


def _gather(builder, address, bytes_between, mask, fill, kind):
    lanes = ir.Constant(ir.VectorType(I64, kind.lanes), list(range(kind.lanes)))
    offsets = builder.mul(lanes, llvm.emit_splat(builder, bytes_between, kind.lanes))
    return _gather_at(builder, address, offsets, mask, fill, kind)


@operation
def gather_at(address, offsets, mask, fill):
    """Elements at `address` + `offsets`, a vector of int64 bytes, where the mask is set; `fill` elsewhere."""
    return fill, lambda builder, *arguments: _gather_at(builder, *arguments, fill)


def _gather_at(builder, address, offsets, mask, fill, kind):
    places = builder.add(llvm.emit_splat(builder, address, kind.lanes), offsets)
    pointers = builder.inttoptr(places, ir.VectorType(ir.PointerType(kind.llvm_element), kind.lanes))
    name = f"llvm.masked.gather.{kind.suffix}.v{kind.lanes}p0"
    return llvm.call_llvm(builder, name, kind.llvm, [pointers, I32(kind.itemsize), mask, fill])


@operation
def load_masked(address, mask, fill):
    """Lanes of `fill`, replaced by memory where the mask is set; other memory is not touched."""
    return fill, lambda builder, *arguments: llvm.emit_load_masked(builder, *arguments, fill)


@operation
def store(address, value):
    """All lanes to any address."""
    return types.void, lambda builder, address, lanes: llvm.emit_store(builder, lanes, address, value)


@operation
def store_masked(address, value, mask):
    """The lanes where the mask is set; other memory is not touched."""
    return types.void, lambda builder, address, lanes, mask: llvm.emit_store_masked(
        builder, lanes, address, mask, value
    )


@operation
def store_nontemporal(address, value):
    """A non-temporal store, to a multiple of the lanes' bytes or of 64; other threads see it after a `fence`."""

    def emit(builder, address, lanes):
        stored = builder.store(lanes, pointer_to(builder, address, value.llvm), align=min(64, value.nbytes))
        stored.set_metadata("nontemporal", builder.module.add_metadata([I32(1)]))

    return types.void, emit


@operation
def fence():
    """Memory barrier: other threads see all earlier writes before any later one."""
    return types.void, lambda builder: builder.fence("seq_cst")


@operation
def prefetch(address):
    """Prefetch a cache line that will be read."""

    def emit(builder, address):
        read, near, data = I32(0), I32(3), I32(1)
        llvm.call_llvm(
            builder, "llvm.prefetch.p0", ir.VoidType(), [llvm.byte_pointer(builder, address), read, near, data]
        )

    return types.void, emit


@operation
def clear(address, size):
    """Zero `size` bytes by plain stores, which go to the cache; memset of a C library may bypass it."""

    def emit(builder, address, size):
        block = ir.VectorType(ir.IntType(8), 64)
        whole = builder.lshr(size, I64(6))
        with cgutils.for_range(builder, whole, intp=I64) as loop:
            place = builder.add(address, builder.shl(loop.index, I64(6)))
            builder.store(ir.Constant(block, [0] * 64), pointer_to(builder, place, block), align=1)
        done = builder.shl(whole, I64(6))
        with cgutils.for_range(builder, builder.sub(size, done), intp=I64) as loop:
            place = builder.add(address, builder.add(done, loop.index))
            builder.store(ir.Constant(ir.IntType(8), 0), llvm.byte_pointer(builder, place))

    return types.void, emit


@operation
def splat_rows(address, element, lanes, rows):
    """`rows` neighbouring elements, a power of two, each in `lanes` lanes."""
    part, count = vector_of(element, lanes), rows.literal_value

    def emit(builder, address, *_):
        places = [builder.add(address, I64(row * part.itemsize)) for row in range(count)]
        return llvm.concatenate(builder, [llvm.emit_load_scalar(builder, place, part) for place in places])

    return Vector(part.element, part.lanes * count), emit


@operation
def load_taps(address, element, lanes, step):
    """Vectors of neighbours: vector t of `step` has elements t, t + step, ... of the `lanes * step` that are read."""
    vector, count = vector_of(element, lanes), step.literal_value

    def emit(builder, address, *_):
        return llvm.deinterleave(builder, llvm.emit_load_parts(builder, address, vector, count))

    return tile_of(vector, step), emit
