"""Checks of untrusted files: their claims before memory is taken, and errors of other libraries as ours."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, NoReturn

from unpool.display import format_shape
from unpool.errors import FileError, ShapeError, UnpoolError
from unpool.memory import check_bytes

MAX_REASON_LETTERS = 200
REPLACE = "It may be damaged: copy it again, or export it again from the program that made it."

MAX_DEFLATE_RATIO = 1500  # bytes out of one; deflate reaches 1032, the LZW of TIFF some 1400
MIN_CLAIM_LIMIT = 2**26  # bytes that any file may claim
FLOAT = 4  # bytes of an element of most models' inputs: pixels are in memory twice, as stored and as floats


@contextmanager
def read_errors(where: str, expected: str) -> Iterator[None]:
    """Turn MemoryError into ShapeError, and every other exception of a library that reads a file into FileError."""
    try:
        yield
    except UnpoolError:
        raise
    except MemoryError as error:
        raise ShapeError(f"{where}: memory ran out reading {expected} ({_reason(error)}). Free memory.") from error
    except Exception as error:
        raise FileError(f"{where}: expected {expected}, could not read it ({_reason(error)}). {REPLACE}") from error


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return text if len(text) <= MAX_REASON_LETTERS else f"{text[: MAX_REASON_LETTERS - 3]}..."


def parse_json(content: bytes) -> Any:
    """The value of a JSON text with finite numbers; a ValueError for any other text, or one nested too deep."""
    try:
        return json.loads(content, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def read_regular(path: Path, most: int) -> bytes:
    """The content of a regular file; a ValueError for a link, or a file of more than `most` bytes."""
    status = path.lstat()
    if not path.is_file() or path.is_symlink():
        raise ValueError("it is not a regular file")
    if status.st_size > most:
        raise ValueError(f"it has {status.st_size} bytes, more than the {most} that are read")
    return path.read_bytes()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def check_claim(claimed: int, stored: int, where: str) -> None:
    """Refuse a claim of more bytes than `stored` bytes can unpack to, by any deflation as in zip, png and gzip."""
    if claimed > max(stored * MAX_DEFLATE_RATIO, MIN_CLAIM_LIMIT):
        raise FileError(f"{where}: claims {claimed} bytes, more than its {stored} can hold. {REPLACE}")


def check_pixels(shape: tuple[int, ...], itemsize: int, where: str) -> None:
    """Refuse pixels that this process cannot hold, as they are stored and as floats, and axes without elements."""
    text = format_shape(shape)
    if min(shape, default=1) < 1:
        raise FileError(f"{where}: expected one pixel or more on every axis, got {text}. Give an image with pixels.")
    check_bytes(prod(shape) * (itemsize + FLOAT), f"{text} pixels", where)


@contextmanager
def pillow_unlimited() -> Iterator[None]:
    """Pillow without its fixed limit of pixels; `check_pixels` takes its place."""
    from PIL import Image

    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        yield
    finally:
        Image.MAX_IMAGE_PIXELS = limit
