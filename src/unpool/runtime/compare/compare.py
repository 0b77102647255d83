"""Compares runtimes on one model, or two models: outputs, and value by value in the order of the nodes.

>>> from onnx import parser
>>> model = parser.parse_model('''
...     <ir_version: 8, opset_import: ["" : 17]>
...     half (float[1, 1, 4, 4] x) => (float[1, 1, 2, 2] y) {
...         r = Relu (x)
...         y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
...     }''')
>>> done = compare(model, against=["reference"])
>>> done.departs, [(one.value, one.difference.kind) for one in done.peers[0].values]
(False, [('r', 'equal'), ('y', 'equal')])
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unpool.errors import UnpoolError, suggest_name
from unpool.runtime.compare.by_torch import by_torch
from unpool.runtime.compare.compared import Comparison, Peer
from unpool.runtime.compare.difference import Tolerance
from unpool.runtime.compare.matching import Values, compared_outputs, compared_values, correspondence
from unpool.runtime.compare.running import TORCH, UNPOOL, WORDS, Run, ours, run, runtime_of
from unpool.runtime.compare.stepwise import Stepwise, stepwise
from unpool.runtime.graph import shapes
from unpool.runtime.graph.errors import model_errors, source_name
from unpool.runtime.graph.graph import to_dense
from unpool.runtime.graph.load import ModelSource
from unpool.runtime.graph.nodes import has_subgraphs, node_name
from unpool.runtime.graph.semantics import Semantics
from unpool.runtime.graph.weights import array_of
from unpool.runtime.lower.runtimes import Feed
from unpool.runtime.rewrite.verify import runs
from unpool.runtime.session.executor import load_as_session

STANDARD = Tolerance()


def compare(  # noqa: PLR0913  options by keyword only, those of a session among them
    model: ModelSource,
    other: ModelSource | None = None,
    *,
    against: Sequence[str] | None = None,
    feed: Feed | None = None,
    sizes: Mapping[str, int] | None = None,
    tolerance: Tolerance = STANDARD,
    compat: str = "spec",
    index_space: str = "auto",
    exact: bool = False,
) -> Comparison:
    """Run a model in unpool, and the same or another model in other runtimes, and compare every value.

    Each runtime runs the model twice: as it is, for its outputs, and with the value of every node as an output. Outputs
    of two models are compared by name or, where they have other names, in their order, and they alone decide whether
    the models differ; values in between are compared where the same operators lead to both. "torch" runs no ONNX file:
    it computes each MaxPool, MaxUnpool and ConvTranspose alone, by torch's own functions, from the inputs that unpool
    has for it.

    Args:
        model: path of a model, its bytes, or a ModelProto, which is not changed.
        other: a second model for the other runtimes to run; None for the same.
        against: some of "unpool", "onnxruntime", "reference" (onnx's ReferenceEvaluator), "openvino" and "torch"; None
            for onnxruntime, or for unpool if there is another model.
        feed: an array for every input; None for random numbers.
        sizes: for names of sizes that the model leaves open, where numbers are random; others are tried.
        tolerance: what two values may differ by and still agree.
        compat: how unpool reads the model where the standard's text and onnxruntime differ.
        index_space: in which tensor MaxUnpool's indices count, for unpool.
        exact: whether unpool runs every MaxPool and forms every product as it is written.

    Returns:
        a record for each runtime; what a runtime refuses is part of its record, with the node.

    Raises:
        UnpoolError: unpool itself cannot read or run the model; an unknown or missing runtime; a wrong tolerance.
    """
    words = _words(against, other)
    semantics = Semantics(compat, index_space, exact)
    peers = [runtime_of(word, semantics) for word in words if word != TORCH]
    with model_errors(model):
        first = second = stepwise(model, semantics)
    if other is not None:
        with model_errors(other):
            second = stepwise(other, semantics)
    with model_errors(model):
        fed, expected = _first_run(first, semantics, feed, {**_sizes_of(second, first), **(sizes or {})})
    seen = {**_constants(first), **fed}
    given = _feed_of(second, fed)
    pairs = None if other is None else correspondence(first, second, zip(fed, given, strict=True))
    judge = _Judge(first, seen, expected, tolerance, pairs)
    found = {one.word: judge.peer(one.name, run(one, second, given)) for one in peers}
    if TORCH in words:
        found[TORCH] = by_torch(first, seen, expected.values, semantics, tolerance)
    names = tuple(source_name(one) for one in (model, other) if one is not None)
    return Comparison(
        names, ours(semantics).name, tuple(map(_text, fed.items())), tuple(found[word] for word in words), _notes(first)
    )


def _words(against: Sequence[str] | None, other: ModelSource | None) -> tuple[str, ...]:
    """The runtimes that are asked for, each once.

    Raises:
        UnpoolError: an unknown word, or one that says nothing here.
    """
    words = (UNPOOL if other is not None else "onnxruntime",) if against is None else tuple(dict.fromkeys(against))
    for word in words:
        if word not in WORDS:
            raise UnpoolError(
                f"compare: against is some of {', '.join(WORDS)}; got {word!r}. {suggest_name(word, WORDS)}"
            )
        if word == TORCH and other is not None:
            raise UnpoolError("compare: torch computes single nodes of one model, got two models. Leave one out.")
    if not words:
        raise UnpoolError(f"compare: against needs one of {', '.join(WORDS)}, got none. Name one.")
    return words


def _first_run(model: Stepwise, semantics: Semantics, feed: Feed | None, sizes: Mapping[str, int]) -> tuple[Feed, Run]:
    """What is fed, and what unpool makes of it."""
    loaded = load_as_session(model.model, semantics)
    fed, made = next(runs(loaded, sizes)) if feed is None else (feed, loaded.run(None, feed))
    outputs = dict(zip((value.name for value in model.model.graph.output), made, strict=True))
    names = model.values()
    values = load_as_session(model.exposed(), semantics).run(None, fed) if names else []
    return fed, Run(outputs, dict(zip(names, values, strict=True)))


def _constants(model: Stepwise) -> dict[str, Any]:
    """The constants of a model as arrays."""
    found = {name: array_of(tensor) for name, tensor in {**model.graph.defaults, **model.graph.constants}.items()}
    return found | {name: to_dense(tensor) for name, tensor in model.graph.sparse_constants.items()}


def _sizes_of(fixed: Stepwise, model: Stepwise) -> dict[str, int]:
    """Sizes that a model leaves open, by name, as the same input of another one has them."""
    dims = {value.name: shapes.dims(value.type) for value in fixed.graph.inputs}
    own = {value.name: shapes.dims(value.type) for value in model.graph.inputs}
    try:
        names = _names_of(fixed, [name for name in own if name not in model.graph.defaults])
    except UnpoolError:
        return {}  # with an input more, or less, there is no run
    found: dict[str, int] = {}
    for name, other in names.items():
        for size, number in zip(own[name] or (), dims[other] or (), strict=False):
            if isinstance(size, str) and isinstance(number, int):
                found.setdefault(size, number)
    return found


def _feed_of(model: Stepwise, feed: Feed) -> Feed:
    """What is fed, under the names of the inputs of another model.

    Raises:
        UnpoolError: it has more inputs, or fewer.
    """
    return {other: feed[name] for name, other in _names_of(model, list(feed)).items()}


def _names_of(model: Stepwise, fed: Sequence[str]) -> dict[str, str]:
    """The names that inputs have in another model, which has the same names or the same order.

    Raises:
        UnpoolError: it has more inputs, or fewer.
    """
    names = [value.name for value in model.graph.inputs if value.name not in model.graph.defaults or value.name in fed]
    if set(names) == set(fed):
        return {name: name for name in fed}
    if len(names) != len(fed):
        raise UnpoolError(f"compare: two models need as many inputs, got {list(fed)} and {names}. Give another model.")
    return dict(zip(fed, names, strict=True))


@dataclass(frozen=True)
class _Judge:
    """Compares runs with the first one.

    Attributes:
        model: that was run first.
        seen: its inputs and constants.
        expected: what unpool made of it.
        tolerance: what values may differ by.
        pairs: for another model, its values by the names of the first one's; None for the same model.
    """

    model: Stepwise
    seen: Values
    expected: Run
    tolerance: Tolerance
    pairs: Mapping[str, str] | None

    def peer(self, name: str, got: Run) -> Peer:
        """The record of a run."""
        outputs = (
            () if got.outputs is None else compared_outputs(self.expected.outputs or {}, got.outputs, self.tolerance)
        )
        values = tuple(compared_values(self.model, self.seen, self.expected.values, self._renamed(got), self.tolerance))
        missing = 0 if self.pairs is None else len(self.expected.values) - len(values)
        return Peer(name, values, outputs, got.refusals, is_other=self.pairs is not None, unmatched=missing)

    def _renamed(self, got: Run) -> Values:
        """The values of a run by the names of the first one; of another model those of the same type and shape."""
        if self.pairs is None:
            return got.values
        known = self.expected.values
        found = {name: got.values[other] for name, other in self.pairs.items() if name in known and other in got.values}
        return {name: one for name, one in found.items() if _kind(one) == _kind(known[name])}


def _kind(value: Any) -> Any:
    """Type and shape of an array; the type of anything else."""
    return (value.dtype, value.shape) if isinstance(value, np.ndarray) else type(value)


def _notes(model: Stepwise) -> tuple[str, ...]:
    names = [node_name(node) for node in model.graph.nodes if has_subgraphs(node)]
    return (f"as one node each, whatever is inside: {', '.join(names)}",) if names else ()


def _text(named: tuple[str, Any]) -> str:
    name, array = named
    if not isinstance(array, np.ndarray):
        return name
    return f"{name} {'x'.join(map(str, array.shape)) or 'scalar'} {array.dtype}"
