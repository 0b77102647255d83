"""The command `unpool check`: its options."""

from typing import Annotated

import typer

from unpool.cli.exits import FINDINGS, guard
from unpool.cli.options import Json, ModelPath


def check(
    model: ModelPath,
    size: Annotated[
        list[str] | None, typer.Option("--size", metavar="NAME=NUMBER", help="A size that the model leaves open.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the nodes that runtimes disagree about, or that none reads as the author meant; exit with 1 if any.

    Example: unpool check segnet.onnx
    """
    with guard():
        from unpool.cli import console
        from unpool.cli.check import check_file, print_findings, to_json
        from unpool.cli.upgrade import sizes_of

        findings = check_file(model, sizes_of(size or ()))
        if as_json:
            console.say_json(to_json(findings, model))
        else:
            print_findings(findings, model)
    if findings:
        raise typer.Exit(FINDINGS)
