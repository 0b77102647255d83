"""Writes docs/versions.md from the rows of `unpool.operators.contract`: python docs/versions.py."""

from pathlib import Path

from unpool.files import write
from unpool.operators.contract import DOMAINS, OPERATORS, Row, rows_of

PAGE = Path(__file__).with_name("versions.md")
NAMES = {"": "ONNX (`ai.onnx`)", "com.ms.internal.nhwc": "ONNX Runtime's channels-last domain (`com.ms.internal.nhwc`)"}
HEAD = """\
# Versions

`python docs/versions.py` writes this page from the table in `operators/contract.py`, which the package itself uses.

The opset of a model selects the newest version up to that number. A function call without `opset` uses the newest
version. An attribute, a type or a second output that a version does not have is an error, which names the version that
has it. Indices and `output_shape` inputs are int64. A star marks required attributes; italics mark what is new.
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
