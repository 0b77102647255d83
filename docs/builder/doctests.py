"""An extension of Griffe: examples in docstrings become blocks of code, which Markdown would take for quotations."""

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^( *)>>> .*(?:\n(?=.*\S).*)*", re.MULTILINE)


class Doctests(Extension):
    """Fences every run of lines that begins with a prompt."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change the docstring of an object before it is parsed."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(r"\1```pycon\n\g<0>\n\1```", obj.docstring.value)
