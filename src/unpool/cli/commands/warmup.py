"""The command `unpool warmup`: its options."""

from typing import Annotated

import typer

from unpool.cli.exits import guard
from unpool.cli.options import Quiet


def warmup(
    types: Annotated[
        list[str] | None,
        typer.Option("--type", help="Element type; several times for several.", show_default="float32"),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Compile the common kernels now, so that no first call has to wait for them."""
    with guard(quiet=True):  # it has a bar of its own
        from unpool.cli.warmup import warm_up

        warm_up(types or ["float32"], quiet)
