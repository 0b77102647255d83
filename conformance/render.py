"""docs/differences: an index and a page per operator from the results: the same results give the same text."""

from collections.abc import Iterator
from typing import Any

from conformance import summary
from conformance.examples import differences, example

Json = dict[str, Any]

PAGES = {"MaxPool": "max-pool.md", "MaxUnpool": "max-unpool.md", "ConvTranspose": "conv-transpose.md"}
"""The file of each operator's page, in the folder of the index."""

INDEX = """\
# Where runtimes differ

For everyone who needs to know where runtimes disagree, and which of them follows the standard. Every runtime runs the
same models, and its outputs are compared with the [contract](../semantics.md). Each model has one node: the examples of
the contract's tests and a few more, at each opset where the operator changes. The expected outputs come from slow loops
that share no code with unpool, so unpool is tested like the others. Each runtime runs in a process of its own.

`python -m conformance` writes these pages. It runs in a clone after `pip install -e '.[run,torch,conformance]'`; the
results are in `conformance/results.json`.
"""

CELLS = """\
Models with the contract's outputs, of all models that the runtime was given. A cell leads to the page of the operator,
filtered by the runtime.
"""

PASTE = """\
## Examples

One example per difference; where several models differ in the same way, the smallest. Paste this first:

```python
import ml_dtypes
import numpy as np
import onnx.parser
from numpy import inf, nan
```

then the example, then the line of a runtime:

```text
unpool.InferenceSession(model).run(None, feeds)
onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
onnx.reference.ReferenceEvaluator(model).run(None, feeds)
openvino.compile_model(openvino.Core().read_model(model.SerializeToString()), "CPU")(feeds)
onnx.shape_inference.infer_shapes(model, strict_mode=True)
```
"""


def pages(results: Json) -> dict[str, str]:
    """The text of every page by its file name: the index, and a page per operator.

    >>> sorted(pages({"date": "", "platform": "", "runtimes": [], "rules": {}, "questions": []}))
    ['index.md']
    """
    by_operator = summary.by_operator(results)
    texts = {"index.md": _index(results, by_operator)}
    for operator, questions in by_operator.items():
        texts[PAGES[operator]] = _operator_page({**results, "questions": questions}, operator)
    return {path: "\n".join(lines).rstrip("\n") + "\n" for path, lines in texts.items()}


def _index(results: Json, by_operator: dict[str, list[Json]]) -> Iterator[str]:
    yield INDEX
    yield from ("## Results", "", CELLS)
    yield from summary.operator_table(results, by_operator, PAGES)
    yield from ("", "## Runtimes", "")
    yield from summary.versions(results)
    yield from ("", "## Outcomes", "")
    yield from summary.legend()


def _operator_page(results: Json, operator: str) -> Iterator[str]:
    yield from (f"# Where runtimes differ: {operator}", "")
    yield "[All operators](index.md) · [the contract](../semantics.md) ·"
    yield "[versions of the runtimes](index.md#runtimes) · [outcomes](index.md#outcomes)"
    yield from ("", "## Rules", "", "The number of a rule leads to its examples.", "")
    yield from summary.rule_table(results)
    yield from ("", PASTE)
    titles = {runtime["name"]: runtime["title"] for runtime in results["runtimes"]}
    for number, title in results["rules"].items():
        differing = differences([question for question in results["questions"] if question["rule"] == number])
        if differing:
            yield from (f'<a id="rule-{number.replace(".", "-")}"></a>', "", f"### {number} {title}", "")
        for difference in differing:
            yield from example(difference, titles)
