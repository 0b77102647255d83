"""What is wanted of a file that is opened."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Wanted:
    """How a file is to be read.

    Attributes:
        rank: of the tensor: batch, channels and the spatial axes.
        layout: "NCHW" or "NHWC".
        level: of a pyramid; 0 is the full size.
        channels: of the tensor; None where any number will do.
    """

    rank: int = 4
    layout: str = "NCHW"
    level: int = 0
    channels: int | None = None
