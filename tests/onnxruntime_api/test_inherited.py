"""Ways to run a model that a session inherits, with a node of unpool in it."""

import json
import threading

import numpy as np
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument


def test_memory_of_the_caller_is_bound(session, net):
    """A binding reads an array and writes into another one."""
    binding, z = session.io_binding(), np.zeros_like(net.z)
    binding.bind_cpu_input("x", net.x)
    binding.bind_output("z", "cpu", 0, z.dtype, z.shape, z.ctypes.data)
    session.run_with_iobinding(binding)

    assert np.array_equal(z, net.z)


def test_values_go_in_and_come_out(ort, session, net):
    """OrtValues are inputs and outputs."""
    feed = {"x": ort.OrtValue.ortvalue_from_numpy(net.x)}

    assert np.array_equal(session.run_with_ort_values(["z"], feed)[0].numpy(), net.z)


def test_a_run_calls_back(session, net):
    """`run_async` gives the outputs to a function."""
    done, results = threading.Event(), []

    def callback(outputs, data, error):
        results.extend([outputs, data, error])
        done.set()

    session.run_async(None, net.feed, callback, 7)
    assert done.wait(60)
    assert np.array_equal(results[0][0], net.z)
    assert results[1:] == [7, ""]


def test_a_profile_has_the_nodes(ort, net, here):
    """The trace has an event for a run of each node."""
    options = ort.SessionOptions()
    options.enable_profiling = True
    session = ort.InferenceSession(net.content, options)
    session.run(None, net.feed)
    events = json.loads((here / session.end_profiling()).read_bytes())

    assert any(event.get("cat") == "Node" for event in events)


def test_a_wrong_input_has_the_class_and_the_words_of_onnxruntime(session, net):
    """Another rank is an invalid argument, and the session runs again."""
    with pytest.raises(InvalidArgument, match="Invalid rank for input: x"):
        session.run(None, {"x": net.x[0]})
    net.assert_right(session)


def test_a_run_that_is_told_to_stop_fails(ort, session, net):
    """Its error says so, and the next run gives its results."""
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(Exception, match="terminate"):
        session.run(None, net.feed, options)
    options.terminate = False
    assert np.array_equal(session.run(None, net.feed, options)[0], net.z)
