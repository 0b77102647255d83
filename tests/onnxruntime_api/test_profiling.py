"""Profiling: a file of Chrome trace events, one per node that ran."""

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

SLACK = 100_000
"""Microseconds by which the clocks of a profile may be apart."""


@pytest.fixture
def profiled(ort, net, own_folder):
    """A session that records what runs, in an empty folder."""
    options = ort.SessionOptions()
    options.enable_profiling = True
    return ort.InferenceSession(net.content, options)


def events(path):
    """The events of a file."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def test_the_file_has_what_a_trace_needs(profiled, net):
    """Every event has a category, a name, a phase, times, and process and thread."""
    profiled.run(None, net.feed)

    for event in events(profiled.end_profiling()):
        assert {"cat", "name", "ph", "ts", "dur", "pid", "tid", "args"} <= set(event)
        assert (event["ph"], event["pid"]) == ("X", os.getpid())
        assert event["dur"] >= 0


def test_the_file_has_session_and_nodes(profiled, net):
    """Loading, every run and every node of it are events."""
    for _ in range(3):
        profiled.run(None, net.feed)
    found = events(profiled.end_profiling())
    names = [event["name"] for event in found if event["cat"] == "Session"]

    assert names.count("model_run") == 3
    assert "session_initialization" in names
    assert sum("Relu" in event["name"] for event in found if event["cat"] == "Node") == 3


def test_every_node_has_its_event_in_its_run(profiled, net):
    """Nodes that run together have an event each, with the shapes of their inputs, at the time of the run."""
    profiled.run(None, net.feed)
    found = events(profiled.end_profiling())
    (run,) = [event for event in found if event["name"] == "model_run"]
    nodes = {event["args"]["op_name"]: event for event in found if event["cat"] == "Node"}

    assert "Relu" in nodes
    assert nodes["Relu"]["args"]["input_type_shape"] == [{"float": [1, 1, 4, 4]}]
    assert all(run["ts"] - SLACK < node["ts"] < run["ts"] + run["dur"] + SLACK for node in nodes.values())
    assert {event["tid"] for event in nodes.values()} == {run["tid"]}


def test_nodes_name_operator_and_provider(ort, profiled, net):
    """The arguments of a node's event are its operator and its provider."""
    profiled.run(None, net.feed)
    found = [event for event in events(profiled.end_profiling()) if event["cat"] == "Node"]
    providers = {event["args"]["provider"] for event in found}

    assert "Relu" in {event["args"]["op_name"] for event in found}
    assert providers <= set(profiled.get_providers())


def test_the_file_may_be_called_otherwise(ort, net, own_folder):
    """The name starts with the prefix of the options, which may lead to another folder."""
    (own_folder / "traces").mkdir()
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = "traces/mine"
    session = ort.InferenceSession(net.content, options)
    session.run(None, net.feed)
    name = session.end_profiling()

    assert name.startswith("traces/mine_")
    assert events(name)


def test_the_name_starts_with_that_of_onnxruntime(profiled):
    """Without a prefix the name is onnxruntime's."""
    name = profiled.end_profiling()

    assert name.startswith("onnxruntime_profile_")
    assert name.endswith(".json")


def test_profiling_ends_once(profiled, net):
    """The second call gives no name, writes nothing, and the session still runs."""
    profiled.run(None, net.feed)
    first = profiled.end_profiling()

    assert profiled.end_profiling() == ""
    assert list(Path().iterdir()) == [Path(first)]
    assert np.array_equal(profiled.run(None, net.feed)[0], net.z)


def test_a_session_that_goes_leaves_its_file(ort, net, own_folder):
    """A script that never ends profiling finds the file when the session has gone."""
    options = ort.SessionOptions()
    options.enable_profiling = True
    session = ort.InferenceSession(net.content, options)
    session.run(None, net.feed)
    del session
    (path,) = Path().iterdir()

    assert events(path)


def test_without_profiling_there_is_no_file(session, net, own_folder):
    """A session without profiling gives an empty name and writes nothing."""
    session.run(None, net.feed)

    assert session.end_profiling() == ""
    assert list(Path().iterdir()) == []


def test_the_start_of_profiling(ort, net, profiled):
    """The start is a whole number of nanoseconds that grows from session to session."""
    options = ort.SessionOptions()
    options.enable_profiling = True
    starts = [profiled.get_profiling_start_time_ns()]
    for _ in range(2):
        time.sleep(0.001)
        another = ort.InferenceSession(net.content, options)
        starts.append(another.get_profiling_start_time_ns())
        another.end_profiling()
    profiled.end_profiling()  # while this folder is the working one

    assert all(isinstance(one, int) for one in starts)
    assert 0 < starts[0] < starts[1] < starts[2]


def test_the_start_of_no_profiling(session):
    """Without profiling the start is 0."""
    assert session.get_profiling_start_time_ns() == 0


def test_bound_runs_are_profiled(profiled, net):
    """Runs with a binding and with OrtValues are events too."""
    binding = profiled.io_binding()
    binding.bind_cpu_input("x", net.x)
    binding.bind_output("z")
    profiled.run_with_iobinding(binding)
    found = events(profiled.end_profiling())

    assert any("Relu" in event["name"] for event in found)
