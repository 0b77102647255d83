"""Compares runtimes on one model, or two models: outputs, and value by value in the order of the nodes.

>>> from onnx import parser
>>> model = parser.parse_model('''
...     <ir_version: 8, opset_import: ["" : 17]>
...     half (float[1, 1, 4, 4] x) => (float[1, 1, 2, 2] y) {
...         r = Relu (x)
...         y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
...     }''')
>>> comparison = compare(model, against=["reference"])
>>> comparison.differs, [(value.value, value.diff.kind) for value in comparison.reports[0].values]
(False, [('r', 'equal'), ('y', 'equal')])
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from unpool.display import format_shape
from unpool.errors import UnpoolError, suggest_name
from unpool.graph import shapes
from unpool.graph.errors import model_errors, source_name
from unpool.graph.graph import to_dense
from unpool.graph.load import ModelSource
from unpool.graph.nodes import has_subgraphs, node_name
from unpool.graph.weights import array_of
from unpool.numerics import ROUNDING, Tolerance, narrowest_float
from unpool.operators.semantics import Semantics
from unpool.runtime.compare import align, bisect
from unpool.runtime.compare.records import Comparison, RuntimeReport, ValueDiff
from unpool.runtime.compare.runtimes import NAMES, TORCH, UNPOOL, RuntimeValues, find_runtime, run_model, run_nodes
from unpool.runtime.rewrite.verify import runs
from unpool.runtime.runtimes import Feed, session_run, unpool_session


def compare(  # noqa: PLR0913  options by keyword only, those of a session among them
    model: ModelSource,
    other: ModelSource | None = None,
    *,
    against: Sequence[str] | None = None,
    feed: Feed | None = None,
    sizes: Mapping[str, int] | None = None,
    tolerance: Tolerance = ROUNDING,
    compat: str = "spec",
    index_space: str = "auto",
    exact: bool = False,
    bisect_passes: bool = False,
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
        sizes: for dynamic dimensions by name, where inputs are random; for other dynamic dimensions several are tried.
        tolerance: largest difference at which two values agree; one by type is that of the narrowest float type on the
            way from the inputs to a value.
        compat: how unpool reads the model where the standard's text and onnxruntime differ.
        index_space: in which tensor MaxUnpool's indices count, for unpool.
        exact: makes unpool run every MaxPool, and form every product as it is written.
        bisect_passes: also run the first model with one pass more each time, to find those that change an output.

    Returns:
        a report for each runtime; a node that it does not run is part of its report.

    Raises:
        UnpoolError: unpool itself cannot read or run the model; an unknown or missing runtime; a wrong tolerance.
    """
    names = _runtime_names(against, other)
    semantics = Semantics(compat, index_space, exact)
    runtimes = [find_runtime(name, semantics) for name in names if name != TORCH]
    with model_errors(model):
        first = second = align.load_for_comparison(model, semantics)
    if other is not None:
        with model_errors(other):
            second = align.load_for_comparison(other, semantics)
    with model_errors(model):
        inputs, expected = _run_first(first, semantics, feed, {**_sizes_of(second, first), **(sizes or {})})
    known = {name: array_of(tensor) for name, tensor in {**first.graph.defaults, **first.graph.constants}.items()}
    known |= {name: to_dense(tensor) for name, tensor in first.graph.sparse_constants.items()}
    known |= inputs
    second_inputs = {name: inputs[own] for own, name in _match_inputs(second, list(inputs)).items()}
    if other is not None:
        _require_same_inputs(second, second_inputs, source_name(model), source_name(other))
    pairs = None if other is None else align.match_values(first, second, zip(inputs, second_inputs, strict=True))
    reports = {}
    for runtime in runtimes:
        result = run_model(runtime, second, second_inputs)
        reports[runtime.word] = _report(runtime.name, result, (first, second), known, expected, tolerance, pairs)
    if TORCH in names:
        reports[TORCH] = run_nodes(first, known, expected.values, semantics, tolerance)
    subgraphs = [node_name(node) for node in first.graph.nodes if has_subgraphs(node)]
    described = [
        f"{name} {format_shape(array.shape)} {array.dtype}" if isinstance(array, np.ndarray) else name
        for name, array in inputs.items()
    ]
    return Comparison(
        tuple(source_name(source) for source in (model, other) if source is not None),
        find_runtime(UNPOOL, semantics).name,
        tuple(described),
        tuple(reports[name] for name in names),
        (f"as one node each, whatever is inside: {', '.join(subgraphs)}",) if subgraphs else (),
        tuple(bisect.bisect_passes(first, semantics, inputs)) if bisect_passes else None,
    )


def _runtime_names(against: Sequence[str] | None, other: ModelSource | None) -> tuple[str, ...]:
    names = (UNPOOL if other is not None else "onnxruntime",) if against is None else tuple(dict.fromkeys(against))
    for name in names:
        if name not in NAMES:
            raise UnpoolError(
                f"compare: against is some of {', '.join(NAMES)}; got {name!r}. {suggest_name(name, NAMES)}"
            )
        if name == TORCH and other is not None:
            raise UnpoolError("compare: torch computes single nodes of one model, got two models. Leave one out.")
    if not names:
        raise UnpoolError(f"compare: against needs one or more of {', '.join(NAMES)}; got none.")
    return names


def _run_first(
    model: align.ComparableModel, semantics: Semantics, feed: Feed | None, sizes: Mapping[str, int]
) -> tuple[Feed, RuntimeValues]:
    session = unpool_session(model.model, semantics)
    inputs, results = next(runs(session, sizes)) if feed is None else (feed, session_run(session)(feed))
    outputs = dict(zip((value.name for value in model.model.graph.output), results, strict=True))
    names = model.values()
    values = session_run(unpool_session(model.with_value_outputs(), semantics))(inputs) if names else []
    return inputs, RuntimeValues(outputs, dict(zip(names, values, strict=True)))


def _sizes_of(fixed: align.ComparableModel, model: align.ComparableModel) -> dict[str, int]:
    """The dynamic dimensions of a model by name, as the same inputs of another model fix them."""
    dims = {value.name: shapes.dims(value.type) for value in fixed.graph.inputs}
    own = {value.name: shapes.dims(value.type) for value in model.graph.inputs}
    try:
        names = _match_inputs(fixed, [name for name in own if name not in model.graph.defaults])
    except UnpoolError:
        return {}  # the number of inputs differs, so there will be no run
    sizes: dict[str, int] = {}
    for name, other in names.items():
        for dim, size in zip(own[name] or (), dims[other] or (), strict=False):
            if isinstance(dim, str) and isinstance(size, int):
                sizes.setdefault(dim, size)
    return sizes


def _match_inputs(model: align.ComparableModel, names: Sequence[str]) -> dict[str, str]:
    """The inputs of a model by the names of as many inputs of another model: the same names, or the same order."""
    own = [value.name for value in model.graph.inputs if value.name not in model.graph.defaults or value.name in names]
    if set(own) == set(names):
        return {name: name for name in names}
    if len(own) != len(names):
        raise UnpoolError(f"compare: the two models have inputs of different number: {list(names)} and {own}.")
    return dict(zip(names, own, strict=True))


def _require_same_inputs(model: align.ComparableModel, feed: align.Values, first_name: str, name: str) -> None:
    """Refuse the inputs of a first model that do not fit the inputs of another one, with the names of both."""
    for value in model.graph.inputs:
        array, dims, dtype = feed.get(value.name), shapes.dims(value.type), shapes.dtype(value.type)
        if not isinstance(array, np.ndarray) or dims is None:
            continue
        fits = len(dims) == array.ndim and all(
            not isinstance(dim, int) or dim == size for dim, size in zip(dims, array.shape, strict=True)
        )
        if not fits or array.dtype != dtype:
            raise UnpoolError(
                f"compare: input {value.name!r} of {name} is {format_shape(dims)} {dtype}, of {first_name} "
                f"{format_shape(array.shape)} {array.dtype}: the inputs differ. Export both models for the same ones."
            )


def _report(
    title: str,
    result: RuntimeValues,
    models: tuple[align.ComparableModel, align.ComparableModel],
    inputs: align.Values,
    expected: RuntimeValues,
    tolerance: Tolerance,
    pairs: Mapping[str, str] | None,
) -> RuntimeReport:
    """The results of a runtime, compared with those of unpool on these inputs and constants.

    `pairs` are the values of another model by the names of the first one's; those of other type or shape are left out.
    """
    own, values, (first, second) = expected.values, result.values, models
    if pairs is not None:
        theirs = {name: second.narrowest.get(other, "") for name, other in pairs.items()}
        narrowest = {name: narrowest_float((kind, theirs.get(name, ""))) for name, kind in first.narrowest.items()}
        first = replace(first, narrowest=narrowest)
        known = {name: values[other] for name, other in pairs.items() if name in own and other in values}
        values = {name: value for name, value in known.items() if _kind(value) == _kind(own[name])}
    outputs: tuple[ValueDiff, ...] = ()
    if result.outputs is not None:
        outputs = align.diff_outputs(*models, expected.outputs or {}, result.outputs, tolerance)
    diffs = tuple(align.diff_values(first, inputs, own, values, tolerance))
    unmatched = 0 if pairs is None else len(own) - len(diffs)
    return RuntimeReport(title, diffs, outputs, result.unsupported, pairs is not None, unmatched)


def _kind(value: Any) -> Any:
    return (value.dtype, value.shape) if isinstance(value, np.ndarray) else type(value)
