"""docs/onnxruntime.md: how a script moves from onnxruntime to unpool, and what each answered to every probe."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from conformance import ROOT
from conformance.onnxruntime_api import of_options, of_session, of_values
from conformance.onnxruntime_api.probe import Answer, Probe, Verdict, judged

PAGE = ROOT / "docs" / "onnxruntime.md"
SECTIONS: Mapping[str, Sequence[Probe]] = of_session.SECTIONS | of_options.SECTIONS | of_values.SECTIONS
LONGEST = 60

HEAD = """\
# Compatibility with onnxruntime, name by name

Written by `python -m conformance.onnxruntime_api` with onnxruntime {onnxruntime}, on its CPU build.

```python
import unpool as ort
```

**The same.** A session loads a path or bytes, and takes onnxruntime's SessionOptions, providers and provider options.
`run`, `get_inputs`, `get_outputs` and the metadata are those of onnxruntime. unpool computes MaxUnpool, ConvTranspose
and MaxPool with Indices; onnxruntime computes all other nodes, with its operators, types and graph optimisations.

**Better.** Every version of the three operators follows the standard, also for types that onnxruntime does not support
([differences](differences/index.md)). An array in the other byte order is an error; onnxruntime misreads it. Results of
the three operators do not depend on the number of threads. Error messages contain the key words of onnxruntime's, such
as "Required inputs" or "Invalid rank for input", and say what to change. `print(session.plan)` shows where each node
runs, and why. [Speed](speed.md) has times; [Error messages](error-messages.md) lists what runs in unpool only.

**Different.** `get_providers` begins with `UnpoolExecutionProvider`. Sums of ConvTranspose may round differently;
`exact=True` computes every product as ONNX defines it. Unless `exact=True`, onnxruntime computes a MaxPool without
Indices, and a ConvTranspose where unpool [saves too little time](decisions/0013-whole-models.md). `ort.__version__` is
unpool's. Private attributes that libraries read, such as `_providers`, exist, but `_sess` is not onnxruntime's session
if unpool computes nodes.

**Words of the tables.** *same*: the same result, or an exception that `except` catches by onnxruntime's class.
*differs*: another result, shown in the note. *missing*: no such name. *ignored*: accepted, without the effect that it
has in onnxruntime. `114.0` is the sum of the output of a small model that ran with the method or option. If results
cannot show an option's effect, the note names what was compared.

**Releases.** The tests of these tables, `tests/onnxruntime_api`, pass with onnxruntime 1.26.0, 1.27.0, 1.28.0, 1.29.0,
1.30.0, 1.31.1 and 1.32.0. unpool has the names that the installed release has. Where releases differ, unpool behaves as
1.31 does: the inputs of an asynchronous run stay alive until its callback, and an output never shares memory with an
input.

**Custom operators.** Register a library of custom operators in the SessionOptions, as with onnxruntime. A model may mix
them with MaxUnpool. onnxruntime-extensions 0.15.2 gave the same results in both:

*Not run by the tests: onnxruntime-extensions is not among their packages.*

```python
from onnxruntime_extensions import get_library_path

options = ort.SessionOptions()
options.register_custom_ops_library(get_library_path())
session = ort.InferenceSession("model.onnx", options)
```

[examples/onnxruntime](../examples/onnxruntime/README.md) has scripts to try.
"""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    theirs: str
    verdict: Verdict
    note: str

    def __str__(self) -> str:
        return row(f"`{self.name}`" if is_code(self.name) else self.name, self.theirs, self.verdict, self.note)


def row_of(probe: Probe, theirs: Any, ours: Any) -> Row:
    """The line of a probe."""
    verdict, expected, got = judged(probe, theirs, ours)
    notes = [probe.note] * bool(probe.note)
    if verdict is Verdict.DIFFERS:
        notes.append(f"unpool: {text(got)}")
    return Row(probe.name, text(expected), verdict, "; ".join(notes))


def page(rows: Mapping[str, Sequence[Row]]) -> str:
    """The text of the page."""
    return "\n".join([HEAD.format(onnxruntime=version("onnxruntime")), *summary(rows), *tables(rows)]).rstrip() + "\n"


def summary(rows: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """How many lines of a section have which verdict."""
    yield "## Summary"
    yield ""
    yield row("", *Verdict)
    yield row("---", *["--:"] * len(Verdict))
    for section, lines in rows.items():
        found = Counter(line.verdict for line in lines)
        yield row(f"[{section}](#{section.lower().replace(' ', '-')})", *(found[one] or "" for one in Verdict))
    yield ""


def tables(rows: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """A table per section."""
    for section, lines in rows.items():
        yield f"## {section}"
        yield ""
        yield row("", "onnxruntime", "unpool", "note")
        yield row(*["---"] * 4)
        yield from map(str, lines)
        yield ""


def text(answer: Answer) -> str:
    r"""An answer in a cell.

    >>> text(Answer([1, "a|b"])), text(Answer(raised=("Fail", "Exception")))
    ("`[1, 'a\\|b']`", 'raises `Fail`')
    """
    if answer.raised:
        return f"raises `{answer.raised[0]}`"
    words = repr(answer.value).replace("|", "\\|")
    return f"`{words if len(words) <= LONGEST else words[:LONGEST] + ' …'}`"


def is_code(name: str) -> bool:
    """Whether a name is one of Python or of an entry, not words.

    >>> is_code("session.load_model_format"), is_code("a missing file")
    (True, False)
    """
    return " " not in name


def row(*cells: object) -> str:
    """One line of a table."""
    return f"| {' | '.join(map(str, cells))} |"
