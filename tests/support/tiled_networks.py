"""Random networks of two kinds, each with all that a border can do: a SegNet of pools and unpools, and a U-Net in 3-D.

Weights and images are small whole numbers, as in `tiled_models`. A case says along every axis which pads, which mode of
rounding and which size it has.
"""

import hypothesis.strategies as st

from tests.support.tiled_models import Builder, kind_of

LEVELS = 2


@st.composite
def segnets(draw):
    """Levels of convolutions and pools with indices, their unpools, and skips; images of any size."""
    builder = Builder(2, draw)
    x, levels = "x", []
    for _ in range(draw(st.integers(1, LEVELS))):
        larger = convolved(builder, x)
        window = builder.windows(2)
        x, indices = builder.node("MaxPool", larger, outputs=2, ceil_mode=draw(st.integers(0, 1)), **window)
        levels.append((larger, indices, window))
    x = convolved(builder, x)
    for larger, indices, window in reversed(levels):
        x = builder.node("MaxUnpool", x, indices, builder.node("Shape", larger), **window)
        if draw(st.booleans()):
            x = builder.clip(builder.node("Add", x, larger))
        x = convolved(builder, x)
    return builder.model({x: kind_of(x)}), builder.feed


@st.composite
def u_nets(draw):
    """Levels that shrink by pools and grow by transposed convolutions over three axes, joined with their skips.

    Convolutions keep the size or lose elements; where what has grown and its skip differ, the larger one is cropped.
    """
    builder = Builder(3, draw)
    x, levels = "x", []
    for _ in range(draw(st.integers(1, LEVELS))):
        skip = convolved(builder, x)
        window = builder.windows(2)
        x = builder.node("MaxPool", skip, ceil_mode=draw(st.integers(0, 1)), **window)
        levels.append((skip, window["strides"]))
    x = convolved(builder, x)
    for skip, strides in reversed(levels):
        x = builder.convolved("ConvTranspose", x, {"kernel_shape": strides, "strides": strides})
        x = convolved(builder, builder.joined(x, skip))
    return builder.model({x: kind_of(x)}), builder.feed


def convolved(builder, x):
    """A Conv: pads on both sides alike, on one side, by `auto_pad`, or none."""
    attributes = {"kernel_shape": [3] * builder.rank}
    kind = builder.draw(st.sampled_from(["even", "uneven", "same", "valid"]))
    if kind == "same":
        attributes["auto_pad"] = builder.draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER"]))
    elif kind != "valid":
        before = [1] * builder.rank if kind == "even" else builder.axes(0, 2)
        attributes["pads"] = [*before, *(2 - one for one in before)]
    return builder.convolved("Conv", x, attributes)
