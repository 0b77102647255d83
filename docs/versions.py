"""Writes docs/versions.md from the rows of `unpool.operators.contract`: python docs/versions.py."""

from pathlib import Path

from unpool.files import write
from unpool.operators.contract import DOMAINS, OPERATORS, Row, rows_of

PAGE = Path(__file__).with_name("versions.md")
NAMES = {"": "ONNX (`ai.onnx`)", "com.ms.internal.nhwc": "ONNX Runtime's channels-last domain (`com.ms.internal.nhwc`)"}
HEAD = """\
# Versions

Written by `python docs/versions.py` from the table that the package itself obeys; a test fails when the two differ.

A model's opset number selects the newest version that is not above it. A function call without `opset` obeys the
newest version. What is outside a row (an attribute of a later version, a type, a second output) is an error that says
which version has it. Indices and `output_shape` inputs are int64. A star marks required attributes; words in italics
are new in that version.
"""


def page() -> str:
    """The text of docs/versions.md."""
    return "\n".join([HEAD, *(line for domain in DOMAINS for line in _domain(domain))])


def _domain(domain: str) -> list[str]:
    lines = [
        f"## {NAMES[domain]}",
        "",
        "| version | attributes | types | inputs | outputs | meaning |",
        "|---|---|---|---|---|---|",
    ]
    for operator in OPERATORS:
        older: frozenset[str] = frozenset()
        for row in rows_of(operator, domain):
            lines.append(_line(row, older))
            older = frozenset((*row.attributes, *row.value_types))
    return [*lines, ""]


def _line(row: Row, older: frozenset[str]) -> str:
    cells = (
        f"{row.operator}-{row.since_version}",
        ", ".join(_word(name, name in row.required, older) for name in sorted(row.attributes)),
        ", ".join(_word(name, False, older) for name in row.value_types),
        _count(row.min_inputs, row.max_inputs),
        _count(row.min_outputs, row.max_outputs),
        "; ".join(sorted(switch.value for switch in row.switches)),
    )
    return f"| {' | '.join(cells)} |"


def _word(name: str, is_required: bool, older: frozenset[str]) -> str:
    text = f"{name}*" if is_required else name
    return f"_{text}_" if older and name not in older else text


def _count(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"


if __name__ == "__main__":
    write(PAGE, page().encode())
