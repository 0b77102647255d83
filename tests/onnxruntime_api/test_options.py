"""SessionOptions and RunOptions as unpool hands them on: defaults, what may be set, and what is refused."""

import numpy as np
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

SESSION_DEFAULTS = {
    "enable_cpu_mem_arena": True,
    "enable_mem_pattern": True,
    "enable_mem_reuse": True,
    "enable_profiling": False,
    "inter_op_num_threads": 0,
    "intra_op_num_threads": 0,
    "log_severity_level": -1,
    "log_verbosity_level": 0,
    "logid": "",
    "optimized_model_filepath": "",
    "profile_file_prefix": "onnxruntime_profile_",
    "use_deterministic_compute": False,
}
RUN_DEFAULTS = {
    "log_severity_level": -1,
    "log_verbosity_level": 0,
    "logid": "",
    "only_execute_path_to_fetches": False,
    "terminate": False,
}
RUN_CHANGES = {
    "log_severity_level": 3,
    "log_verbosity_level": 1,
    "logid": "run 7",
    "only_execute_path_to_fetches": True,
}
ENUMS = [
    ("graph_optimization_level", "GraphOptimizationLevel", "ORT_ENABLE_ALL", "ORT_DISABLE_ALL"),
    ("execution_mode", "ExecutionMode", "ORT_SEQUENTIAL", "ORT_PARALLEL"),
    ("execution_order", "ExecutionOrder", "DEFAULT", "PRIORITY_BASED"),
]


def other(value):
    """Another value of the same kind."""
    return not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else f"{value}_other"


@pytest.mark.parametrize(("name", "default"), SESSION_DEFAULTS.items(), ids=SESSION_DEFAULTS)
def test_session_options_have_defaults_and_keep_what_is_set(ort, name, default):
    """A fresh attribute has onnxruntime's default; a set one has what was set."""
    options = ort.SessionOptions()
    assert getattr(options, name) == default

    setattr(options, name, other(default))
    assert getattr(options, name) == other(default)


@pytest.mark.needs("SessionOptions.use_per_session_threads")
def test_threads_are_those_of_a_session_by_default(ort):
    """A session has threads of its own unless it is told to share them."""
    assert ort.SessionOptions().use_per_session_threads


@pytest.mark.parametrize(("attribute", "kind", "default", "changed"), ENUMS)
def test_enumerations_of_session_options(ort, attribute, kind, default, changed):
    """Level, mode and order are members of enumerations that stand beside SessionOptions."""
    options = ort.SessionOptions()
    assert getattr(options, attribute) == getattr(getattr(ort, kind), default)

    setattr(options, attribute, getattr(getattr(ort, kind), changed))
    assert getattr(options, attribute) == getattr(getattr(ort, kind), changed)


@pytest.mark.parametrize(
    ("name", "value"), [("intra_op_num_threads", "two"), ("enable_profiling", "yes"), ("logid", 3)]
)
def test_session_options_refuse_other_types(ort, name, value):
    """A value of another type is a TypeError."""
    with pytest.raises(TypeError):
        setattr(ort.SessionOptions(), name, value)


def test_session_options_keep_entries(ort):
    """An entry is read back by its key, and the last value counts."""
    options = ort.SessionOptions()
    options.add_session_config_entry("key", "first")
    options.add_session_config_entry("key", "second")

    assert options.get_session_config_entry("key") == "second"


def test_session_options_name_an_entry_that_is_not_set(ort):
    """Reading an entry that nobody set is a RuntimeError that names the key."""
    with pytest.raises(RuntimeError, match="NOBODY_SET"):
        ort.SessionOptions().get_session_config_entry("NOBODY_SET")


@pytest.mark.parametrize(("key", "value"), [("", "v"), ("k" * 5000, "v"), ("k", "v" * 50000)])
def test_session_options_limit_entries(ort, key, value):
    """An empty or long key and a long value are a RuntimeError."""
    with pytest.raises(RuntimeError):
        ort.SessionOptions().add_session_config_entry(key, value)


def test_a_library_of_operators_that_is_missing(ort, own_folder):
    """Registering a library that is not there is a Fail that names the file."""
    with pytest.raises(Fail, match="nowhere"):
        ort.SessionOptions().register_custom_ops_library("./libnowhere.so")


@pytest.mark.needs("SessionOptions.has_providers")
def test_session_options_have_no_providers_at_first(ort):
    """Nobody chose a provider yet."""
    assert not ort.SessionOptions().has_providers()


@pytest.mark.parametrize(("name", "default"), RUN_DEFAULTS.items(), ids=RUN_DEFAULTS)
def test_run_options_have_defaults_and_keep_what_is_set(ort, name, default):
    """A fresh attribute has onnxruntime's default; a set one has what was set."""
    options = ort.RunOptions()
    assert getattr(options, name) == default

    setattr(options, name, other(default))
    assert getattr(options, name) == other(default)


@pytest.mark.needs("RunOptions.get_run_config_entry")
def test_run_options_keep_entries(ort):
    """An entry is read back by its key; one that nobody set is a RuntimeError that names it."""
    options = ort.RunOptions()
    options.add_run_config_entry("key", "value")

    assert options.get_run_config_entry("key") == "value"
    with pytest.raises(RuntimeError, match="NOBODY_SET"):
        options.get_run_config_entry("NOBODY_SET")


@pytest.mark.parametrize(("name", "value"), RUN_CHANGES.items(), ids=RUN_CHANGES)
def test_no_run_option_changes_results(ort, net, session, name, value):
    """Options of a run are taken, by place and by name, and results stay the same."""
    options = ort.RunOptions()
    setattr(options, name, value)

    assert np.array_equal(session.run(None, net.feed, options)[0], net.z)
    assert np.array_equal(session.run(None, net.feed, run_options=options)[0], net.z)


@pytest.mark.parametrize(
    ("key", "value"),
    [("memory.enable_memory_arena_shrinkage", "cpu:0"), ("disable_synchronize_execution_providers", "1"), ("my", "1")],
)
def test_no_entry_of_a_run_changes_results(ort, net, session, key, value):
    """Entries of a run, known and unknown, are taken, and results stay the same."""
    options = ort.RunOptions()
    options.add_run_config_entry(key, value)

    assert np.array_equal(session.run(None, net.feed, options)[0], net.z)
    assert np.array_equal(session.run(None, net.feed, options)[0], net.z)


def test_run_options_serve_many_runs(ort, net, session):
    """One RunOptions is used again and again, and by another session."""
    options = ort.RunOptions()
    another = ort.InferenceSession(net.content)

    for one in (session, session, another):
        assert np.array_equal(one.run(None, net.feed, options)[0], net.z)
