"""Builds the model of a session; with tuning, the choices of runtimes are timed in turns, on random inputs.

| candidate | ConvTranspose | partitions between unpool's nodes |
|---|---|---|
| usual | unpool, or onnxruntime where that saves too little | onnxruntime |
| Conv before Indices | unpool | onnxruntime, except Convs on which Indices depend: unpool |
| openvino with ConvTranspose | OpenVINO, where it computes them as they are written | OpenVINO |
| openvino | unpool | OpenVINO |
| unpool | unpool | onnxruntime |

"Conv before Indices" differs from the usual one only for models that have Indices. Those of OpenVINO need its package,
and "openvino with ConvTranspose" a ConvTranspose. "unpool" differs only where the usual one leaves nodes to
onnxruntime, and is not tried where OpenVINO is faster than both. A caller who names providers chooses the partitions;
OpenVINO's may still get every ConvTranspose.

Candidates are loaded one after another, and each is timed in turns with the fastest so far, so no more than two are in
memory. It replaces that only if it is faster by a margin, and with OpenVINO only if its results are those of the usual
one except for rounding. The choice is stored for later sessions of the same file.

A model whose inputs have dynamic sizes is tuned while it runs, by ShapeTuner: each combination of sizes at its first
run.
"""

import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any, NamedTuple, TypeAlias

import onnx

from unpool.errors import FileError, UnpoolError
from unpool.execute import autotune
from unpool.memory import trim_heap
from unpool.numerics import TUNING, diff_arrays
from unpool.runtime.backends.build import LoadOptions, needs_unpool
from unpool.runtime.backends.openvino_backend import is_installed, package
from unpool.runtime.backends.ort_options import CPU, OPENVINO, Providers
from unpool.runtime.graph.errors import model_errors
from unpool.runtime.graph.graph import Graph
from unpool.runtime.graph.load import stable_source
from unpool.runtime.graph.shapes import Types
from unpool.runtime.graph.weights import file_stamp, try_serialize
from unpool.runtime.passes.pipeline import prepare
from unpool.runtime.plan.placement import NO_PROFIT
from unpool.runtime.plan.plan import Plan
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.session.executor import Executor
from unpool.runtime.session.load import SessionConfig, load_model
from unpool.runtime.session.ort_compat.model_files import save_optimized
from unpool.runtime.session.ort_compat.profile import Profile
from unpool.runtime.session.passthrough import OrtModel, Passthrough, open_whole, passthrough_of, whole_key

USUAL, UNPOOL, BEFORE_INDICES = "usual", "unpool", "Conv before Indices"
OPENVINO_PARTITIONS, OPENVINO_ALL = "openvino", "openvino with ConvTranspose"
_OPENVINO = (OPENVINO_PARTITIONS, OPENVINO_ALL)

MARGIN = 0.03
"""Share of the time by which a candidate must be faster than those before it; whole runs are timed, so nothing is lost
elsewhere."""

CERTAIN = 0.15
"""Share of the time by which a candidate is faster if it is certain at once."""

MIN_TUNING = 1e-9  # seconds of tuning that are enough to find a stored result, and too few to time anything
MAX_SHAPES = 256  # combinations of input shapes whose choices a session keeps
MIN_RUNS = 8  # of a trial of two candidates
LONG_RUN = 0.5  # seconds of a first run, from which on it is timed again: it may have compiled kernels
SETTLE = 0.02  # seconds until the threads of other candidates sleep
TURN = 0.05  # seconds of a turn of a candidate

Call: TypeAlias = Callable[[], list[Any]]
"""A run of a candidate."""

_log = logging.getLogger("unpool")


class BuiltSession(NamedTuple):
    """A loaded model, its config, and the options as they were; the tuner of a model with dynamic sizes."""

    config: SessionConfig
    model: Executor | OrtModel
    options: onnxruntime.SessionOptions
    shape_tuner: "ShapeTuner | None" = None


class _PreparedModel(NamedTuple):
    """A model, the options of its session and of its steps, and its graph after all passes."""

    model: onnx.ModelProto
    options: onnxruntime.SessionOptions
    load_options: LoadOptions
    prepared: tuple[Graph, Types]


def build(config: SessionConfig) -> BuiltSession:
    """The model of a session: passed through to onnxruntime, or planned and loaded.

    That a plan gives onnxruntime the whole model is stored: a later session of the same file needs no plan.
    """
    reloader = ModelReloader(config)
    passthrough = passthrough_of(config)
    is_planned = passthrough is Passthrough.IF_PLANNED and config.options is None
    key = whole_key(config) if is_planned else None
    is_known = key is not None and autotune.find_result(key) is True
    whole = _whole(config) if is_known or passthrough is Passthrough.YES else None
    if whole is not None:
        return whole
    with model_errors(config.source):
        loaded = _load(config)
        if is_planned and not needs_unpool(*loaded.prepared, loaded.load_options):
            del loaded  # onnxruntime reads the weights again: they are in memory once
            whole = _whole(config)
            if whole is not None:
                if key is not None:
                    autotune.store_result(key, True)
                return whole
            loaded = _load(config)
        return _executed(config, loaded, reloader)


def _whole(config: SessionConfig) -> BuiltSession | None:
    model = open_whole(config)
    return None if model is None else BuiltSession(config, model, model.session.get_session_options())


def _load(config: SessionConfig) -> _PreparedModel:
    model, options, load_options = load_model(config)
    return _PreparedModel(
        model, options, load_options, prepare(model, load_options.semantics, load_options.pass_options)
    )


def _executed(config: SessionConfig, loaded: _PreparedModel, reloader: "ModelReloader") -> BuiltSession:
    """The model, planned and loaded, and written to a file if options say so."""
    model, options, load_options, prepared = loaded
    providers = config.all_providers.of_onnxruntime
    profile = Profile(options.profile_file_prefix, providers.names[0]) if options.enable_profiling else None
    executor = Executor(model, load_options, prepared=prepared, load_safe=partial(_load_safe, config, reloader))
    if options.optimized_model_filepath:
        save_optimized(model, options, config.semantics, providers)
    if profile is not None:
        profile.add("Session", "session_initialization")
        traces = (partition.trace for partition in executor.ort_partitions)
        profile.traces = [trace for trace in traces if trace is not None]
        executor.profile = profile
    return BuiltSession(config, executor, options)


class ModelReloader:
    """Loads the model of a session again while that runs, for other arguments.

    It is made before the file is read for the first time: one that is replaced later never becomes a part of the
    session.
    """

    def __init__(self, config: SessionConfig) -> None:
        source = stable_source(config.source) if isinstance(config.source, (str, os.PathLike)) else None
        self._path = source if isinstance(source, str) else None
        self._stamp = self._file_stamp()

    def load(self, config: SessionConfig) -> Executor | OrtModel:
        """The model of a session with other arguments; a FileError if its file is another one by now."""
        self.require_same_file()
        return build(config if self._path is None else replace(config, source=self._path)).model

    def require_same_file(self) -> None:
        """Raise a FileError if the file is another one by now."""
        if self._file_stamp() != self._stamp:
            raise FileError(
                f"{self._path}: expected the file from which the session was made, got another one or none. Make a new "
                "session."
            )

    def _file_stamp(self) -> str:
        if self._path is None:
            return ""
        try:
            with open(self._path, "rb") as file:
                return file_stamp(file)
        except OSError:
            return ""


def _load_safe(config: SessionConfig, reloader: ModelReloader) -> Executor:
    """The model with a plan that assumes no sizes."""
    model = reloader.load(replace(config, assumes_sizes=False, tuning=min(config.tuning, MIN_TUNING)))
    assert isinstance(model, Executor), "unpool runs a MaxPool of this plan"
    return model


def build_session(config: SessionConfig) -> BuiltSession:
    """The model of a session; with tuning, by the fastest runtimes. All but the usual ones may fail to load."""
    reloader, configs = ModelReloader(config), _candidates(config)
    if len(configs) == 1:
        return build(config)
    key = _key(config)
    name = None if key is None else autotune.find_result(key)
    if name in configs:
        return build(configs[name])
    end = time.perf_counter() + config.tuning
    sessions = {USUAL: build(config)}
    usual = sessions[USUAL].model
    configs = {name: each for name, each in configs.items() if _is_useful(name, config, usual)}
    if len(configs) == 1:
        return sessions[USUAL]
    from unpool.runtime.random_inputs import random_feed  # loads NumPy's generators

    try:
        feed = random_feed(usual.signature.inputs, {})
    except UnpoolError as error:
        _log.info("tuning: candidates are timed at the first run of each shape: %s", error)
        return sessions[USUAL]._replace(shape_tuner=ShapeTuner(key, configs, usual, reloader))
    del usual  # so that it can be dropped

    def load(name: str, seconds: float) -> Call:
        if name not in sessions:
            reloader.require_same_file()
            sessions[name] = build(replace(configs[name], tuning=max(seconds, MIN_TUNING)))
        return partial(sessions[name].model.run, None, feed)

    name = _fastest(key, list(configs), load, sessions.pop, end - time.perf_counter())
    return sessions[name]._replace(config=configs[name])


class ShapeTuner:
    """Chooses the fastest candidate for each combination of input shapes, at its first run and on the inputs of that.

    Trials take as many seconds as the session may tune, all shapes together; shapes after that go by the usual
    candidate. Choices are stored for later sessions of the same file. A candidate is loaded once for all shapes.
    """

    def __init__(
        self, key: str | None, configs: dict[str, SessionConfig], usual: Executor | OrtModel, reloader: ModelReloader
    ) -> None:
        self._key, self._configs, self._reloader = key, configs, reloader
        self._models: dict[str, Executor | OrtModel] = {USUAL: usual}
        self._choices: dict[Hashable, str] = {}
        self._seconds = configs[USUAL].tuning
        self._lock = threading.Lock()
        self.latest: Executor | OrtModel = usual  # the model of the latest run

    def model_for(self, feed: Mapping[str, Any]) -> Executor | OrtModel:
        """The model for inputs of these shapes; other threads wait while it is chosen."""
        if not isinstance(feed, Mapping):
            return self._models[USUAL]  # which refuses it
        shapes = tuple(sorted((name, tuple(getattr(value, "shape", ()))) for name, value in feed.items()))
        name = self._choices.get(shapes)
        if name is None:
            with self._lock:
                name = self._choices.get(shapes) or self._choose(shapes, feed)
        self.latest = self._models.get(name) or self._models[USUAL]
        return self.latest

    def _choose(self, shapes: Hashable, feed: Mapping[str, Any]) -> str:
        key = None if self._key is None else repr((self._key, shapes))
        name = None if key is None else autotune.find_result(key)
        begin = time.perf_counter()
        try:
            if name in self._configs:
                self._load(name)
            else:
                name = self._time(key, feed) if self._seconds > 0 else USUAL
                self._seconds -= time.perf_counter() - begin
        except UnpoolError:
            return USUAL  # which raises it to the caller
        if len(self._choices) >= MAX_SHAPES:
            del self._choices[next(iter(self._choices))]
        self._choices[shapes] = name
        if self._seconds <= 0:
            used = {USUAL, *self._choices.values()}
            self._models = {each: model for each, model in self._models.items() if each in used}
        return name

    def _time(self, key: str | None, feed: Mapping[str, Any]) -> str:
        def load(name: str, _: float) -> Call:
            return partial(self._load(name).run, None, feed)

        return _fastest(key, list(self._configs), load, lambda _: None, self._seconds)

    def _load(self, name: str) -> Executor | OrtModel:
        """The model of a candidate, which is loaded once."""
        if name not in self._models:
            self._models[name] = self._reloader.load(replace(self._configs[name], tuning=MIN_TUNING))
        return self._models[name]


def _candidates(config: SessionConfig) -> dict[str, SessionConfig]:
    """The configs of all candidates by name, the usual one first.

    The usual one is the only candidate without tuning, with `exact`, with the caller's SessionOptions, and with
    providers other than OpenVINO.
    """
    configs = {USUAL: config}
    is_chosen = config.openvino_conv_transpose is not None
    if not config.tuning or is_chosen or config.options is not None or config.semantics.exact:
        return configs
    if config.providers is None:
        configs[BEFORE_INDICES] = replace(config, openvino_conv_transpose=False, convert_conv_before_indices=True)
        if is_installed():
            openvino = replace(config, providers=Providers((OPENVINO, CPU), ({}, {})))
            configs[OPENVINO_ALL] = replace(openvino, openvino_conv_transpose=True)
            configs[OPENVINO_PARTITIONS] = replace(openvino, openvino_conv_transpose=False)
        configs[UNPOOL] = replace(config, openvino_conv_transpose=False, checks_profit=False)
    elif is_installed() and config.all_providers.openvino is not None:
        configs[OPENVINO_ALL] = replace(config, openvino_conv_transpose=True)
    return configs


def _is_useful(name: str, config: SessionConfig, usual: Executor | OrtModel) -> bool:
    """True if a candidate may differ from the others, as far as the usual one shows."""
    if name == UNPOOL and isinstance(usual, OrtModel):
        return passthrough_of(config) is not Passthrough.YES
    if name == UNPOOL:
        return any(row.reason == NO_PROFIT for row in usual.plan)
    if name == OPENVINO_ALL:
        return any(row.operator == "ConvTranspose" for row in usual.plan)
    return name != BEFORE_INDICES or (isinstance(usual, Executor) and _has_indices(usual.plan))


def _has_indices(plan: Plan) -> bool:
    """True if a MaxPool of unpool has its Indices among the outputs of its step."""
    pools = {record.step for record in plan if record.operator == "MaxPool" and record.runner == "unpool"}
    return any(len(plan.steps[step].outputs) > 1 for step in pools)


def _fastest(
    key: str | None, names: list[str], load: Callable[[str, float], Call], drop: Callable[[str], object], seconds: float
) -> str:
    """The name of the fastest candidate, which is stored; an earlier one unless a later one is faster by a margin.

    Each is timed against the fastest so far, so no more than two have to be loaded. Those of unpool alone are not
    compared: they only round differently, which may change an index, and a single index may change many outputs
    (docs/decisions/0011).

    Args:
        key: of the stored result; None to store none.
        names: of the candidates, the usual one first.
        load: the run of a candidate, which it may load within so many seconds; an UnpoolError if it cannot be loaded.
        drop: is given the name of a candidate that is not needed any more.
        seconds: in which the trial has to end, but for the runs that it has begun.
    """
    end = time.perf_counter() + seconds
    best, call = USUAL, load(USUAL, seconds)
    expected, run = _timed(call)
    if run > LONG_RUN:
        run = min(run, _timed(call)[1])
    has_times = False
    for number, name in enumerate(names[1:], 1):
        if name == UNPOOL and best in _OPENVINO:
            continue
        left = end - time.perf_counter()
        count = min(len(names) - number, int(left / (MIN_RUNS * run)))
        if not count:
            _log.info("tuning: not timed, because a run takes too long: %s.", ", ".join(names[number:]))
            break
        trim_heap()  # what loading has freed, so that the next candidate does not add to it
        try:
            other = load(name, left / count)
        except UnpoolError as error:
            _log.info("tuning: %s does not load: %s", name, error)
            continue
        if name in _OPENVINO and not _agrees(name, other, expected):
            del other
            drop(name)
            continue
        seconds = (end - time.perf_counter()) / count
        has_times = True
        if _is_faster({best: call, name: other}, seconds):
            best, name, call = name, best, other
        del other  # so that nothing keeps a model that is dropped
        drop(name)
    if has_times:
        _log.info("tuning: the model goes by %s.", best)
        if key is not None:
            autotune.store_result(key, best)
    return best


def _timed(call: Call) -> tuple[Any, float]:
    """The results of a run, and its seconds."""
    start = time.perf_counter()
    results = call()
    return results, time.perf_counter() - start


def _is_faster(calls: dict[str, Call], seconds: float) -> bool:
    """True if the second of two candidates is faster than the first; a small gain has to be found twice."""
    first, second = calls
    for _ in range(2):
        times = autotune.time_calls(calls, seconds, SETTLE, TURN, median)  # a minimum of so few whole runs is noise
        _log.info("tuning: %s.", autotune.format_times(times))
        if autotune.fastest(times, first, MARGIN) == first:
            return False
        if autotune.fastest(times, first, CERTAIN) == second:
            break
    return True


def _agrees(name: str, call: Call, expected: list[Any]) -> bool:
    try:
        diffs = [diff_arrays(*pair, TUNING) for pair in zip(expected, call(), strict=True)]
    except UnpoolError as error:
        _log.info("tuning: %s fails: %s", name, error)
        return False
    is_equal = not any(diff.differs for diff in diffs)
    if not is_equal:
        share = max(diff.share for diff in diffs if diff.differs)
        _log.info("tuning: %s gives other results, %.2g of them, and is left out.", name, share)
    return is_equal


def _key(config: SessionConfig) -> str | None:
    """The key of the stored result; None where the model has no bytes to make a digest of."""
    source = config.source
    if isinstance(source, (str, os.PathLike)):
        try:
            with open(source, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:  # loading the model raises it again
            return None
    else:
        content = try_serialize(source) if isinstance(source, onnx.ModelProto) else bytes(source)
        if content is None:
            return None
        digest = hashlib.sha256(content).hexdigest()
    arguments = (config.semantics, config.threads, config.providers, sorted(config.disabled_optimizers))
    versions = onnx.__version__, onnxruntime.__version__, package().__version__ if is_installed() else ""
    return repr((digest, arguments, *versions))
