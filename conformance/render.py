"""docs/differences.md from the results: every word of it is written here or comes from the run."""

from collections.abc import Iterator
from typing import Any

from conformance import summary
from conformance.examples import differences, example

Json = dict[str, Any]

HEAD = """\
# Where runtimes differ

Written by `python -m conformance`, which asks every runtime every question and compares the answers with the
[contract](semantics.md). To write it again, run that in the root of the repository after
`pip install -e '.[run,torch,conformance]'`; the numbers behind it are in `conformance/results.json`.

The questions are models of one node: the examples of the contract's tests and a few more, at the opsets where the
operator changes. The contract's answers come from slow loops that share no code with unpool, so unpool is judged like
the others. Each runtime runs in a process of its own.
"""

PASTE = """\
## Examples

One for every difference, smallest model first where several differ in the same way. To paste one, start with this:

```python
import ml_dtypes
import numpy as np
import onnx.parser
from numpy import inf, nan
```

and after the example, one of these:

```text
unpool.InferenceSession(model).run(None, feeds)
onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
onnx.reference.ReferenceEvaluator(model).run(None, feeds)
openvino.compile_model(openvino.Core().read_model(model.SerializeToString()), "CPU")(feeds)
onnx.shape_inference.infer_shapes(model, strict_mode=True)
```
"""


def page(results: Json) -> str:
    """The whole text; the same results give the same text."""
    return "\n".join(lines(results)).rstrip("\n") + "\n"


def lines(results: Json) -> Iterator[str]:
    """Line after line."""
    yield HEAD
    yield from summary.versions(results)
    yield from ("", "## Legend", "")
    yield from summary.legend()
    yield from ("", "## Summary", "")
    yield "A rule's number leads to its examples. Bold rows count the equal answers of a section."
    yield ""
    yield from summary.table(results)
    yield from ("", PASTE)
    titles = {runtime["name"]: runtime["title"] for runtime in results["runtimes"]}
    for number, title in results["rules"].items():
        found = differences([question for question in results["questions"] if question["rule"] == number])
        if found:
            yield f'<a id="rule-{number.replace(".", "-")}"></a>'
            yield ""
            yield f"### {number} {title}"
            yield ""
        for difference in found:
            yield from example(difference, titles)
