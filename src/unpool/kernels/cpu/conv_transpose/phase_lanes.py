"""Instructions that write the phases of a row side by side: vectors whose lanes alternate."""

from unpool.kernels.cpu.vector import type as llvm
from unpool.kernels.cpu.vector.memory import emit_int64
from unpool.kernels.cpu.vector.type import operation, tile_of


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
