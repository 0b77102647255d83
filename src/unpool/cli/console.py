"""What the command prints: results on stdout, logs on stderr; it imports little, for every command begins with it."""

import json
import logging
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console


def set_up_log(verbose: bool) -> None:
    """Send warnings of unpool to stderr, and INFO records when `verbose`, one line each."""
    logging.addLevelName(logging.INFO, "info")
    logging.addLevelName(logging.WARNING, "warning")
    logger = logging.getLogger("unpool")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    logger.handlers = [handler]
    logger.setLevel(logging.INFO if verbose else logging.WARNING)


def say(line: str, quiet: bool = False, is_aside: bool = False) -> None:
    """One line on stdout, never wrapped; on stderr where it is an aside, since stdout has the result itself."""
    if not quiet:
        Console(soft_wrap=True, highlight=False, markup=False, stderr=is_aside).print(line)


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
