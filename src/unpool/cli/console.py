"""Output of the commands: results on stdout, logs on stderr. Every command imports this, so it imports little."""

import json
import logging
import sys
from collections.abc import Iterable
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from unpool.display import display_line


def set_up_log(verbose: bool) -> None:
    """Send warnings of unpool to stderr, and INFO records when `verbose`, one line each."""
    logging.addLevelName(logging.INFO, "info")
    logging.addLevelName(logging.WARNING, "warning")
    logger = logging.getLogger("unpool")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(levelname)s: %(message)s"))
    logger.handlers = [handler]
    logger.setLevel(logging.INFO if verbose else logging.WARNING)


class _OneLine(logging.Formatter):
    """Records as single lines, whatever names are in them."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - a name of the standard library
        return display_line(super().formatMessage(record))


def say(line: str, quiet: bool = False, is_aside: bool = False) -> None:
    """One line on stdout, never wrapped; on stderr where it is an aside, since stdout has the result itself."""
    if not quiet:
        print(display_line(line), file=sys.stderr if is_aside else sys.stdout)


def say_json(value: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(value, indent=2))  # noqa: T201 - plain text for other programs


def say_report(lines: Iterable[str], document: Any, as_json: bool, quiet: bool = False) -> None:
    """Lines for people, or one JSON document of the same."""
    if as_json:
        say_json(document)
        return
    for line in lines:
        say(line, quiet)


class Screen(Console):
    """Console for tables: as wide as the terminal; `wide` characters where there is none."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        if not self.is_terminal:
            self.width = wide

    def on_broken_pipe(self) -> None:
        """Let the end of the command say it."""
        raise BrokenPipeError


def table(titles: Iterable[str], **looks: Any) -> Table:
    """An empty table; text too wide for its column is wrapped, not cut off."""
    made = Table(box=SIMPLE_HEAD, **looks)
    for title in titles:
        made.add_column(title, overflow="fold")
    return made


def cell(text: str, style: str = "") -> Text:
    """A cell of a table, with no other meaning than its letters."""
    return Text(display_line(text), style)
