"""How a command is declared: a function whose signature and docstring are its options and its help."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from unpool.cli.console import say_report, set_up_log
from unpool.cli.errors import OK, guard


@dataclass(frozen=True)
class CommandResult:
    """The result of a command: lines for people, the same as a document for `--json`, and the exit code."""

    lines: Iterable[str]
    document: Any = None
    code: int = OK


def command(work: Callable[..., CommandResult | int | None]) -> Callable[..., int]:
    """The function as a command: expected errors become one line, its CommandResult is printed, its exit code returned.

    Parameters named `as_json`, `quiet` and `verbose` are the options of every command that has them. `app.COMMANDS`
    lists the commands. They import in their body what takes long to load: `unpool --help` imports every command.
    """

    @wraps(work)
    def run(**arguments: Any) -> int:
        quiet = arguments.get("quiet", False)
        with guard(quiet=quiet):
            if "verbose" in arguments:
                set_up_log(arguments["verbose"])
            result = work(**arguments)
            if not isinstance(result, CommandResult):
                return result or OK
            say_report(result.lines, result.document, arguments.get("as_json", False), quiet)
            return result.code

    return run
