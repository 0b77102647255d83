"""The passes of a session that change outputs: sessions run the first passes only, one pass more each time."""

from collections.abc import Iterator

from unpool.numerics import diff_arrays
from unpool.onnxruntime.passes import PASSES
from unpool.operators.semantics import Semantics
from unpool.runtime.compare.align import ComparableModel
from unpool.runtime.compare.records import PassChange
from unpool.runtime.runtimes import Feed, session_run, unpool_session


def bisect_passes(model: ComparableModel, semantics: Semantics, feed: Feed) -> Iterator[PassChange]:
    """The passes that change an output, in their order, each compared with the session without it and later ones.

    The passes that a model may need to run at all run in every session.
    """
    optional = [each.name for each in PASSES if not each.is_needed]
    names = [value.name for value in model.model.graph.output]
    before = session_run(unpool_session(model.model, semantics, optional))(feed)
    for count, name in enumerate(optional, 1):
        outputs = session_run(unpool_session(model.model, semantics, optional[count:]))(feed)
        diffs = dict(zip(names, map(diff_arrays, before, outputs), strict=True))
        worst = max(diffs, key=lambda output: diffs[output].error)
        if any(diff.kind != "equal" for diff in diffs.values()):
            yield PassChange(name, worst, diffs[worst])
        before = outputs
