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
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - a name of the standard library
        return display_line(super().formatMessage(record))


def say(line: str, quiet: bool = False, to_stderr: bool = False) -> None:
    """One line, never wrapped; to stderr when stdout carries the result itself."""
    if not quiet:
        print(display_line(line), file=sys.stderr if to_stderr else sys.stdout)


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
    """Console for tables: as wide as the terminal, or `default_width` characters without one."""

    def __init__(self, default_width: int) -> None:
        super().__init__()
        if not self.is_terminal:
            self.width = default_width

    def on_broken_pipe(self) -> None:
        """Raise, because `errors.guard` sets the exit code."""
        raise BrokenPipeError


def table(titles: Iterable[str]) -> Table:
    """An empty table; text too wide for its column is wrapped, not cut off."""
    empty = Table(box=SIMPLE_HEAD)
    for title in titles:
        empty.add_column(title, overflow="fold")
    return empty


def cell(text: str, style: str = "") -> Text:
    """A cell of a table, without markup."""
    return Text(display_line(text), style)
