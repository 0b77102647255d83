"""What a file claims to hold, checked before any memory is taken for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

from unpool.errors import FileError
from unpool.memory import check_bytes

FLOAT = 4
"""Bytes of an element as most models take it: pixels are held twice, as stored and as floats."""

MOST_DEFLATED = 1500
"""Bytes out of one; deflate reaches 1032, the LZW of TIFF some 1400."""

NEVER_TOO_LARGE = 2**26
"""Bytes: what any file may claim."""


def check_pixels(shape: tuple[int, ...], itemsize: int, where: str) -> None:
    """Refuse pixels that this process cannot hold, as they are stored and as floats.

    Raises:
        FileError: an axis has no elements.
        ShapeError: there is less memory.

    >>> check_pixels((10**8, 10**8, 3), 1, "a.png")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    unpool.errors.ShapeError: a.png: 100000000x100000000x3 pixels ...
    """
    text = "x".join(map(str, shape))
    if min(shape, default=1) < 1:
        raise FileError(f"{where}: expected one pixel or more on every axis, got {text}. Save it again.")
    check_bytes(prod(shape) * (itemsize + FLOAT), f"{text} pixels", where)


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


@contextmanager
def pillow_unlimited() -> Iterator[None]:
    """Pillow without its own limit of pixels, which knows nothing of this machine; `check_pixels` takes its place."""
    from PIL import Image

    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        yield
    finally:
        Image.MAX_IMAGE_PIXELS = limit
