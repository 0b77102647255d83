"""How a command is declared, by one that is not among them."""

import json

import pytest
import typer
from typer.testing import CliRunner

from unpool.cli import options
from unpool.cli.command import CommandResult, command
from unpool.cli.errors import FINDINGS, UNFIT
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
