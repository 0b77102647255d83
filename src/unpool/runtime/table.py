"""Writes rows of words as aligned text."""

from collections.abc import Sequence

from unpool.display import display_line


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
