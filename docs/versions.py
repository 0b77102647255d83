"""Writes docs/versions.md from the tables of `unpool.operators`: python docs/versions.py."""

from pathlib import Path

from unpool.files import write
from unpool.operators import unpool_domain
from unpool.operators.contract import DOMAINS, OPERATORS, OperatorVersion, versions_of

PAGE = Path(__file__).with_name("versions.md")
NAMES = {"": "ONNX (`ai.onnx`)", "com.ms.internal.nhwc": "ONNX Runtime's channels-last domain (`com.ms.internal.nhwc`)"}
HEAD = """\
# Versions

For everyone who writes models or chooses an opset: what each version of MaxPool, MaxUnpool and ConvTranspose accepts.
`python docs/versions.py` writes this page from the tables in `operators/contract.py` and `operators/unpool_domain.py`,
which the package itself uses.

The opset of a model selects the newest version up to that number. A function call without `opset` uses the newest
version. If a version lacks an attribute, a type or a second output, the error names the version that has it. Indices
and `output_shape` inputs are int64. A star marks required attributes; italics mark what is new in a version.
"""
OWN = """\
## The domain `unpool`

onnxruntime runs these nodes [with the library of unpool](tasks/in-onnxruntime.md#node-by-node). The version of the
domain is 1. T is the type of X."""


def page() -> str:
    """The text of docs/versions.md."""
    return "\n".join([HEAD, *(line for domain in DOMAINS for line in _domain(domain)), *_unpool_domain()])


def _domain(domain: str) -> list[str]:
    lines = [
        f"## {NAMES[domain]}",
        "",
        "| version | attributes | types | inputs | outputs | meaning |",
        "|---|---|---|---|---|---|",
    ]
    for operator in OPERATORS:
        older: frozenset[str] = frozenset()
        for version in versions_of(operator, domain):
            lines.append(_line(version, older))
            older = frozenset((*version.attributes, *version.value_types))
    return [*lines, ""]


def _unpool_domain() -> list[str]:
    lines = [OWN, "", "| operator | inputs | outputs | attributes | types T |", "|---|---|---|---|---|"]
    for operator in unpool_domain.OPERATORS.values():
        attributes = (
            _word(name, name in operator.version.required, frozenset()) for name in sorted(operator.attributes)
        )
        types = ", ".join(operator.version.value_types)
        tensors = (_tensors(operator.inputs), _tensors(operator.outputs))
        lines.append(f"| {' | '.join((f'{operator.name}: {operator.text}', *tensors, ', '.join(attributes), types))} |")
    return [*lines, ""]


def _tensors(tensors: tuple[unpool_domain.Tensor, ...]) -> str:
    words = []
    for each in tensors:
        kind = "" if each.type == "T" else f", {each.type}"
        words.append(f"{'optional ' if each.is_optional else ''}{each.name}: {each.text}{kind}")
    return "<br>".join(words)


def _line(version: OperatorVersion, older: frozenset[str]) -> str:
    cells = (
        f"{version.operator}-{version.since_version}",
        ", ".join(_word(name, name in version.required, older) for name in sorted(version.attributes)),
        ", ".join(_word(name, False, older) for name in version.value_types),
        _count(version.min_inputs, version.max_inputs),
        _count(version.min_outputs, version.max_outputs),
        "; ".join(sorted(switch.value for switch in version.switches)),
    )
    return f"| {' | '.join(cells)} |"


def _word(name: str, is_required: bool, older: frozenset[str]) -> str:
    text = f"{name}*" if is_required else name
    return f"_{text}_" if older and name not in older else text


def _count(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"


if __name__ == "__main__":
    write(PAGE, page().encode())
