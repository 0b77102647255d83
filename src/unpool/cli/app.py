"""The commands of the command line, in the order of its help; each is a file of `commands/`."""

from typing import Annotated

import typer

from unpool.cli.commands.bench import bench
from unpool.cli.commands.canonicalise import canonicalise
from unpool.cli.commands.check import check
from unpool.cli.commands.compare import compare
from unpool.cli.commands.completion import completion
from unpool.cli.commands.demo import demo
from unpool.cli.commands.doctor import doctor
from unpool.cli.commands.explain import explain
from unpool.cli.commands.export import export
from unpool.cli.commands.fix import fix
from unpool.cli.commands.inspect import inspect
from unpool.cli.commands.lower import lower
from unpool.cli.commands.report import report
from unpool.cli.commands.run import run
from unpool.cli.commands.upgrade import upgrade
from unpool.cli.commands.warmup import warmup
from unpool.cli.options import Flag
from unpool.cli.usage import Commands

COMMANDS = (
    run, export, inspect, report, compare, explain, check, fix, lower, upgrade, canonicalise, bench, demo, warmup,
    doctor, completion,
)  # fmt: skip

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
