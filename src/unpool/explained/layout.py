"""Rows of words in columns."""

from collections.abc import Sequence


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """One line per row; every column but the last as wide as its widest cell.

    >>> columns([("a", "b"), ("aaa", "b")])
    ['a    b', 'aaa  b']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
