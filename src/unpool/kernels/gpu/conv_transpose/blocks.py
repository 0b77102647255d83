"""How large the blocks are that programs of transposed convolution compute."""

from typing import NamedTuple


class Blocks(NamedTuple):
    """One program's.

    Attributes:
        positions: of y.
        maps: of y.
        channels: that are multiplied in one step.
        warps: that share a block.
        stages: steps whose loads are under way together; None for Triton's own choice.
    """

    positions: int
    maps: int
    channels: int
    warps: int = 4
    stages: int | None = None
