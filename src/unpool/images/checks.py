"""Reading files from anywhere: claims checked before memory is taken, and errors of other libraries as ours."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, NoReturn

from unpool.display import format_shape
from unpool.errors import FileError, ShapeError, UnpoolError
from unpool.memory import check_bytes

LONGEST_REASON = 200
"""Letters of another library's message that are kept."""

MOST_DEFLATED = 1500
"""Bytes out of one; deflate reaches 1032, the LZW of TIFF some 1400."""

NEVER_TOO_LARGE = 2**26
"""Bytes: what any file may claim."""

FLOAT = 4
"""Bytes of an element as most models take it: pixels are held twice, as stored and as floats."""


@contextmanager
def read_errors(where: str, expected: str) -> Iterator[None]:
    """Turn every exception of a library that reads a file into one error of ours; the exception is its cause.

    Args:
        where: the file.
        expected: what is read, such as "a TIFF image".

    Raises:
        FileError: instead of any exception.
        ShapeError: instead of MemoryError.

    >>> with read_errors("x.npy", "an array of numbers"):
    ...     raise EOFError
    Traceback (most recent call last):
        ...
    unpool.errors.FileError: x.npy: expected an array of numbers, could not read it (EOFError). Copy or save it again.
    """
    try:
        yield
    except UnpoolError:
        raise
    except MemoryError as error:
        raise ShapeError(
            f"{where}: memory ran out while {expected} was read ({_reason(error)}). Free memory, or check the file."
        ) from error
    except Exception as error:
        raise FileError(
            f"{where}: expected {expected}, could not read it ({_reason(error)}). Copy or save it again."
        ) from error


def _reason(error: Exception) -> str:
    """The message on one line, or the name of the exception where it has none."""
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return text if len(text) <= LONGEST_REASON else f"{text[: LONGEST_REASON - 3]}..."


def parse_json(content: bytes) -> Any:
    """The value that a JSON text stands for; numbers are finite.

    Raises:
        ValueError: it is no such text, or one nested too deep.

    >>> parse_json(b'{"tile": 3}')
    {'tile': 3}
    """
    try:
        return json.loads(content, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def read_regular(path: Path, most: int) -> bytes:
    """The content of a file.

    Raises:
        ValueError: it is larger than `most` bytes, or no regular file; links are none.
        OSError: it cannot be read.
    """
    status = path.lstat()
    if not path.is_file() or path.is_symlink():
        raise ValueError("it is not a regular file")
    if status.st_size > most:
        raise ValueError(f"it has {status.st_size} bytes, more than the {most} that are read")
    return path.read_bytes()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


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
    text = format_shape(shape)
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
