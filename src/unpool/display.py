"""Makes a text safe to show in one line of a terminal or a page: names in a model may hold any letters and be long."""

import re

LONGEST_WORD = 200
"""Letters of a word that are shown; a name is a word, and a part of a path is one."""

LONGEST_LINE = 4000

_LONG_WORD = re.compile(rf"[^\s/]{{{LONGEST_WORD + 1},}}")


def display_line(text: str) -> str:
    r"""One line in which control, format and bidirectional characters are Python's escapes, and long words are cut.

    Line breaks are escaped too, so that a name cannot begin a line. The result of a result is the same.

    >>> print(display_line("a\x1b[2Jb\nerror: c"), display_line("é"))
    a\x1b[2Jb\nerror: c é
    >>> len(display_line("w" * 1000)), len(display_line("w " * 10000))
    (200, 4000)
    """
    if not text.isprintable():
        text = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
    if len(text) > LONGEST_WORD:
        text = _LONG_WORD.sub(lambda found: _cut(found[0], LONGEST_WORD), text)
    return text if len(text) <= LONGEST_LINE else _cut(text, LONGEST_LINE)


def _cut(text: str, length: int) -> str:
    """The beginning and the end of a text, which together have so many letters."""
    half = (length - 3) // 2
    return f"{text[: length - 3 - half]}...{text[len(text) - half :]}"
