"""Random models in `unpool.InferenceSession` and in `onnxruntime.InferenceSession`: equal outputs, or equal errors.

    python -m tools.campaigns.session_models --count 10000 --seed 1

What onnxruntime runs, the session has to run, and to give the same bits: all sums of these models are exact. Only
values that a model rounds on the way may differ by rounding. Where a result differs, `compat="ort"` tells a point in
which unpool follows the standard from a fault. A pass that fails, and a model that onnxruntime refuses after the passes
only, are faults. Every other model runs with the thresholds of passes at zero, and every third with large weights only,
as small models stand for large ones.

A model in a file is loaded twice: the later session is to give what the first one gave.

Models run in processes that live long; one that ends its process is a fault, unless onnxruntime ends there, too.
"""

import argparse
import faulthandler
import logging
import sys
import tempfile
import warnings
from collections import Counter
from itertools import compress
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import onnxruntime

import unpool
from tools.campaigns.onnxruntime_model_cases import ModelCase, every_node
from tools.campaigns.onnxruntime_models import by_evaluator, options_of, outcomes
from tools.campaigns.processes import run_models, work
from tools.campaigns.session_model_cases import case
from tools.campaigns.session_model_forms import disguise, source_of
from unpool.errors import UnpoolError
from unpool.graph import weights
from unpool.onnxruntime import passes, placement, stored_model
from unpool.passes import convert_conv, fuse_snake, reduce_strength

PROGRAM = ("-m", "tools.campaigns.session_models")
SECONDS = 120  # of a model; then its process ends
ROUNDING = 1e-4  # of the largest value of an output, for values that a model rounds
WRONG_SIZES = "Can't merge shape info", "[ShapeInferenceError] Incompatible dimensions"
"""What onnxruntime says of a model that states a size as onnx infers it, and no run has it."""
ROUNDS = {
    "InstanceNormalization",
    "GroupNormalization",
    "Sin",
    "Elu",
    "Mish",
    "Softmax",
    "LogSoftmax",
    "Softplus",
    "QuickGelu",
}
"""Operators whose results are no exact sums."""
SUMS = {*ROUNDS, "ConvTranspose", "Conv", "MaxPool"}
"""Operators of which a kernel may give another zero: its sum begins with one, or both zeros are largest elements."""


class Log(logging.Handler):
    """The messages of unpool while a session is made."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def counted(counts: Counter[str]) -> tuple[passes.Pass, ...]:
    """The passes, which count the models that they change."""

    def run(each: passes.Pass, model: Any, context: Any) -> Any:
        changed = each.run(model, context)
        counts[f"changed by {each.name}"] += changed is not model
        return changed

    return tuple(
        each._replace(run=lambda model, context, each=each: run(each, model, context)) for each in passes.PASSES
    )


def eager() -> list[Any]:
    """Patches by which passes and placement take small models for large ones."""
    nothing = ((fuse_snake, "LEAST_SIZE"), (reduce_strength, "LEAST_SIZE"))
    nothing += tuple((convert_conv, name) for name in ("NODE_COST", "ELEMENT_COST", "LINE_ELEMENT_COST"))
    return [
        *(mock.patch.object(module, name, 0) for module, name in nothing),
        mock.patch.object(convert_conv, "cost", return_value=0),
        mock.patch.object(placement, "is_faster_in_unpool", return_value=True),
    ]


def large() -> list[Any]:
    """A patch by which small weights are large ones, which go to onnxruntime as values."""
    return [mock.patch.object(weights, "LARGE", 16)]


def difference(got: Any, expected: Any) -> str:
    """How an output differs; "" where it does not, "zero" by the sign of a zero alone, "rounding" within tolerance."""
    if type(got).__name__ == type(expected).__name__ == "SparseTensor":
        got, expected = got.values(), expected.values()
    if type(got) is not type(expected) or not isinstance(got, np.ndarray):
        is_equal = isinstance(got, list) and isinstance(expected, list) and len(got) == len(expected)
        parts = [difference(*pair) for pair in zip(got, expected, strict=True)] if is_equal else ["type"]
        return next(filter(None, parts), "")
    if (got.dtype, got.shape) != (expected.dtype, expected.shape):
        return f"type or shape: {got.dtype} {got.shape}, expected {expected.dtype} {expected.shape}"
    if got.dtype.kind != "f":
        return "" if np.array_equal(got, expected) else "values"
    if np.array_equal(got, expected, equal_nan=True):
        is_number = ~np.isnan(got)
        return "" if np.array_equal(np.signbit(got)[is_number], np.signbit(expected)[is_number]) else "zero"
    both = got.astype(np.float64), expected.astype(np.float64)
    limit = ROUNDING * max(1.0, np.abs(both[1][np.isfinite(both[1])]).max(initial=0))
    with np.errstate(all="ignore"):
        if np.allclose(*both, rtol=0, atol=limit, equal_nan=True):
            return "rounding"
    place = tuple(np.argwhere(~np.isclose(*both, rtol=0, atol=limit, equal_nan=True))[0])
    return f"values: {got[place]}, expected {expected[place]}"


def short(error: Any) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def classes(error: Exception) -> set[str]:
    """The names of the classes of an error."""
    return {each.__name__ for each in type(error).__mro__}


def verdict(got: Any, expected: Any, allowed: set[str], *, is_refused: bool = False) -> tuple[str, bool]:
    """How a run went, in words, and if it is a fault.

    Args:
        got: the outputs of unpool's session, or the error.
        expected: those of onnxruntime.
        allowed: differences that are none of the session's.
        is_refused: onnxruntime does not load the model.
    """
    if isinstance(expected, Exception):
        if not isinstance(got, Exception):
            return "onnxruntime refuses, unpool runs", False
        if type(expected).__name__ in classes(got):
            return "both refuse", False
        if is_refused and (not isinstance(got, UnpoolError) or any(words in str(got) for words in WRONG_SIZES)):
            return "onnxruntime refuses the model, unpool the values", False
        if "while running" in str(got) and "while running" in str(expected):  # maybe in another node
            return "both refuse in a run, in other words", False
        return f"both refuse: {short(got)}; expected {short(expected)}", True
    if isinstance(got, Exception):
        return f"refused: {short(got)}", True
    found = [difference(*pair) for pair in zip(got, expected, strict=True)]
    words = {each for each in found if each}
    if words - allowed:
        return f"outputs {[place for place, each in enumerate(found) if each]}: {' / '.join(sorted(words))}", True
    return " and ".join(sorted(words)) or "equal", False


def about(session: Any) -> list[Any]:
    """What a session says of its model; sizes of outputs may be known better."""
    values = (session.get_inputs(), session.get_overridable_initializers())
    parts: list[Any] = [[(value.name, value.type, value.shape) for value in each] for each in values]
    meta = session.get_modelmeta()
    words = (
        "custom_metadata_map",
        "description",
        "domain",
        "graph_description",
        "graph_name",
        "producer_name",
        "version",
    )
    ends = [(value.name, value.type) for value in session.get_outputs()]
    return [*parts, ends, session.get_providers(), [getattr(meta, word) for word in (*words, "version")]]


def create(made: ModelCase, source: Any, compat: str, log: Log | None = None) -> Any:
    """A function that runs the model in unpool's session."""
    more = {"exact": made.settings["exact"], "compat": compat}
    session = unpool.InferenceSession(source, options_of(made.settings), **more)
    made.settings["unpool"] = about(session)
    made.settings["stored"] = session._stored is not None
    return lambda feed: session.run(None, feed)


def alone(made: ModelCase, source: Any, settings: dict[str, Any] | None = None) -> Any:
    """A function that runs the model in onnxruntime's session."""
    session = onnxruntime.InferenceSession(source, options_of(settings or made.settings), enable_fallback=False)
    made.settings["onnxruntime"] = about(session)
    return lambda feed: session.run(None, feed)


def allowed_differences(model: onnx.ModelProto) -> set[str]:
    """What two kernels of the operators of a model may do otherwise: round, or give another sign of zero."""
    operators = {node.op_type for node in every_node(model)}
    found = {"rounding": ROUNDS, "zero": SUMS}
    return {word for word, names in found.items() if not names.isdisjoint(operators)}


def explained(
    made: ModelCase, source: Any, plain: Any, number: int, pair: tuple[Any, Any], words: str, allowed: set[str]
) -> tuple[str, bool]:
    """The verdict on another result: no fault where an operator follows the standard, and onnxruntime does not."""
    got, expected = pair
    other = outcomes(lambda: create(made, source, "ort"), made.feeds)[0][number]
    if not verdict(other, expected, allowed)[1]:
        return 'equal with compat="ort"', False
    for level in range(4):
        settings = {**made.settings, "level": level}
        own = outcomes(lambda settings=settings: alone(made, plain, settings), made.feeds)[0][number]
        if verdict(own, expected, allowed)[1]:
            return "onnxruntime differs from itself", False
    standard = outcomes(lambda: by_evaluator(made.model, made.settings), made.feeds)[0][number]
    is_array = not isinstance(standard, Exception) and not isinstance(got, Exception)
    if is_array and not verdict(got, standard, allowed)[1]:
        return "equal to onnx's evaluator with unpool's functions", False
    return words, True


def without_empty_einsums(made: ModelCase, expected: list[Any], tally: Counter[str]) -> list[Any]:
    """What is expected of a model with an Einsum, without the inputs that onnxruntime refuses, which go, too.

    onnxruntime's Einsum of an empty value ends the process, and it refuses some pools that are empty in unpool.
    """
    if all(node.op_type != "Einsum" for node in every_node(made.model)):
        return expected
    kept = [not isinstance(each, Exception) for each in expected]
    tally["not run before an Einsum"] += kept.count(False)
    made.feeds[:] = compress(made.feeds, kept)
    return list(compress(expected, kept))


def trial(seed: int) -> tuple[Counter[str], list[str]]:
    """How often what happened with a model, and its faults."""
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    rng = np.random.default_rng((seed, 6))
    made = case(seed)
    forms = disguise(made, rng)
    tally: Counter[str] = Counter()
    faults: list[str] = []
    allowed = allowed_differences(made.model)
    log = Log()
    logging.getLogger("unpool").addHandler(log)
    patches = [
        mock.patch.object(passes, "PASSES", counted(tally)),
        mock.patch.object(stored_model, "SETTLED", 0),
        *(eager() if seed % 2 else []),
        *(large() if seed % 3 == 0 else []),
    ]
    with tempfile.TemporaryDirectory() as folder:
        way, source, plain = source_of(made, rng, Path(folder))
        expected, is_refused = outcomes(lambda: alone(made, plain), made.feeds)
        expected = expected if is_refused else without_empty_einsums(made, expected, tally)
        for each in patches:
            each.start()
        try:
            got, _ = outcomes(lambda: create(made, source, "spec"), made.feeds)
            if way not in ("bytes", "proto"):
                later, _ = outcomes(lambda: create(made, source, "spec"), made.feeds)
                words = [verdict(*pair, set()) for pair in zip(later, got, strict=True)]
                faults += [f"a later session: {each}; {way} {made.settings}" for each, is_fault in words if is_fault]
                tally["loaded without the model"] += made.settings.get("stored", False)
            made.settings.pop("stored", None)
            told = [made.settings.pop(word, None) for word in ("unpool", "onnxruntime")]
            form = f"{way} {' '.join(forms)} {made.settings}"
            if None not in told and told[0] != told[1]:
                faults.append(f"the session says {told[0]}, onnxruntime {told[1]}; {form}")
            runs = not all(isinstance(each, Exception) for each in expected)
            if is_refused:
                tally[f"not loaded by onnxruntime: {type(expected[0]).__name__}"] += 1
            for number, pair in enumerate(zip(got, expected, strict=True)):
                words, is_fault = verdict(*pair, allowed, is_refused=is_refused)
                if is_fault and not isinstance(pair[1], Exception):
                    words, is_fault = explained(made, source, plain, number, pair, words, allowed)
                if is_fault:
                    faults.append(f"run {number}: {words}; {form}")
                else:
                    tally[words] += 1
            faults += [
                f"log: {' '.join(line.split())[:300]}; {form}"
                for line in log.messages
                if "failed and is skipped" in line or ("refuses the model after the passes" in line and runs)
                if not any(words in line for words in WRONG_SIZES)
            ]
        finally:
            for each in patches:
                each.stop()
            logging.getLogger("unpool").removeHandler(log)
            faulthandler.cancel_dump_traceback_later()
    for word in {node.op_type for node in every_node(made.model)} & {"MaxPool", "MaxUnpool", "ConvTranspose"}:
        tally[f"has {word}"] += 1
    tally.update(f"form {each}" for each in (*forms, way))
    return Counter({words: number for words, number in tally.items() if number}), faults


def main(words: list[str]) -> int:
    """The campaign as a command; its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--work", action="store_true", help="run models from this seed on in this process")
    parser.add_argument("--alone", action="store_true", help="run this model in onnxruntime alone, in this process")
    options = parser.parse_args(words)
    warnings.simplefilter("ignore")
    logging.getLogger("unpool").propagate = False
    onnxruntime.set_default_logger_severity(4)
    if options.alone:
        made = case(options.seed)
        rng = np.random.default_rng((options.seed, 6))
        disguise(made, rng)
        outcomes(lambda: alone(made, made.model.SerializeToString()), made.feeds)
        return 0
    if options.work:
        work(trial, options.seed, options.count)
        return 0
    tally = run_models(
        PROGRAM, options.seed * 1_000_000, options.count, options.jobs, lambda line: print(line, flush=True)
    )
    print(tally)
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
