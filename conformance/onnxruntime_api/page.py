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
# For scripts written for onnxruntime

Written by `python -m conformance.onnxruntime_api` with onnxruntime {onnxruntime}, on its CPU build.

```python
import unpool as ort
```

**The same.** A session is made from a path or from bytes, with the SessionOptions, providers and provider options of
onnxruntime; `run`, `get_inputs`, `get_outputs` and the metadata are what a script knows. unpool runs MaxUnpool,
ConvTranspose and MaxPool with Indices itself and leaves the other nodes to onnxruntime, so its operators, types and
graph optimisations stay.

**Better.** Every version of the three operators runs, in types that onnxruntime refuses too, as the standard has it
([differences](differences.md)). An array in foreign byte order is refused, not misread. What the three operators give
does not depend on the number of threads. Errors say what to do, in sentences that have the key words of onnxruntime's,
such as "Required inputs" or "Invalid rank for input". `print(session.plan)` says which node runs where and why.
[Speed](speed.md) has the times, and [Error messages](error-messages.md) what onnxruntime refuses and unpool runs.

**Different.** `get_providers` begins with `UnpoolExecutionProvider`. Sums of ConvTranspose may be rounded differently;
`exact=True` forms every product as it is written. A MaxPool without Indices is left to onnxruntime unless `exact=True`.
`ort.__version__` is unpool's. Private attributes that libraries read, such as `_providers`, are there; but `_sess` is
no session of onnxruntime's where unpool runs nodes.

**In the table.** *same*: the same answer, or an exception that a script catches by onnxruntime's class. *differs*:
another answer, which the note has. *missing*: no such name. *ignored*: taken, without the effect that onnxruntime
shows. `114.0` is the sum of the output of a small model, run with the method or option. Where results cannot show an
option, the note says what was looked at.

**Releases.** The behaviour that the tests of this table pin, `tests/onnxruntime_api`, was run with onnxruntime 1.22.0,
1.23.2, 1.24.4, 1.25.1, 1.26.0, 1.27.0, 1.28.0, 1.29.0, 1.30.0, 1.31.1 and 1.32.0. A name that a release lacks is
missing here too. Where an older release did otherwise, unpool does as 1.31 does: what an asynchronous run reads is kept
until the answer, and the memory of an input is not given out as an output.

**Operators of your own.** A library of operators is registered with the options, as with onnxruntime, and the
partitions have it; so a model may mix them with MaxUnpool. This ran with onnxruntime-extensions 0.15.2, with the
results that onnxruntime gives:

*Not run by the tests: onnxruntime-extensions is not among their packages.*

```python
from onnxruntime_extensions import get_library_path

options = ort.SessionOptions()
options.register_custom_ops_library(get_library_path())
session = ort.InferenceSession("model.onnx", options)
```

Scripts to try lie in [examples/onnxruntime](../examples/onnxruntime/README.md).
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
