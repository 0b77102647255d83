"""The command `unpool completion`: its options."""

from typing import Annotated

import typer
from typer.completion import show_callback

from unpool.cli.option_values import Shell


def completion(
    context: typer.Context,
    shell: Annotated[
        Shell, typer.Argument(metavar="SHELL", help="Which shell.", show_default=False, case_sensitive=False)
    ],
) -> None:
    """Print a script with which a shell completes commands and options.

    Example: unpool completion bash > ~/.local/share/bash-completion/completions/unpool
    """
    show_callback(context, next(iter(context.command.params)), shell.value)
