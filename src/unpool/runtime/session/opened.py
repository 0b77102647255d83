"""Loads a model as it was told: whole by onnxruntime, or planned and loaded step by step."""

from typing import NamedTuple

import onnxruntime

from unpool.runtime.graph.boundary import reading
from unpool.runtime.session.loaded import LoadedModel
from unpool.runtime.session.opening import brought
from unpool.runtime.session.optimised import write_optimised
from unpool.runtime.session.profile import Profile
from unpool.runtime.session.told import Told
from unpool.runtime.session.whole import WholeModel, whole_model


class Opened(NamedTuple):
    """A loaded model, the options as they were, and its profile if there is one to be written."""

    model: LoadedModel | WholeModel
    options: onnxruntime.SessionOptions
    profile: Profile | None


def opened(told: Told) -> Opened:
    """Load the model.

    Raises:
        UnpoolError: it cannot be read, breaks a contract, or nobody runs it as it is told.
    """
    whole = whole_model(told)
    if whole is not None:
        return Opened(whole, whole.session.get_session_options(), None)
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
    return Opened(loaded, options, profile)
