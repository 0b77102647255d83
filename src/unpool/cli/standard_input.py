"""What comes through standard input: all of it, and what it is by its first bytes."""

import io
import sys

from unpool.cli.exits import UsageError
from unpool.errors import FileError, ShapeError
from unpool.memory_limits import available, rss

STDIN = "-"
SIGNATURES = {
    b"\x93NUMPY": ".npy",
    b"\x89PNG": ".png",
    b"\xff\xd8\xff": ".jpg",
    b"GIF8": ".gif",
    b"BM": ".bmp",
    b"II*\0": ".tif",
    b"MM\0*": ".tif",
    b"II+\0": ".tif",
    b"MM\0+": ".tif",
    b"\x1f\x8b": ".nii.gz",
    b"\x5c\x01\0\0": ".nii",
    b"\0\0\x01\x5c": ".nii",
}
SHARE = 4
"""The part of the memory at hand that the bytes may take: they are unpacked beside it."""
PIECE = 2**24


def read_stdin(limit: int | None = None) -> tuple[bytes, str]:
    """The bytes of standard input, and the suffix of files of their kind.

    Args:
        limit: bytes of memory that the process may have in all; None: as many as there are.

    Raises:
        UsageError: nobody sends anything: it is a terminal, or closed.
        FileError: no array and no image.
        ShapeError: more bytes than this process has memory for.
    """
    if sys.stdin is None or sys.stdin.isatty():
        what = "closed" if sys.stdin is None else "a terminal"
        raise UsageError(f"-i -: expected the bytes of a file, standard input is {what}. Send it a .npy or .png.")
    most, held = available() // SHARE, io.BytesIO()
    while piece := sys.stdin.buffer.read(PIECE):
        size = held.tell() + held.write(piece)
        if size > most:
            raise ShapeError(f"standard input: {size} bytes and more are a {SHARE}th of the memory. Give a file.")
        if limit is not None and rss() > limit:
            raise ShapeError(f"standard input: {size} bytes and more are above --max-memory. Give a file.")
    content = held.getvalue()
    return content, kind_of(content)


def kind_of(content: bytes) -> str:
    """The suffix of files that begin like this.

    >>> kind_of(b"GIF89a...")
    '.gif'
    """
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return ".webp"
    for signature, suffix in SIGNATURES.items():
        if content.startswith(signature):
            return suffix
    raise FileError(
        f"standard input: expected one array or image ({', '.join(dict.fromkeys(SIGNATURES.values()))}, .webp), "
        f"got {'other bytes' if content else 'nothing'}. Give a file."
    )
