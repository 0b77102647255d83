"""The work of `unpool check`: findings as data and as a table."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unpool.cli import console

if TYPE_CHECKING:
    from unpool.runtime.lint.finding import Finding

WIDE = 200


def check_file(path: Path, sizes: Mapping[str, int]) -> "tuple[Finding, ...]":
    """The findings of the library's `lint`."""
    from unpool.runtime.lint.lint import lint

    return lint(path, sizes=sizes)


def print_findings(findings: "Sequence[Finding]", path: Path) -> None:
    """Print a table for people, or one line when there is nothing to say."""
    from unpool.runtime.lint.finding import TITLES

    if findings:
        rows = console.table(TITLES, show_lines=True)
        for one in findings:
            rows.add_row(*map(console.cell, one.row))
        console.Screen(WIDE).print(rows)
    console.say(f"{path}: {summary(len(findings))}")


def summary(count: int) -> str:
    """How much was found, in words; rules are those of docs/semantics.md.

    >>> summary(0), summary(2)
    ('nothing found', '2 findings; rules are those of docs/semantics.md')
    """
    if not count:
        return "nothing found"
    return f"{count} finding{'s' * (count > 1)}; rules are those of docs/semantics.md"


def to_json(findings: "Sequence[Finding]", path: Path) -> dict[str, Any]:
    """The same as JSON types."""
    return {"model": str(path), "findings": [asdict(one) for one in findings]}
