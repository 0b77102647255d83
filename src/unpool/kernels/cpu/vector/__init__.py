"""A Numba type that is an LLVM vector, and the few operations on it that the kernels need.

    v = load(address, int32, 16)      sixteen elements, one register
    m = v > best                      a mask: one bit per lane
    best = select(m, v, best)

Addresses are int64 bytes. Lane counts and element types are literals, so every operation is a handful of machine
instructions; a vector wider than the CPU's registers is split by LLVM. Arithmetic and comparisons are the Python
operators; shifts of signed integers are arithmetic.
"""

from unpool.kernels.cpu.vector.arithmetic import (
    BITS,
    ActivationParams,
    activate_sums,
    activation_dtype,
    any_of,
    convert,
    count_set,
    count_up,
    every_second,
    first_lanes,
    interleave,
    narrow,
    reinterpret,
    repeat,
    select,
    splat,
    splat_activation,
    total_of,
    unordered,
    widen,
    widen_mask,
)
from unpool.kernels.cpu.vector.maximum import (
    FIRST,
    IGNORED,
    LAST,
    any_beyond,
    any_unordered,
    argmax,
    is_larger,
    mark_nan,
    sliding_argmax,
    tile_roll,
)
from unpool.kernels.cpu.vector.memory import (
    address_of,
    clear,
    fence,
    gather,
    gather_at,
    int64_at,
    load,
    load_every,
    load_like,
    load_masked,
    load_once,
    load_parts,
    load_rows,
    load_taps,
    load_window,
    prefetch,
    splat_rows,
    store,
    store_masked,
    store_nontemporal,
    store_rows,
    tile_columns,
)
from unpool.kernels.cpu.vector.tiles import (
    load_terms,
    tile_add,
    tile_add_product,
    tile_add_to,
    tile_alternate,
    tile_combine,
    tile_interleave,
    tile_load,
    tile_load_every,
    tile_repeat,
    tile_sparse_dot,
    tile_store,
    tile_store_every,
    tile_store_first,
    tile_zero,
)
from unpool.kernels.cpu.vector.type import Vector
