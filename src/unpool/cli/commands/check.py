"""`unpool check`: nodes that runtimes interpret differently, or that are probably mistakes."""

from dataclasses import asdict

import typer

from unpool.cli.errors import FINDINGS, guard
from unpool.cli.options import Json, ModelPath, Size, parse_sizes


def check(model: ModelPath, size: Size = None, as_json: Json = False) -> None:
    """List nodes that runtimes interpret differently, or that are probably mistakes; exit with 1 if any.

    Example: unpool check segnet.onnx
    """
    with guard():
        from unpool.cli import console
        from unpool.runtime.lint.lint import lint

        findings = lint(model, sizes=parse_sizes(size or ()))
        document = {"model": str(model), "findings": [asdict(finding) for finding in findings]}
        lines = [*map(str, findings), f"{model}: {summary(len(findings))}"]
        console.say_report(lines, document, as_json)
    if findings:
        raise typer.Exit(FINDINGS)


def summary(count: int) -> str:
    """The number of findings, in words; the wheel has no docs.

    >>> summary(0), summary(2)
    ('nothing found', '2 findings; for the rules see docs/semantics.md in the source of unpool')
    """
    if not count:
        return "nothing found"
    return f"{count} finding{'s' * (count > 1)}; for the rules see docs/semantics.md in the source of unpool"
