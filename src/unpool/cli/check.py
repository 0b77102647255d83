"""The work of `unpool check`: findings as data and as lines."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unpool.runtime.lint.rules import Finding


def check_file(path: Path, sizes: Mapping[str, int]) -> "tuple[Finding, ...]":
    """The findings of the library's `lint`."""
    from unpool.runtime.lint.lint import lint

    return lint(path, sizes=sizes)


def report(findings: "Sequence[Finding]", path: Path) -> Iterator[str]:
    """A line for each finding, and one with their number."""
    yield from map(str, findings)
    yield f"{path}: {summary(len(findings))}"


def summary(count: int) -> str:
    """The number of findings, in words; the wheel has no docs.

    >>> summary(0), summary(2)
    ('nothing found', '2 findings; for the rules see docs/semantics.md in the source of unpool')
    """
    if not count:
        return "nothing found"
    return f"{count} finding{'s' * (count > 1)}; for the rules see docs/semantics.md in the source of unpool"


def to_json(findings: "Sequence[Finding]", path: Path) -> dict[str, Any]:
    """The same as JSON types."""
    return {"model": str(path), "findings": [asdict(one) for one in findings]}
