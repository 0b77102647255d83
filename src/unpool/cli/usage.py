"""A wrong command line is told like any other error: in one line, with the command whose help says what it takes."""

import re
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from unpool.cli.exits import OK, USAGE, guard, print_error
from unpool.errors import suggest_name

_CHOICE = re.compile(r"'([^']*)' is not one of (.+)\.$")
_WORD = re.compile(r"'([^']+)'")

WRONG: type[Exception] = typer.BadParameter.__mro__[2]
"""Typer's own class of errors of usage and of their like, whose module is another in some of its releases."""


class Commands(TyperGroup):
    """All commands; ends the process as Typer does, but for what it prints about a wrong command line."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run one command, and exit with its code."""
        with guard(quiet=True):
            try:
                code = super().main(*args, **{**extra, "standalone_mode": False})
            except WRONG as error:
                told(error)
                code = USAGE
        sys.exit(code or OK)


def told(error: Any) -> None:
    """Say on stderr what is wrong with the command line; where it is empty, all that it may be."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return
    place = "unpool" if error.ctx is None else error.ctx.command_path
    print_error(f"{place}: {sentence(error.format_message())} See {place} --help")


def sentence(text: str) -> str:
    """The words of Typer as the rest of one sentence.

    >>> sentence("Invalid value for '--to': Value error, 'x' is not one of 'y'")
    "invalid value for '--to': 'x' is not one of 'y'."
    >>> sentence("'tflit' is not one of 'tensorrt', 'tflite'")
    "'tflit' is not one of 'tensorrt', 'tflite'. Did you mean tflite?"
    """
    words = " ".join(text.replace("Value error, ", "").split())
    ended = f"{words[:1].lower()}{words[1:]}{'' if words.endswith(('.', '?')) else '.'}"
    choice = _CHOICE.search(ended)
    advice = suggest_name(choice[1], _WORD.findall(choice[2]), "") if choice else ""
    return f"{ended} {advice}".rstrip()
