"""HTML that cannot be broken by what it says: every text is escaped, once, where it becomes part of the page.

Control and bidirectional characters become Python's escapes there, and long names are cut.
"""

import json
from html import escape
from typing import Any

from unpool.display import display_line

VOID = ("br", "img", "input", "meta")


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(tag: str, *children: Any, **attributes: Any) -> Markup:
    """An element with its children.

    Args:
        tag: its name.
        children: Markup as it is, anything else as escaped text; nothing for None.
        attributes: their values, escaped but for Markup; True has no value, and None and False leave the attribute
            out. An underscore at the end is dropped, as in `class_`, others become hyphens.

    >>> element("p", "1 < 2", element("b", "!"), class_="note", hidden=True)
    '<p class="note" hidden>1 &lt; 2<b>!</b></p>'
    """
    words = "".join(_attribute(name, value) for name, value in attributes.items())
    start = f"<{tag}{words}>"
    return Markup(start if tag in VOID else f"{start}{joined(*children)}</{tag}>")


def joined(*children: Any) -> Markup:
    """Children one after the other.

    >>> joined(element("br"), "&", None)
    '<br>&amp;'
    """
    return Markup("".join(_text(child) for child in children if child is not None))


def data(value: Any) -> Markup:
    r"""A value as JSON for a script to read, in which nothing can end the script.

    >>> print(data("</script>"))
    <script type="application/json">"\u003c/script>"</script>
    """
    return element("script", Markup(json.dumps(value).replace("<", "\\u003c")), type="application/json")


def _text(child: Any) -> str:
    return child if isinstance(child, Markup) else escape(display_line(str(child)))


def _attribute(name: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    word = name.rstrip("_").replace("_", "-")
    if value is True:
        return f" {word}"
    return f' {word}="{value if isinstance(value, Markup) else escape(display_line(str(value)))}"'
