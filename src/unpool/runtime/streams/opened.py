"""What is wanted of a file that is opened, and refusals of what it claims."""

from dataclasses import dataclass

from unpool.errors import FileError

MOST_DEFLATED = 1500
"""Bytes out of one; deflate reaches 1032, the LZW of TIFF some 1400."""

NEVER_TOO_LARGE = 2**26
"""Bytes: what any file may claim."""


BATCH = "batch"


@dataclass(frozen=True)
class Wanted:
    """How a file is to be read.

    Attributes:
        rank: of the tensor: batch, channels and the spatial axes.
        layout: "NCHW" or "NHWC".
        level: of a pyramid; 0 is the full size.
        channels: of the tensor; None where any number will do.
        pages: BATCH where the pages of a TIFF file are those of a batch; None: depth, or channels where they fit.
    """

    rank: int = 4
    layout: str = "NCHW"
    level: int = 0
    channels: int | None = None
    pages: str | None = None


def check_claim(claimed: int, stored: int, where: str) -> None:
    """Refuse more bytes than the bytes of a file can hold, by any method that deflates as zip, png and gzip do.

    Args:
        claimed: bytes that the file says it holds.
        stored: bytes that it is long.
        where: what the error message begins with.

    Raises:
        FileError: too many are claimed.
    """
    if claimed > max(stored * MOST_DEFLATED, NEVER_TOO_LARGE):
        raise FileError(f"{where}: claims {claimed} bytes, more than its {stored} can hold. Save it again.")


def pages_advice(pages: str | None) -> str:
    """What to do with a TIFF file whose pages do not fit, where `pages` is what they were taken as."""
    if pages == BATCH:
        return "Split the pages, or give a .npy."
    return "Take the pages as a batch (--pages batch), split them, or give a .npy."
