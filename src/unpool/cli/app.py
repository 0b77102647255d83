"""The commands, in the order of the help, and the one line for a wrong command line."""

import re
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from unpool.cli.commands.bench import bench
from unpool.cli.commands.compare import compare
from unpool.cli.commands.compile import compile
from unpool.cli.commands.explain import explain
from unpool.cli.commands.export import export
from unpool.cli.commands.inspect import check, inspect
from unpool.cli.commands.report import report
from unpool.cli.commands.rewrite import canonicalise, fix, lower, upgrade
from unpool.cli.commands.run import run
from unpool.cli.commands.system import completion, demo, doctor, warmup
from unpool.cli.errors import OK, USAGE, guard, print_error
from unpool.cli.options import Flag
from unpool.errors import suggest_name

COMMANDS = (
    run, export, inspect, report, compare, explain, check, fix, lower, upgrade, canonicalise, compile, bench, demo,
    warmup, doctor, completion,
)  # fmt: skip

_CHOICE = re.compile(r"'([^']*)' is not one of (.+)\.$")
_WORD = re.compile(r"'([^']+)'")

NO_CHOICES = {"onnxruntime": "It runs MaxUnpool, so nothing is to be lowered: keep the model, or take any."}  # of --for
WRONG: Any = typer.BadParameter.__mro__[2]  # Typer's base class of usage errors; its module differs between releases


class Commands(TyperGroup):
    """All commands; a wrong command line gives one line instead of Typer's usage text."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run one command, and exit with its code."""
        with guard(quiet=True):
            try:
                code = super().main(*args, **{**extra, "standalone_mode": False})
            except WRONG as error:
                code = USAGE
                if type(error).__name__ == "NoArgsIsHelpError":
                    error.show()
                else:
                    place = "unpool" if error.ctx is None else error.ctx.command_path
                    print_error(f"{place}: {sentence(error.format_message())} See {place} --help")
        sys.exit(code or OK)


def sentence(text: str) -> str:
    """A message of Typer as the rest of a sentence.

    >>> sentence("Invalid value for '--to': Value error, 'x' is not one of 'y'")
    "invalid value for '--to': 'x' is not one of 'y'."
    >>> sentence("'tflit' is not one of 'tensorrt', 'tflite'")
    "'tflit' is not one of 'tensorrt', 'tflite'. Did you mean tflite?"
    """
    words = " ".join(text.replace("Value error, ", "").split())
    ended = f"{words[:1].lower()}{words[1:]}{'' if words.endswith(('.', '?')) else '.'}"
    choice = _CHOICE.search(ended)
    advice = ""
    if choice:
        advice = NO_CHOICES.get(choice[1]) or suggest_name(choice[1], _WORD.findall(choice[2]), "")
    return f"{ended} {advice}".rstrip()


app = typer.Typer(
    name="unpool",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Run ONNX models on arrays and images; MaxPool, MaxUnpool and ConvTranspose exactly as written.",
)
for command in COMMANDS:
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"unpool {version('unpool')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, Flag("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
