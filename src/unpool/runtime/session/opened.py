"""Loads a model as it was told: whole by onnxruntime, or planned and loaded step by step; tuned, by who is fastest."""

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from unpool.errors import UnpoolError
from unpool.runtime.graph.boundary import reading
from unpool.runtime.requirements import onnxruntime
from unpool.runtime.session.fastest import USUAL, candidates, differing, fastest, known, trial_feed
from unpool.runtime.session.loaded import LoadedModel
from unpool.runtime.session.opening import brought
from unpool.runtime.session.optimised import write_optimised
from unpool.runtime.session.profile import Profile
from unpool.runtime.session.told import Told
from unpool.runtime.session.whole import WholeModel, whole_model

LEAST = 1e-9
"""Seconds of tuning that find what was kept, and time nothing."""

_log = logging.getLogger("unpool")


class Opened(NamedTuple):
    """A loaded model, what it was made of, the options as they were, and its profile if there is one to be written."""

    told: Told
    model: LoadedModel | WholeModel
    options: onnxruntime.SessionOptions
    profile: Profile | None


def opened(told: Told) -> Opened:
    """Load the model, with the fastest runners where a session is tuned.

    Raises:
        UnpoolError: it cannot be read, breaks a contract, or nobody runs it as it is told.
    """
    choices = candidates(told)
    if len(choices) == 1:
        return _opened(told)
    name = known(told)
    return _opened(choices[name]) if name in choices else _tuned(told, choices)


def _tuned(told: Told, choices: Mapping[str, Told]) -> Opened:
    """Load the model with all runners, and keep the one that is the fastest; others than the usual may fail to load."""
    end = time.perf_counter() + told.tuning
    usual = _opened(told)
    choices = differing(choices, usual.model.plan if isinstance(usual.model, LoadedModel) else None)
    feed = trial_feed(usual.model) if len(choices) > 1 else None
    if feed is None:
        return usual
    found = {USUAL: usual}
    for name, one in choices.items():
        left = end - time.perf_counter()
        if name != USUAL and left > 0:
            try:
                found[name] = _opened(replace(one, tuning=max(left, LEAST)))
            except UnpoolError as error:
                _log.info("tuning: %s does not load: %s", name, error)
    models = {name: one.model for name, one in found.items()}
    name = fastest(told, models, feed, end - time.perf_counter())
    return found[name]._replace(told=choices[name])


def _opened(told: Told) -> Opened:
    whole = whole_model(told)
    if whole is not None:
        return Opened(told, whole, whole.session.get_session_options(), None)
    return _planned(told)


def _planned(told: Told) -> Opened:
    with reading(told.source):
        model, options, settings = brought(told)
        theirs = told.all_providers.of_onnxruntime
        profile = Profile(options.profile_file_prefix, theirs.names[0]) if options.enable_profiling else None
        loaded = LoadedModel(model, settings)
        if options.optimized_model_filepath:
            write_optimised(model, options, told.meaning, theirs)
    loaded.signature.owner = loaded
    if profile is not None:
        profile.add_loading()
        profile.traces = loaded.traces
    return Opened(told, loaded, options, profile)
