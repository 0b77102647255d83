"""Text for a terminal or a page: names of models, which may hold any characters and be long, shapes, and tables."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

MAX_WORD = 200  # characters that are shown of a word, such as a name or a part of a path
MAX_LINE = 4000
BYTE_UNITS = {"GiB": 2**30, "GB": 10**9, "MiB": 2**20, "MB": 10**6, "KiB": 2**10, "KB": 10**3}

_LONG_WORD = re.compile(rf"[^\s/]{{{MAX_WORD + 1},}}")


def display_line(text: str) -> str:
    r"""One line with control, format and bidirectional characters as Python's escapes, and long words shortened.

    Line breaks are escaped too, so that a name cannot start a line. The function is idempotent.

    >>> print(display_line("a\x1b[2Jb\nerror: c"), display_line("é"))
    a\x1b[2Jb\nerror: c é
    >>> len(display_line("w" * 1000)), len(display_line("w " * 10000))
    (200, 4000)
    """
    if not text.isprintable():
        text = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
    if len(text) > MAX_WORD:
        text = _LONG_WORD.sub(lambda found: _cut(found[0], MAX_WORD), text)
    return text if len(text) <= MAX_LINE else _cut(text, MAX_LINE)


def format_shape(sizes: Iterable[Any]) -> str:
    """A shape as text.

    >>> format_shape((1, 3, 8, 8)), format_shape((None, "H")), format_shape(())
    ('1x3x8x8', '?xH', 'scalar')
    """
    return "x".join("?" if size is None else str(size) for size in sizes) or "scalar"


def format_bytes(count: int) -> str:
    """Bytes in the largest unit in which they are a number of one decimal at most, as people type them.

    >>> [format_bytes(count) for count in (2**30, 1536 * 2**20, 500_000_000, 1, 1001)]
    ['1GiB', '1.5GiB', '500MB', '1 byte', '1001 bytes']
    """
    for unit, size in BYTE_UNITS.items():
        if count >= size and count * 10 % size == 0:
            return f"{count / size:g}{unit}"
    return f"{count} byte{'' if count == 1 else 's'}"


def _cut(text: str, length: int) -> str:
    half = (length - 3) // 2
    return f"{text[: length - 3 - half]}...{text[len(text) - half :]}"


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns padded to their widest cell, a rule under the titles; a cell is one line, whatever is in it.

    >>> print(table(["node", "why"], [["pool", "exact"]]))
    node  why
    ----  -----
    pool  exact
    """
    rows = [list(map(display_line, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    lines = [titles, ["-" * width for width in widths], *rows]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
