"""`python -m conformance.export_matrix`: every module case through both exporters of torch, into docs/export.md.

The cases and the judge are those of the tests (`export_cases`, `export_judge`). Exit codes: 0 done; 1 something is
wrong.
"""

import argparse
import logging
import platform
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TypeAlias

import torch

from conformance import ROOT
from conformance.run import say
from tests.cases.exports import CASES
from tests.support.export_judge import EXPORTERS, Verdict, judge
from unpool.files import write

PAGE = ROOT / "docs" / "export.md"
OPSETS = (9, 11, 13, 17, 20, 22, 25)
PACKAGES = ("torch", "onnxscript", "onnx", "onnxruntime", "unpool")
SIGNS = {"equal": "=", "unpool only": "u", "unsupported": "–", "no export": "✗", "wrong": "≠"}
DETAIL = re.compile(r"(\(\d+\))? node with name '[^']*'|->\S+|of opset \d+ ")

HEAD = """\
# Export matrix

For users of `unpool.torch.export`: find the module that is most like yours, and see which exporter and opset write it.
Written by `python -m conformance.export_matrix` on {date} with {versions}, Python {python}.

`unpool.torch.export` exports each of {cases} modules with both exporters of torch, for these opsets.

- **=** The file has the requested opset and passes onnx.checker. Every unpool is one MaxUnpool and every pool one
  MaxPool, with a second output only if indices are used. onnxruntime and unpool give torch's results: bit for bit;
  within 1e-5 of the largest value for ConvTranspose, and 1e-4 for networks. Modules with a dynamic batch or size run
  with other sizes too.
- **u** The same, but only unpool runs the file, not onnxruntime.
- **–** An UnsupportedError, which says why, and what works.
- **✗** torch's exporter fails.
- **≠** The file or a result is wrong.

The last column counts the files on which onnx's ReferenceEvaluator agrees too. It has [bugs](differences/index.md), and
it interprets indices with `output_shape` differently, so it differs where sizes are dynamic and odd.
"""

Matrix: TypeAlias = Mapping[tuple[str, str, int], Verdict]


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge all cases, write the page if it is the whole matrix, and list what is wrong."""
    parser = argparse.ArgumentParser("python -m conformance.export_matrix", description="Export, run, compare.")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="cases whose name holds this; prints instead of writing"
    )
    given = parser.parse_args(arguments)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    names = [name for name in CASES if given.only in name]
    matrix: dict[tuple[str, str, int], Verdict] = {}
    for at, name in enumerate(names):
        say(f"{at + 1}/{len(names)} {name}")
        for exporter, dynamo in EXPORTERS.items():
            for opset in OPSETS:
                matrix[name, exporter, opset] = judge(CASES[name], dynamo, opset)
    text = page(names, matrix)
    if given.only:
        sys.stdout.write(text)
    else:
        write(PAGE, text.encode())
        say(f"wrote {PAGE}")
    return int(any(verdict.outcome == "wrong" for verdict in matrix.values()))


def page(names: Sequence[str], matrix: Matrix) -> str:
    """The text of docs/export.md."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    head = HEAD.format(
        date=f"{datetime.now(UTC):%Y-%m-%d}", versions=versions, python=platform.python_version(), cases=len(names)
    )
    return "\n".join([head, *summary(matrix), "", *table(names, matrix), "", *reasons(matrix)]).rstrip() + "\n"


def summary(matrix: Matrix) -> Iterator[str]:
    """How many cases end how, per exporter and opset."""
    yield "## Summary"
    yield ""
    yield row("exporter", *OPSETS)
    yield row(*["---"] * (len(OPSETS) + 1))
    for exporter in EXPORTERS:
        cells = []
        for opset in OPSETS:
            found = Counter(
                verdict.outcome for (_, one, at), verdict in matrix.items() if (one, at) == (exporter, opset)
            )
            cells.append(" ".join(f"{found[outcome]}{sign}" for outcome, sign in SIGNS.items() if found[outcome]))
        yield row(f"`{exporter}`", *cells)


def table(names: Sequence[str], matrix: Matrix) -> Iterator[str]:
    """One line per case."""
    yield "## Cases"
    for exporter in EXPORTERS:
        yield from ("", f"### `{exporter}`", "")
        yield row("module", *OPSETS, "reference")
        yield row("---", *[":-:"] * (len(OPSETS) + 1))
        for name in names:
            verdicts = [matrix[name, exporter, opset] for opset in OPSETS]
            asked = [verdict.reference for verdict in verdicts if verdict.reference is not None]
            agreed = f"{sum(asked)}/{len(asked)}" if asked else ""
            yield row(name, *(SIGNS[verdict.outcome] for verdict in verdicts), agreed)


def reasons(matrix: Matrix) -> Iterator[str]:
    """The messages behind all that is not equal, each once."""
    yield "## Messages"
    yield ""
    yield row("", "message", "modules", "files")
    yield row(*["---"] * 4)
    found: dict[tuple[str, str], dict[str, set[str]]] = {}
    for (name, exporter, opset), verdict in matrix.items():
        if verdict.outcome != "equal":
            message = DETAIL.sub("", verdict.reason).replace("|", "\\|")
            found.setdefault((verdict.outcome, message), {}).setdefault(name, set()).add(f"`{exporter}` {opset}")
    for (outcome, message), cases in found.items():
        files = sorted(set().union(*cases.values()), key=lambda text: (text.split()[0], int(text.split()[1])))
        yield row(SIGNS[outcome], message, "; ".join(cases) if len(cases) <= 5 else len(cases), ", ".join(files))


def row(*cells: object) -> str:
    """One line of a table."""
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    sys.exit(main())
