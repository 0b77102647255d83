"""What a file claims to hold, checked before any memory is taken for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

from unpool.errors import FileError
from unpool.memory import check_bytes

FLOAT = 4
"""Bytes of an element as most models take it: pixels are held twice, as stored and as floats."""


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


@contextmanager
def pillow_unlimited() -> Iterator[None]:
    """Pillow without its own limit of pixels, which knows nothing of this machine; `check_pixels` takes its place."""
    from PIL import Image

    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        yield
    finally:
        Image.MAX_IMAGE_PIXELS = limit
