"""Builds the model of a session: passed through to onnxruntime, or planned and loaded; with tuning, the fastest one."""

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from unpool.errors import UnpoolError
from unpool.runtime.graph.errors import model_errors
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.session.autotune import USUAL, candidates, distinct_candidates, fastest, stored_result, trial_inputs
from unpool.runtime.session.config import SessionConfig
from unpool.runtime.session.executor import Executor
from unpool.runtime.session.load import load_model
from unpool.runtime.session.ort_compat.model_files import save_optimized
from unpool.runtime.session.ort_compat.profile import Profile
from unpool.runtime.session.passthrough import OrtModel, try_passthrough

MIN_TUNING = 1e-9
"""Seconds of tuning that are enough to find a stored result, and too few to time anything."""

_log = logging.getLogger("unpool")


class BuiltSession(NamedTuple):
    """A loaded model, its config, the options as they were, and the profile if one is to be written."""

    config: SessionConfig
    model: Executor | OrtModel
    options: onnxruntime.SessionOptions
    profile: Profile | None


def build_session(config: SessionConfig) -> BuiltSession:
    """Load the model; with tuning, by the fastest runtimes.

    Raises:
        UnpoolError: it cannot be read, breaks a contract, or no runtime runs it with these arguments.
    """
    configs = candidates(config)
    if len(configs) == 1:
        return _build(config)
    name = stored_result(config)
    return _build(configs[name]) if name in configs else _tune(config, configs)


def _tune(config: SessionConfig, configs: Mapping[str, SessionConfig]) -> BuiltSession:
    """Load the model by every candidate, and keep the fastest; all but the usual one may fail to load."""
    end = time.perf_counter() + config.tuning
    usual = _build(config)
    configs = distinct_candidates(configs, usual.model.plan if isinstance(usual.model, Executor) else None)
    feed = trial_inputs(usual.model) if len(configs) > 1 else None
    if feed is None:
        return usual
    sessions = {USUAL: usual}
    for name, candidate in configs.items():
        left = end - time.perf_counter()
        if name != USUAL and left > 0:
            try:
                sessions[name] = _build(replace(candidate, tuning=max(left, MIN_TUNING)))
            except UnpoolError as error:
                _log.info("tuning: %s does not load: %s", name, error)
    models = {name: session.model for name, session in sessions.items()}
    name = fastest(config, models, feed, end - time.perf_counter())
    return sessions[name]._replace(config=configs[name])


def _build(config: SessionConfig) -> BuiltSession:
    ort_model = try_passthrough(config)
    if ort_model is not None:
        return BuiltSession(config, ort_model, ort_model.session.get_session_options(), None)
    with model_errors(config.source):
        model, options, load_options = load_model(config)
        providers = config.all_providers.of_onnxruntime
        profile = Profile(options.profile_file_prefix, providers.names[0]) if options.enable_profiling else None
        executor = Executor(model, load_options)
        if options.optimized_model_filepath:
            save_optimized(model, options, config.semantics, providers)
    executor.signature.owner = executor
    if profile is not None:
        profile.add_loading()
        profile.traces = executor.traces
    return BuiltSession(config, executor, options, profile)
