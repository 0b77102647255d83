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
    """List nodes that runtimes interpret differently, or that are probably mistakes; exit with 1 if any.

    Example: unpool check segnet.onnx
    """
    with guard():
        from unpool.cli import console
        from unpool.cli.check import check_file, report, to_json
        from unpool.cli.upgrade import sizes_of

        findings = check_file(model, sizes_of(size or ()))
        console.say_report(report(findings, model), to_json(findings, model), as_json)
    if findings:
        raise typer.Exit(FINDINGS)
