"""How a command is declared, by one that is not among them."""

import json
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from unpool.cli import options
from unpool.cli.command import CommandResult, command
from unpool.cli.errors import FINDINGS, UNFIT
from unpool.cli.options import Parser
from unpool.errors import ShapeError


@command
def halve(number: int, as_json: options.Json = False, quiet: options.Quiet = False) -> CommandResult:
    """Half of an even number."""
    if number % 2:
        raise ShapeError(f"{number} is odd.\nDouble it.")
    return CommandResult([f"half of it is {number // 2}"], {"half": number // 2}, FINDINGS)


@pytest.mark.parametrize(
    ("words", "code", "printed"),
    [
        (["4"], FINDINGS, "half of it is 2\n"),
        (["4", "--json"], FINDINGS, json.dumps({"half": 2}, indent=2) + "\n"),
        (["4", "--quiet"], FINDINGS, ""),
        (["3"], UNFIT, "error: 3 is odd. Double it.\n"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
def test_a_command_returns_what_is_printed(words, code, printed):
    """Lines or a document, as its options say, and the exit code; an expected error is one line."""
    app = typer.Typer()
    app.command()(halve)
    done = CliRunner().invoke(app, words, standalone_mode=False)

    assert (done.return_value if done.exit_code == 0 else done.exit_code, done.output) == (code, printed)


def test_help_comes_from_the_function():
    """Its docstring and its parameters are the help."""
    app = typer.Typer()
    app.command()(halve)
    text = CliRunner().invoke(app, ["--help"]).output

    assert "Half of an even number." in text
    assert "--json" in text


@dataclass(frozen=True, kw_only=True)
class Sum:
    """The options of `add`."""

    numbers: Annotated[tuple[float, ...], options.text_option("NUMBERS", "What is added."), Parser(options.numbers)]
    begin: Annotated[float | None, options.text_option("NUMBER", "First number."), Parser(options.number)] = None
    quiet: options.Quiet = False


@command
def add(given: Sum) -> CommandResult:
    """The sum of numbers."""
    return CommandResult([f"{sum(given.numbers, given.begin or 0)}"])


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["--numbers", "1/4,2"], "2.25\n"),
        (["--numbers", "1,2", "--begin", "4"], "7.0\n"),
        (["--numbers", "one"], "error: --numbers: expected a number such as 0.5 or 1/255, got 'one'.\n"),
        (["--numbers", "1", "--quiet"], ""),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
def test_a_command_takes_its_options_as_one_record(words, printed):
    """A field is an option, with its default; a text becomes the value of the field."""
    app = typer.Typer()
    app.command()(add)

    assert CliRunner().invoke(app, words, standalone_mode=False).output == printed
